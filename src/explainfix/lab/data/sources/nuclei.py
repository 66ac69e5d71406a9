"""nuclei: drawn cell nuclei with exact masks, fluorescent and stained; needs no files.

Nuclei differ in brightness within an image, glow onto the background, lie on uneven light among
debris, and images differ in size of nuclei, crowding, focus, noise and exposure: no threshold
separates them, though their edges do.
"""

import numpy as np
import torch

from ....registry import datasets
from ..augment import add_noise, flip
from ..dataset import Dataset, Sample
from ..preparation import Preparation
from .drawing import Array, blur, draw_splits, generator_of, smooth_field

# Optical densities of the two stains in red, green and blue
HAEMATOXYLIN = np.array([0.65, 0.80, 0.35], dtype=np.float32)[:, None, None]
EOSIN = np.array([0.10, 0.75, 0.25], dtype=np.float32)[:, None, None]


@datasets.register("nuclei")
def nuclei(
    path: str,
    *,
    skip_damaged: bool = False,
    seed: int = 0,
    count: int = 400,
    size: int = 128,
) -> Dataset:
    """Drawn fluorescent and stained nuclei, `size` pixels square; val and test are a quarter."""
    return Dataset(
        name="nuclei",
        task="segmentation",
        classes=("nucleus",),
        preparation=Preparation(adjust="shift_mean"),
        splits=draw_splits("nuclei", path, draw, seed=seed, count=count, size=size),
        steps=(flip, add_noise),
    )


def draw(seed: int, split: int, size: int, index: int) -> Sample:
    """The image at an index, the same whenever and wherever it is drawn."""
    rng = generator_of(seed, split, index)
    mask, amount = _nuclei(rng, size)
    stained = rng.random() < 0.3
    image = _stain(rng, amount, mask) if stained else _fluoresce(rng, amount)
    noise = np.float32(rng.uniform(0.005, 0.06))
    image += noise * rng.standard_normal(image.shape, dtype=np.float32)
    levels = np.rint(image.clip(0, 1) * 255) / 255  # as from a camera
    return Sample(
        torch.from_numpy(levels.astype(np.float32)), torch.from_numpy(mask[None].astype(np.float32))
    )


def _nuclei(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    """Where nuclei are, and how much dye each pixel has."""
    typical = size * np.exp(rng.uniform(np.log(0.035), np.log(0.1)))
    cover = rng.uniform(0.03, 0.6)
    number = int(np.clip(cover * size**2 / (np.pi * typical**2), 2, 120))
    radius = typical * rng.lognormal(sigma=0.2, size=number).clip(0.5, 1.6)
    clustered = rng.random() < 0.4
    centre = rng.uniform(0, size, (number, 2))
    if clustered:
        middles = rng.uniform(0, size, (rng.integers(2, 5), 2))
        centre = middles[rng.integers(len(middles), size=number)]
        centre = centre + rng.normal(scale=size / 7, size=(number, 2))
    angle, stretch = rng.uniform(0, np.pi, number), rng.uniform(1, 1.5, number)
    lobes = rng.normal(scale=[[0.06], [0.04]], size=(2, number))
    phase = rng.uniform(0, 2 * np.pi, (2, number))
    strength = rng.uniform(0.2, 1, number).astype(np.float32)

    reach = int(np.ceil(radius.max() * 1.4))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float32)
    corner = np.floor(centre).astype(int)
    offset, cos, sin, longer, near, lobe, turn = (
        value.astype(np.float32)[..., None, None]
        for value in (centre - corner, np.cos(angle), np.sin(angle), stretch, radius, lobes, phase)
    )
    dy, dx = y - offset[:, 0], x - offset[:, 1]
    along = (cos * dx + sin * dy) / np.sqrt(longer)
    across = (cos * dy - sin * dx) * np.sqrt(longer)
    distance = np.sqrt(along**2 + across**2) + np.float32(1e-6)
    u, v = along / distance, across / distance  # cosine and sine of the direction
    twice, thrice = u * u - v * v, u * (u * u - 3 * v * v)  # cosines of two and three times it
    wobble = lobe[0] * (twice * np.cos(turn[0]) - 2 * u * v * np.sin(turn[0]))
    wobble += lobe[1] * (thrice * np.cos(turn[1]) - v * (3 * u * u - v * v) * np.sin(turn[1]))
    inside = distance < near * (1 + wobble)

    wide = size + 2 * reach
    amount, mask = np.zeros((wide, wide), dtype=np.float32), np.zeros((wide, wide), dtype=bool)
    for k, (top, left) in enumerate(np.clip(corner, 0, size - 1)):
        window = (slice(top, top + 2 * reach + 1), slice(left, left + 2 * reach + 1))
        np.maximum(amount[window], inside[k] * strength[k], out=amount[window])
        mask[window] |= inside[k]
    middle = slice(reach, reach + size)
    return mask[middle, middle], amount[middle, middle]


def _fluoresce(rng: np.random.Generator, amount: Array) -> Array:
    """Bright on dark: glow around nuclei, uneven light, debris, blur, then the exposure."""
    size = len(amount)
    texture = 1 + 0.25 * smooth_field(rng, size, 12)
    glow = blur(amount, size / rng.uniform(8, 16))
    light = 0.15 + 0.12 * smooth_field(rng, size, 1.5)
    specks = rng.random((size, size)) < rng.uniform(0, 0.002)
    focus = size / 128 * rng.uniform(0.3, 1.8)
    scene = blur(amount * texture + 3 * specks, focus)
    scene = scene + rng.uniform(0.1, 0.9) * glow + light.clip(0)
    tint = np.ones(3) if rng.random() < 0.7 else rng.dirichlet([1, 1, 3]) * 2
    exposure = np.exp(rng.uniform(np.log(0.12), 0))
    image: Array = scene * (tint.clip(0.1, 1) * exposure).astype(np.float32)[:, None, None]
    return image


def _stain(rng: np.random.Generator, amount: Array, mask: Array) -> Array:
    """Purple on pink: light is absorbed by one dye in the nuclei and by another in the tissue."""
    size = len(amount)
    texture = 1 + 0.3 * smooth_field(rng, size, 12)
    tissue = rng.uniform(0.2, 0.6) + 0.35 * smooth_field(rng, size, 6)
    focus = size / 128 * rng.uniform(0.3, 1.2)
    dye = blur(amount * texture, focus) * rng.uniform(0.6, 1.4)
    dye = dye + rng.uniform(0.05, 0.2) + 0.1 * smooth_field(rng, size, 3)
    eosin = blur(tissue.clip(0) * ~mask, focus / 2)
    image: Array = np.exp(-dye * HAEMATOXYLIN - eosin * EOSIN) * np.float32(rng.uniform(0.75, 1))
    return image
