"""xray-like: drawn grey chests with five findings, some reports missing or uncertain; no files.

Findings are smooth shapes over lungs, ribs and clutter: a wide heart, a haze over both lungs, a
dense patch, a slanting band, and fluid at the bottom of a lung. In train and val a weak finding
may be reported uncertain, which is not counted, or not be reported, which counts as absent, as in
CheXpert. Test is told as it was drawn.
"""

import numpy as np
import torch

from ....registry import datasets
from ..augment import Shift
from ..dataset import Dataset, Sample
from ..preparation import Preparation
from .drawing import Array, blur, draw_splits, generator_of, smooth_field

CLASSES = ("wide-heart", "haze", "patch", "band", "fluid")
TEST = 2


@datasets.register("xray-like")
def xray_like(
    path: str,
    *,
    skip_damaged: bool = False,
    seed: int = 0,
    count: int = 2000,
    size: int = 64,
) -> Dataset:
    """Drawn chests with five findings, `size` pixels square; val and test are a quarter."""
    return Dataset(
        name="xray-like",
        task="multilabel",
        classes=CLASSES,
        preparation=Preparation(channels=1),
        splits=draw_splits("xray-like", path, draw, seed=seed, count=count, size=size),
        steps=(Shift(1 / 16),),
    )


def draw(seed: int, split: int, size: int, index: int) -> Sample:
    """The image at an index, the same whenever and wherever it is drawn."""
    rng = generator_of(seed, split, index)
    ill = rng.random() < 0.7  # findings come together
    present = rng.random(5) < (0.4 if ill else 0.05)
    strength = np.where(present, rng.uniform(0.25, 1, 5), 0)
    image = _draw(rng, size, strength)
    target = present.astype(np.float32)
    if split != TEST:
        weak = strength < 0.5
        target[present & (rng.random(5) < np.where(weak, 0.2, 0.03))] = 0  # not reported
        target[rng.random(5) < np.where(present, np.where(weak, 0.3, 0.1), 0.05)] = np.nan
    return Sample(torch.from_numpy(image[None]), torch.from_numpy(target))


def _draw(rng: np.random.Generator, size: int, strength: Array) -> Array:
    """How much is absorbed on the way through a chest, brighter where more."""
    heart, haze, patch, band, fluid = strength
    turn = rng.uniform(-0.08, 0.08)
    scale = rng.uniform(0.85, 1.1)
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j].astype(np.float32)
    y, x = y - rng.uniform(-0.1, 0.1), x - rng.uniform(-0.1, 0.1)
    y, x = (y + turn * x) / scale, (x - turn * y) / scale

    lungs = []
    for side in (-1, 1):
        wide, high = rng.uniform(0.26, 0.34), rng.uniform(0.55, 0.7)
        from_middle = (x - side * rng.uniform(0.4, 0.46)) / wide, (y + 0.08) / high
        lungs.append(_inside(np.hypot(*from_middle), 0.25))
    air = lungs[0] + lungs[1]

    half = rng.uniform(0.17, 0.24) + 0.16 * heart
    middle = np.hypot((x - 0.1 - 0.5 * (half - 0.2)) / half, (y - 0.28) / rng.uniform(0.24, 0.32))
    absorbed = 0.75 - 0.5 * air + 0.45 * _inside(middle, 0.3) * air
    absorbed += 0.2 * _inside(np.abs(x) / 0.12, 0.4)  # the spine
    ribs = np.sin((y + rng.uniform(0.2, 0.5) * x**2) * rng.uniform(20, 26) + rng.uniform(0, 6))
    absorbed += rng.uniform(0.02, 0.06) * ribs * (np.abs(x) < 0.85)

    cloud = 0.7 + 0.3 * smooth_field(rng, size, 3)
    absorbed += 0.3 * haze * air * cloud * np.exp(-(((np.abs(x) - 0.3) / 0.35) ** 2))
    side = int(rng.integers(2))
    off_x, off_y = rng.uniform(0.3, 0.55) * (2 * side - 1), rng.uniform(-0.45, 0.25)
    blob = np.hypot(x - off_x, y - off_y) / rng.uniform(0.12, 0.22)
    absorbed += (
        0.4 * patch * lungs[side] * np.exp(-(blob**2)) * (1 + 0.3 * smooth_field(rng, size, 5))
    )
    side = int(rng.integers(2))
    slope, level = rng.uniform(-0.5, 0.5), rng.uniform(-0.2, 0.35)
    line = (y - level - slope * (np.abs(x) - 0.4)) / rng.uniform(0.03, 0.06)
    absorbed += 0.35 * band * lungs[side] * np.exp(-(line**2))
    side = int(rng.integers(2))
    surface = 0.42 - 0.35 * fluid - 0.5 * (np.abs(x) - 0.42).clip(0) * 2  # higher at the wall
    absorbed += 0.45 * fluid**0.5 * lungs[side] / (1 + np.exp(-(y - surface) / 0.04))

    absorbed += 0.07 * smooth_field(rng, size, 1.5) + 0.03 * smooth_field(rng, size, 6)
    blurred = blur(absorbed, size / 64 * rng.uniform(0.2, 0.7))
    image = rng.uniform(0.5, 0.9) * blurred + rng.uniform(0, 0.2)
    image += rng.uniform(0.01, 0.05) * rng.standard_normal(image.shape, dtype=np.float32)
    levels: Array = (np.rint(image.clip(0, 1) * 255) / 255).astype(np.float32)
    return levels


def _inside(distance: Array, softness: float) -> Array:
    """One well inside distance 1, zero well outside."""
    soft: Array = 1 / (1 + np.exp(((distance - 1) * 6 / softness).clip(-30, 30)))
    return soft
