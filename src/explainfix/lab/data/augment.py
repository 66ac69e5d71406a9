"""What training does to an image and its mask together, and what evaluation does to an image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .dataset import Augment, Prepare, Sample, pad


@dataclass(frozen=True)
class InTurn:
    """First what evaluation does too, then each step of training."""

    prepare: Prepare
    steps: Sequence[Augment] = ()

    def __call__(self, sample: Sample, generator: np.random.Generator) -> Sample:
        sample = self.prepare(sample)
        for step in self.steps:
            sample = step(sample, generator)
        return sample


def keep(sample: Sample) -> Sample:
    """The sample as it is."""
    return sample


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
        window = (slice(None), *(slice(start, start + self.size) for start in starts))
        image, target = sample
        return Sample(image[window], target[window] if sample.masked else target)


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


def shift_mean(sample: Sample) -> Sample:
    """The image with its mean moved to 0.5, as in the paper."""
    image = sample.image.numpy()  # NumPy: torch would wake its threads for every image
    return sample._replace(image=torch.from_numpy(image - (image.mean() - np.float32(0.5))))


def stretch_contrast(sample: Sample) -> Sample:
    """Dark nuclei made bright, then grey levels of the 5th and 99.5th percentiles put at 0 and 1.

    A mean moves with the number of nuclei, and dark images stay dark; these percentiles hardly
    depend on crowding and take the exposure out. In the fluorescent images of BBBC038v1's
    stage1_train the means of nuclei and background, 2.4 deviations apart after `shift_mean`, are
    5.3 apart after this. There the median of a fluorescent image is below 0.21 and that of a light
    background above 0.51, but for one of 125, which stays as it is.
    """
    image = sample.image.numpy()
    step = max(int((image[0].size / 10_000) ** 0.5), 1)  # ten thousand pixels are enough
    grey = image[:, ::step, ::step].mean(0)
    if np.median(grey) > 0.35:
        image, grey = 1 - image, 1 - grey
    low, high = np.quantile(grey, [0.05, 0.995]).astype(np.float32)
    stretched = (image - low) / max(high - low, np.float32(0.01))
    return sample._replace(image=torch.from_numpy(stretched.clip(-0.25, 1.25, out=stretched)))


def _flipped(sample: Sample, axes: list[int]) -> Sample:
    def flipped(tensor: Tensor) -> Tensor:
        return torch.from_numpy(np.flip(tensor.numpy(), tuple(axes)).copy())

    if not axes:
        return sample
    image, target = sample
    return Sample(flipped(image), flipped(target) if sample.masked else target)
