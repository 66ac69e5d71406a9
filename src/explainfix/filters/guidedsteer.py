"""GuidedSteer: new kernels that steer like those of a guide network."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ..registry import filters, unknown
from .exact import Array, Draw
from .imagenet import DEPTHS, depths, sample_imagenet

SHIPPED = ("imagenet",)


@dataclass(frozen=True)
class Kernels:
    """Kernels of one shape, G: `(c, m)`, those of a layer or all that the guide has."""

    rows: Array

    @cached_property
    def mean(self) -> Array:
        """Ḡ."""
        return np.asarray(self.rows.mean(axis=0))

    @cached_property
    def basis(self) -> Array:
        """B, the right singular vectors of G as rows, from the small matrix GᵀG."""
        return _principal_axes(self.rows)[1]

    @cached_property
    def centred_basis(self) -> Array:
        """B of G - Ḡ."""
        return self._centred_axes[1]

    @cached_property
    def root(self) -> Array:
        """R with RᵀR the covariance of the rows: normal numbers times R have it too."""
        energies, axes = self._centred_axes
        return np.sqrt(energies / len(self.rows))[:, None] * axes

    @cached_property
    def _centred_axes(self) -> tuple[Array, Array]:
        return _principal_axes(self.rows - self.mean)


def _principal_axes(rows: Array) -> tuple[Array, Array]:
    """The energies along the principal axes, falling, and the axes as rows."""
    energies, axes = np.linalg.eigh(rows.T @ rows)
    return np.maximum(energies[::-1], 0.0), axes.T[::-1]


@dataclass(frozen=True)
class LayerGuide:
    """What guides one layer: its own guide kernels G_ℓ and the family they belong to."""

    own: Kernels
    family: Kernels


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
        layers = {
            path: weight.reshape(-1, math.prod(shapes[path])) for path, weight in weights.items()
        }
        self.layers = {path: Kernels(rows) for path, rows in layers.items()}
        self.families = {
            shape: Kernels(np.concatenate([k for p, k in layers.items() if shapes[p] == shape]))
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
        return LayerGuide(family if partner is None else self.layers[partner], family)


def shipped_guides(name: str, paths: Iterable[str]) -> dict[str, str]:
    """What guides each spatial layer of a network when a guide that ships does.

    >>> shipped_guides("imagenet", ["conv1", "conv2"])
    {'conv1': 'imagenet:stem', 'conv2': 'imagenet:middle'}
    """
    if name not in SHIPPED:
        raise unknown("guide", name, SHIPPED)
    return {path: f"{name}:{depth}" for path, depth in depths(paths).items()}


@filters.register("guidedsteer")
def guidedsteer(
    shape: tuple[int, ...],
    draw: Draw,
    *,
    guide: LayerGuide | str,
    sampling: Literal["joint", "kde", "normal"] = "joint",
    basis: Literal["layer", "family"] = "layer",
    centred: bool = False,
) -> Array:
    """New kernels from the distribution of the guide's kernels G_ℓ at that layer.

    "joint" samples whole kernels, from a Gaussian kernel density estimate of G_ℓ with a quarter of
    Scott's bandwidth, h = n^(-1/(m+4))/4 for n kernels of m weights, and noise of their covariance;
    each guide kernel is taken equally often, give or take one. Drawn in about the mean by
    1/√(1 + h²), since the noise would otherwise add that much variance, they have the guide's mean
    and covariance, and so its spectrum. It asks for no basis and centre, and no guide is too small:
    the noise of few kernels stays in their span, and one kernel alone is copied.

    The paper's way is independent: F = W B (+ Ḡ if centred), column i of W sampled from the guide's
    column i of G_ℓ Bᵀ, by a normal distribution of its mean and variance ("normal") or by a density
    estimate with Scott's bandwidth σ·n^(-1/5), drawn in likewise ("kde"). Both keep the means and
    variances along B, the principal axes of the layer's guide kernels; with `basis="family"`, as
    the paper has it, B is one for all guide kernels of the shape, and where a layer's columns
    depend on each other, its spectrum moves.

    `guide` may be the one that ships, as "imagenet:DEPTH" (see `imagenet`): normal kernels of its
    second moments, jointly, which the recipe gives back.

    >>> kernels = np.random.default_rng(0).normal(size=(8, 4, 3, 3))
    >>> guide = Guide({"conv": kernels}, guided={"conv": (3, 3)})
    >>> guidedsteer((16, 8, 3, 3), Draw(0, "conv"), guide=guide.layer("conv")).shape
    (16, 8, 3, 3)
    """
    if isinstance(guide, str):
        if sampling != "joint":
            raise ValueError(f"a guide that ships samples jointly, not by sampling={sampling!r}")
        name, _, depth = guide.partition(":")
        if name not in SHIPPED or depth not in DEPTHS:
            raise unknown(
                "guide", guide, [f"{name}:{depth}" for name in SHIPPED for depth in DEPTHS]
            )
        return sample_imagenet(shape, draw, depth)
    count = math.prod(shape[:2])
    random = np.random.Generator(draw.bits)
    if sampling == "joint":
        return sample_joint(guide.own, count, random).reshape(shape)
    source = guide.own if basis == "layer" else guide.family
    axes = source.centred_basis if centred else source.basis
    centre = source.mean if centred else np.zeros_like(source.mean)
    columns = (guide.own.rows - centre) @ axes.T
    kernels: Array = sample_columns(columns, count, random, smooth=sampling == "kde") @ axes
    kernels += centre
    return kernels.reshape(shape)


def sample_joint(guide: Kernels, count: int, random: np.random.Generator) -> Array:
    """Whole kernels with the guide's mean and covariance, `(count, m)`."""
    number, size = guide.rows.shape
    bandwidth = number ** (-1 / (size + 4)) / 4
    made: Array = random.standard_normal((count, size)) @ guide.root
    made *= bandwidth
    runs = np.tile(np.arange(number), (-(-count // number), 1))
    made += guide.rows[random.permuted(runs, axis=1).reshape(-1)[:count]]
    made -= guide.mean
    made /= math.sqrt(1 + bandwidth**2)
    made += guide.mean
    return made


def sample_columns(
    columns: Array, count: int, random: np.random.Generator, *, smooth: bool
) -> Array:
    """Each column sampled for itself, with its mean and variance, `(count, m)`."""
    mean, deviation = columns.mean(axis=0), columns.std(axis=0)
    sampled = random.standard_normal((count, columns.shape[1]))
    sampled *= deviation
    if smooth:
        bandwidth = len(columns) ** -0.2
        picked = random.integers(len(columns), size=sampled.shape)
        sampled *= bandwidth
        sampled += np.take_along_axis(columns - mean, picked, axis=0)
        sampled /= math.sqrt(1 + bandwidth**2)
    sampled += mean
    return sampled
