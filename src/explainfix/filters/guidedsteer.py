"""GuidedSteer: new kernels that steer like those of a guide network."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ..registry import filters
from .exact import Array, Draw


@dataclass(frozen=True)
class Family:
    """All kernels of one shape in the guide, G: `(c, m)`."""

    kernels: Array

    @cached_property
    def mean(self) -> Array:
        """Ḡ."""
        return np.asarray(self.kernels.mean(axis=0))

    @cached_property
    def basis(self) -> Array:
        """B, the right singular vectors of G as rows, from the small matrix GᵀG."""
        return _principal_axes(self.kernels)

    @cached_property
    def centred_basis(self) -> Array:
        """B of G - Ḡ."""
        return _principal_axes(self.kernels - self.mean)


def _principal_axes(rows: Array) -> Array:
    axes: Array = np.linalg.eigh(rows.T @ rows).eigenvectors.T[::-1]
    return axes


@dataclass(frozen=True)
class LayerGuide:
    """What guides one layer: its own guide kernels G_ℓ `(n, m)` and the family they belong to."""

    kernels: Array
    family: Family


class Guide:
    """The kernels of a guide network, `(out, in, *shape)` by path, for a network to be guided.

    A layer is guided by the layer of the same path and kernel shape. If there is no such pair but
    both networks have the same kernel shapes in the same order, layers correspond by their place.
    A layer without a partner is guided by all guide kernels of its shape.
    """

    def __init__(self, weights: Mapping[str, Array], guided: Mapping[str, tuple[int, ...]]) -> None:
        for path, weight in weights.items():
            if not np.isfinite(weight).all():
                raise ValueError(f"the guide's layer {path!r} has NaN or infinite weights")
        shapes = {path: weight.shape[2:] for path, weight in weights.items()}
        self.layers = {
            path: weight.reshape(-1, math.prod(shapes[path])) for path, weight in weights.items()
        }
        self.families = {
            shape: Family(np.concatenate([k for p, k in self.layers.items() if shapes[p] == shape]))
            for shape in set(shapes.values())
        }
        self.guided = dict(guided)
        self.partners = {path: path for path in guided if shapes.get(path) == guided[path]}
        if not self.partners and list(guided.values()) == list(shapes.values()):
            self.partners = dict(zip(guided, shapes, strict=True))

    def layer(self, path: str) -> LayerGuide:
        """What guides the layer of that path."""
        shape = self.guided[path]
        if shape not in self.families:
            known = ", ".join(sorted("x".join(map(str, s)) for s in self.families))
            raise ValueError(
                f"the guide has no {'x'.join(map(str, shape))} kernels, which layer {path!r} "
                f"needs; it has {known or 'no spatial layer'}"
            )
        family = self.families[shape]
        partner = self.partners.get(path)
        return LayerGuide(family.kernels if partner is None else self.layers[partner], family)


@filters.register("guidedsteer")
def guidedsteer(
    shape: tuple[int, ...],
    draw: Draw,
    *,
    guide: LayerGuide,
    sampling: Literal["kde", "normal"] = "kde",
    centred: bool = False,
) -> Array:
    """F = W B (+ Ḡ if centred), column i of W sampled from the guide's column i of G_ℓ Bᵀ.

    "normal" samples a normal distribution of the column's mean and variance. "kde" samples a
    Gaussian kernel density estimate with Scott's bandwidth σ·n^(-1/5), drawn in about the mean by
    1/√(1 + n^(-2/5)), since the bandwidth would otherwise add that much variance: both give the
    guide's column means and variances, and so its mean squared kernel norm.

    >>> kernels = np.random.default_rng(0).normal(size=(8, 4, 3, 3))
    >>> guide = Guide({"conv": kernels}, guided={"conv": (3, 3)})
    >>> guidedsteer((16, 8, 3, 3), Draw(0, "conv"), guide=guide.layer("conv")).shape
    (16, 8, 3, 3)
    """
    count, size = math.prod(shape[:2]), math.prod(shape[2:])
    basis = guide.family.centred_basis if centred else guide.family.basis
    centre = guide.family.mean if centred else np.zeros(size)
    columns = (guide.kernels - centre) @ basis.T
    mean, deviation = columns.mean(axis=0), columns.std(axis=0)

    random = np.random.Generator(draw.bits)
    steered = random.standard_normal((count, size))
    steered *= deviation
    if sampling == "kde":
        bandwidth = len(columns) ** -0.2
        picked = random.integers(len(columns), size=(count, size))
        steered *= bandwidth
        steered += np.take_along_axis(columns - mean, picked, axis=0)
        steered /= math.sqrt(1 + bandwidth**2)
    steered += mean
    kernels: Array = steered @ basis + centre
    return kernels.reshape(shape)
