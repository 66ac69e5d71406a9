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
    """The kernels of a guide network, `(out, in, *shape)` by layer path, ready to be looked up.

    A layer is guided by the layer of the same path and kernel shape; failing that, by the layer in
    the same place, if the two networks have the same kernel shapes in the same order; failing
    that, by all guide kernels of its shape.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        for path, weight in weights.items():
            if not np.isfinite(weight).all():
                raise ValueError(f"the guide's layer {path!r} has NaN or infinite weights")
        self.shapes = {path: weight.shape[2:] for path, weight in weights.items()}
        self.layers = {
            path: weight.reshape(-1, math.prod(weight.shape[2:]))
            for path, weight in weights.items()
        }
        self.families = {
            shape: Family(
                np.concatenate([k for p, k in self.layers.items() if self.shapes[p] == shape])
            )
            for shape in set(self.shapes.values())
        }

    def match(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, LayerGuide]:
        """The guide of each layer, given the kernel shapes of a network's layers in order."""
        same_build = list(shapes.values()) == list(self.shapes.values())
        by_place = dict(zip(shapes, self.shapes, strict=True)) if same_build else {}
        matched: dict[str, LayerGuide] = {}
        for path, shape in shapes.items():
            if shape not in self.families:
                size = "x".join(map(str, shape))
                known = ", ".join(sorted("x".join(map(str, s)) for s in self.families))
                raise ValueError(
                    f"the guide has no {size} kernels, which layer {path!r} needs; it has "
                    f"{known or 'no spatial layer'}"
                )
            family = self.families[shape]
            partner = path if self.shapes.get(path) == shape else by_place.get(path)
            kernels = family.kernels if partner is None else self.layers[partner]
            matched[path] = LayerGuide(kernels, family)
        return matched


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

    >>> guide = Guide({"conv": np.random.default_rng(0).normal(size=(8, 4, 3, 3))})
    >>> (layer,) = guide.match({"conv": (3, 3)}).values()
    >>> guidedsteer((16, 8, 3, 3), Draw(0, "conv"), guide=layer).shape
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
