"""What the drawn datasets share: their splits, their random numbers, and smooth random fields."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....extras import needed_for
from ..dataset import Images, Listed, Sample
from ..reading import check_least

Array = NDArray[Any]
Draw = Callable[[int, int, int, int], Sample]  # seed, split, size, index


def draw_splits(
    name: str, path: str, draw: Draw, *, seed: int, count: int, size: int
) -> dict[str, Images]:
    """`count` images to train on, a quarter as many to validate and to test."""
    if path:
        raise ValueError(f"{name!r} is drawn, not read: it takes no path, and {path!r} was given")
    check_least(0, seed=seed)
    check_least(1, count=count)
    check_least(32, size=size)
    counts = {"train": count, "val": max(count // 4, 1), "test": max(count // 4, 1)}
    return {
        split: Listed(
            tuple(f"{split}-{index:05d}" for index in range(number)),
            partial(draw, seed, place, size),
        )
        for place, (split, number) in enumerate(counts.items())
    }


def generator_of(seed: int, split: int, index: int) -> np.random.Generator:
    """Random numbers of one image, whatever was drawn before."""
    return np.random.default_rng(np.random.SeedSequence([seed, split, index]))


def smooth_field(rng: np.random.Generator, size: int, waves: float) -> Array:
    """A random field `(size, size)` of deviation about 1 with up to `waves` waves across it."""
    terms = 16
    place = np.linspace(0, 2 * np.pi, size)
    frequency = rng.uniform(-waves, waves, (2, terms, 1))
    down = frequency[0] * place + rng.uniform(0, 2 * np.pi, (terms, 1))
    across = frequency[1] * place
    waves_down = np.concatenate([np.cos(down), -np.sin(down)]).astype(np.float32)
    waves_across = np.concatenate([np.cos(across), np.sin(across)]).astype(np.float32)
    # not `@`, which wakes threads for so small a product
    field: Array = np.einsum("ki,kj->ij", waves_down, waves_across)
    return field * np.float32(np.sqrt(2 / terms))


def blur(field: Array, deviation: float) -> Array:
    """The field seen through a Gaussian of that deviation, in pixels."""
    with needed_for("drawing images"):
        from scipy import ndimage
    blurred: Array = ndimage.gaussian_filter(field, deviation)
    return blurred
