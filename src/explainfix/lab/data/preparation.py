"""What turns the picture in a file into a network's input, in values that a run can write down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...registry import unknown
from .images import Levels, Source, read_image, resize, to_channels

Adjust = Literal["keep", "shift_mean", "stretch_contrast"]

# Mean and deviation of ImageNet's images, which pretrained networks expect to be taken out.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preparation:
    """How a picture or volume becomes a network's input: read, adjusted, standardised.

    Training augments what is adjusted, before it is standardised.

    >>> grey = Preparation(channels=1, mean=(0.5,), deviation=(0.25,))
    >>> grey(torch.full((1, 1, 2), 0.75))
    tensor([[[1., 1.]]])
    """

    channels: int = 3
    size: int | None = None  # pixels of each side
    enlarge: bool = True  # `size` is for smaller pictures too
    levels: Levels = "file"  # what becomes 0 and 1
    adjust: Adjust = "keep"
    mean: tuple[float, ...] = ()  # of each channel, to be taken off
    deviation: tuple[float, ...] = ()  # of each channel, to divide by
    window: int | None = None  # the side of the cubes in which a volume is segmented

    def __post_init__(self) -> None:
        if self.adjust not in _ADJUSTMENTS:
            raise unknown("adjust", self.adjust, _ADJUSTMENTS)
        if len(self.mean) != len(self.deviation) or len(self.mean) not in (0, self.channels):
            raise ValueError(f"{self.channels} channels need as many means and deviations")

    def read(self, source: Source, name: str = "") -> Tensor:
        """The picture `(c, h, w)` from 0 to 1, in its channels and as large as it is to be."""
        return self.fitted(self.decode(source, name))

    def decode(self, source: Source, name: str = "") -> Tensor:
        """The picture from 0 to 1, in its channels and as large as it is in the file."""
        return to_channels(read_image(source, name, levels=self.levels), self.channels)

    def fitted(self, image: Tensor) -> Tensor:
        """The picture as large as it is to be."""
        if self.size is None or not (self.enlarge or image.shape[-1] > self.size):
            return image
        return resize(image, self.size)

    def __call__(self, image: Tensor) -> Tensor:
        """What the network gets of a picture that was read."""
        return self.standardised(self.adjusted(image))

    def adjusted(self, image: Tensor) -> Tensor:
        return _ADJUSTMENTS[self.adjust](image)

    def standardised(self, image: Tensor) -> Tensor:
        if not self.mean:
            return image
        shape = (-1, *[1] * (image.dim() - 1))
        mean, deviation = torch.tensor(self.mean), torch.tensor(self.deviation)
        return (image - mean.view(shape)) / deviation.view(shape)


def shift_mean(image: Tensor) -> Tensor:
    """The image with its mean moved to 0.5, as in the paper."""
    levels = image.numpy()  # NumPy: torch would wake its threads for every image
    return torch.from_numpy(levels - (levels.mean() - np.float32(0.5)))


def stretch_contrast(image: Tensor) -> Tensor:
    """Dark nuclei made bright, then grey levels of the 5th and 99.5th percentiles put at 0 and 1.

    A mean moves with the number of nuclei, and dark images stay dark; these percentiles hardly
    depend on crowding and take the exposure out. In the fluorescent images of BBBC038v1's
    stage1_train the means of nuclei and background, 2.4 deviations apart after `shift_mean`, are
    5.3 apart after this. There the median of a fluorescent image is below 0.21 and that of a light
    background above 0.51, but for one of 125, which stays as it is.
    """
    levels = image.numpy()
    step = max(int((levels[0].size / 10_000) ** 0.5), 1)  # ten thousand pixels are enough
    grey = levels[:, ::step, ::step].mean(0)
    if np.median(grey) > 0.35:
        levels, grey = 1 - levels, 1 - grey
    low, high = np.quantile(grey, [0.05, 0.995]).astype(np.float32)
    stretched = (levels - low) / max(high - low, np.float32(0.01))
    return torch.from_numpy(stretched.clip(-0.25, 1.25, out=stretched))


_ADJUSTMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "keep": lambda image: image,
    "shift_mean": shift_mean,
    "stretch_contrast": stretch_contrast,
}
