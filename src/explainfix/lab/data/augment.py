"""What training does to an image and its mask together, and which of it one can choose."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...registry import Registry, unknown
from .dataset import Augment, Sample, cut, pad

augmentations: Registry[Augment] = Registry("augmentation", "")


def choose_steps(steps: Sequence[Augment], names: Sequence[str]) -> tuple[Augment, ...]:
    """The steps of a dataset with those of these names instead of its own, in their place.

    What cannot be chosen, such as a crop, stays. No name leaves all as it is, "none" alone takes
    its own away.

    >>> choose_steps((Crop(64), flip_sideways), ["flips", "noise"])  # doctest: +ELLIPSIS
    (Crop(size=64), <function flip at ...>, <function add_noise at ...>)
    """
    if not names:
        return tuple(steps)
    for name in names:
        if name not in augmentations and list(names) != ["none"]:
            raise unknown("augmentation", name, ["none", *augmentations])
    chosen = [augmentations[name] for name in names if name != "none"]
    own = [place for place, step in enumerate(steps) if step in augmentations.values()]
    place = own[0] if own else len(steps)
    after = [step for step in steps[place:] if step not in augmentations.values()]
    return (*steps[:place], *chosen, *after)


@augmentations.register("flips")
def flip(sample: Sample, generator: np.random.Generator) -> Sample:
    """As it is, left-right, upside down or both: each axis of an image or volume half the time."""
    axes = [axis for axis in range(1, sample.image.dim()) if generator.random() < 0.5]
    return sample.changed(lambda tensor: _flipped(tensor, axes))


@augmentations.register("sideways")
def flip_sideways(sample: Sample, generator: np.random.Generator) -> Sample:
    """As it is or left-right: half of the time each."""
    axes = [-1] if generator.random() < 0.5 else []
    return sample.changed(lambda tensor: _flipped(tensor, axes))


@augmentations.register("noise")
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


def soften_labels(sample: Sample, generator: np.random.Generator) -> Sample:
    """The mask with the noise that `add_noise` gives an image: labels between 0 and 1."""
    noisy = add_noise(Sample(sample.target, sample.target), generator)
    return sample._replace(target=noisy.image)


@augmentations.register("rotate90")
def rotate90(sample: Sample, generator: np.random.Generator) -> Sample:
    """Turned by a random number of right angles; by half turns only if it is not square."""
    height, width = sample.image.shape[-2:]
    turns = int(generator.integers(4)) if height == width else 2 * int(generator.integers(2))
    return sample.changed(lambda tensor: torch.rot90(tensor, turns, (-2, -1)).contiguous())


@augmentations.register("brightness")
def brighten(sample: Sample, generator: np.random.Generator) -> Sample:
    """Contrast around the mean times 0.8 to 1.25, and up to 0.1 brighter or darker."""
    contrast = float(np.exp(generator.uniform(np.log(0.8), np.log(1.25))))
    mean = float(sample.image.mean())
    brighter = float(generator.uniform(-0.1, 0.1))
    return sample._replace(image=(sample.image - mean) * contrast + (mean + brighter))


@augmentations.register("elastic")
def bend(sample: Sample, generator: np.random.Generator) -> Sample:
    """Bent smoothly, by about 1/50 of its size; what comes in is the border repeated.

    The mask is taken from the nearest pixel, so that it stays a mask.
    """
    size = sample.image.shape[-2:]
    coarse = torch.from_numpy(generator.normal(scale=0.04, size=(1, 2, 4, 4)).astype(np.float32))
    offset = F.interpolate(coarse, size, mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
    straight = F.affine_grid(torch.eye(2, 3)[None], [1, 1, *size], align_corners=False)

    def bent(tensor: Tensor, mode: str) -> Tensor:
        grid = straight + offset
        planes = tensor.flatten(0, -3)[None]  # those of a volume are bent alike
        return F.grid_sample(
            planes, grid, mode=mode, padding_mode="border", align_corners=False
        ).view(tensor.shape)

    mask = bent(sample.target, "nearest") if sample.masked else sample.target
    return Sample(bent(sample.image, "bilinear"), mask)


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
        return sample.changed(lambda tensor: tensor[..., rows, columns])


augmentations["shift"] = Shift(1 / 16)


@dataclass(frozen=True)
class LabelNoise:
    """A share of the mask's pixels are given the other label."""

    share: float

    def __call__(self, sample: Sample, generator: np.random.Generator) -> Sample:
        wrong = torch.from_numpy(generator.random(tuple(sample.target.shape)) < self.share)
        return sample._replace(target=torch.where(wrong, 1 - sample.target, sample.target))


def _flipped(tensor: Tensor, axes: list[int]) -> Tensor:
    return torch.from_numpy(np.flip(tensor.numpy(), tuple(axes)).copy()) if axes else tensor
