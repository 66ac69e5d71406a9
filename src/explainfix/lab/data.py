"""What a dataset is: named images with targets, in splits, and what training does to them.

Everything random is drawn from a generator that is handed in, so an epoch can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..registry import datasets

Task = Literal["segmentation", "multilabel", "multiclass"]


class Sample(NamedTuple):
    """One image `(c, h, w)`, from 0 to 1 as it comes from disk, and what is known about it.

    The target is a mask `(1, h, w)` of 0 and 1 for segmentation, `(tasks,)` of 0 and 1 for several
    labels, a class number for one. NaN marks what is not to be counted.
    """

    image: Tensor
    target: Tensor


class Images(Protocol):
    """The images of one split, decoded when asked for."""

    @property
    def names(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


Augment = Callable[[Sample, np.random.Generator], Sample]
Prepare = Callable[[Sample], Sample]


@dataclass(frozen=True)
class Dataset:
    """Splits by name ("train", "val", "test", …) and how their images reach a network."""

    name: str
    task: Task
    classes: tuple[str, ...]
    in_channels: int
    splits: Mapping[str, Images]
    augment: Augment  # for training: crops, flips, noise, and what `prepare` does
    prepare: Prepare  # for evaluation
    samples_per_epoch: int | None = None  # drawn with replacement; `None`: every image once

    def split(self, name: str) -> Images:
        """The images of a split, or an error that names the splits there are."""
        if name not in self.splits:
            known = ", ".join(map(repr, self.splits))
            raise ValueError(f"{self.name!r} has no split {name!r}: choose from {known}")
        return self.splits[name]


def list_datasets() -> list[str]:
    """The names that `open_dataset` takes, without the path that some of them need."""
    return sorted(datasets)


def open_dataset(spec: str, *, skip_damaged: bool = False, **options: Any) -> Dataset:
    """The dataset of a name, or of a name and a path, as in `bbbc038v1:PATH`.

    `options` are those of that dataset, such as `crop=128`.
    """
    name, _, path = spec.partition(":")
    opened: Dataset = datasets.find(name)(path, skip_damaged=skip_damaged, **options)
    return opened


def collate(samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """A batch. Smaller images get noughts at the right and below, and masks get NaN there."""
    height = max(sample.image.shape[-2] for sample in samples)
    width = max(sample.image.shape[-1] for sample in samples)

    def padded(tensor: Tensor, fill: float) -> Tensor:
        missing = (0, width - tensor.shape[-1], 0, height - tensor.shape[-2])
        return torch.nn.functional.pad(tensor, missing, value=fill) if any(missing) else tensor

    images = torch.stack([padded(sample.image, 0.0) for sample in samples])
    masks = samples[0].target.dim() == 3
    targets = [padded(s.target, torch.nan) if masks else s.target for s in samples]
    return images, torch.stack(targets)
