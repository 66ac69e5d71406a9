"""What training does to an image and its mask together."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .dataset import Sample, cut, pad


def flip(sample: Sample, generator: np.random.Generator) -> Sample:
    """As it is, left-right, upside down or both: each axis of an image or volume half the time."""
    axes = range(1, sample.image.dim())
    return _flipped(sample, [axis for axis in axes if generator.random() < 0.5])


def flip_sideways(sample: Sample, generator: np.random.Generator) -> Sample:
    """As it is or left-right: half of the time each."""
    return _flipped(sample, [-1] if generator.random() < 0.5 else [])


def add_noise(sample: Sample, generator: np.random.Generator) -> Sample:
    """With probability 0.8 every pixel x becomes clip(x + N(0,1) / U(5,10)), U drawn per image.

    The paper does not say whether U is drawn per pixel; one per image gives images of differing
    quality, as microscopes do.
    """
    if generator.random() >= 0.8:
        return sample
    image = generator.standard_normal(tuple(sample.image.shape), dtype=np.float32)
    image /= np.float32(generator.uniform(5, 10))
    image += sample.image.numpy()
    return sample._replace(image=torch.from_numpy(image.clip(0, 1, out=image)))


@dataclass(frozen=True)
class Crop:
    """A random square or cube of `size` pixels; a smaller image gets zeros, its mask NaN."""

    size: int

    def __call__(self, sample: Sample, generator: np.random.Generator) -> Sample:
        sample = pad(sample, [self.size] * (sample.image.dim() - 1))
        starts = [int(generator.integers(n - self.size + 1)) for n in sample.image.shape[1:]]
        return cut(sample, starts, self.size)


@dataclass(frozen=True)
class Shift:
    """Moved by up to a `share` of its size each way; what comes in is the border repeated."""

    share: float

    def __call__(self, sample: Sample, generator: np.random.Generator) -> Sample:
        height, width = sample.image.shape[-2:]
        down, right = generator.uniform(-self.share, self.share, size=2)
        rows = torch.arange(height).add(round(down * height)).clamp_(0, height - 1)[:, None]
        columns = torch.arange(width).add(round(right * width)).clamp_(0, width - 1)
        return Sample(*(t[..., rows, columns] if t.dim() == 3 else t for t in sample))


@dataclass(frozen=True)
class LabelNoise:
    """A share of the mask's pixels are given the other label."""

    share: float

    def __call__(self, sample: Sample, generator: np.random.Generator) -> Sample:
        wrong = torch.from_numpy(generator.random(tuple(sample.target.shape)) < self.share)
        return sample._replace(target=torch.where(wrong, 1 - sample.target, sample.target))


def _flipped(sample: Sample, axes: list[int]) -> Sample:
    def flipped(tensor: Tensor) -> Tensor:
        return torch.from_numpy(np.flip(tensor.numpy(), tuple(axes)).copy())

    if not axes:
        return sample
    image, target = sample
    return Sample(flipped(image), flipped(target) if sample.masked else target)
