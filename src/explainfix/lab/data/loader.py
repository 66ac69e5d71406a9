"""Which images a step of training sees: a function of seed, epoch and place, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from .dataset import Dataset, Images, Sample, collate, cut_middle

Batch = tuple[Tensor, Tensor]
Places = NDArray[np.int64]

_ORDER, _AUGMENT, _STEP = 0, 1, 2  # three streams of random numbers that never meet


@dataclass(frozen=True)
class Share:
    """How images are shared out: a batch of each process, batches a step, processes."""

    batch_size: int = 1
    accumulate: int = 1
    rank: int = 0  # which process this is
    world: int = 1  # of how many

    @property
    def step(self) -> int:
        """The images of a step, over all processes."""
        return self.batch_size * self.accumulate * self.world


def epoch_order(count: int, *, seed: int, epoch: int, drawn: int | None = None) -> Places:
    """The images of an epoch, in order: each once, or `drawn` of them with replacement."""
    random = np.random.default_rng([seed, _ORDER, epoch])
    return random.permutation(count) if drawn is None else random.integers(count, size=drawn)


def step_places(length: int, share: Share) -> Places:
    """Places in the order of an epoch, `(steps, accumulate, world, batch_size)`.

    Two processes with batches of b see in a step what one process with batches of 2b does, or one
    that accumulates two batches of b. The last step starts again at the front to be full.

    >>> step_places(5, Share(batch_size=1, world=2))[:, 0].tolist()
    [[[0], [1]], [[2], [3]], [[4], [5]]]
    """
    steps = -(-length // share.step)
    layout = (steps, share.accumulate, share.world, share.batch_size)
    return np.arange(steps * share.step).reshape(layout)


def step_seed(seed: int, epoch: int, step: int, rank: int) -> int:
    """The seed of a step's random numbers, of dropout for example."""
    return int(np.random.SeedSequence([seed, _STEP, epoch, step, rank]).generate_state(1)[0])


def training_steps(
    dataset: Dataset,
    split: str,
    share: Share,
    *,
    seed: int,
    epoch: int,
    start: int = 0,
    workers: int = 0,
) -> Iterator[list[Batch]]:
    """The steps of an epoch from step `start` on, each as its `accumulate` batches."""
    images = dataset.split(split)
    order = epoch_order(len(images), seed=seed, epoch=epoch, drawn=dataset.samples_per_epoch)
    places = step_places(len(order), share)
    mine = places[start:, :, share.rank].reshape(-1, share.batch_size)
    source = _Augmented(dataset, images, order, seed, epoch)
    loader = _load(source, mine.tolist(), workers)
    for first in loader:
        yield [first, *(next(loader) for _ in range(share.accumulate - 1))]


def count_steps(dataset: Dataset, split: str, share: Share) -> int:
    """How many steps an epoch has."""
    length = dataset.samples_per_epoch or len(dataset.split(split))
    return -(-length // share.step)


def evaluation_batches(
    dataset: Dataset,
    split: str,
    *,
    batch_size: int,
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
    middle: int | None = None,
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Every image of a split once, in order: their indices, and the padded batch.

    `middle` takes the square or cube of that side in the middle of each.
    """
    mine = list(range(len(dataset.split(split))))[rank::world]
    parts = [mine[i : i + batch_size] for i in range(0, len(mine), batch_size)]
    batches = _load(_Prepared(dataset, dataset.split(split), middle), parts, workers)
    for indices, (images, targets) in zip(parts, batches, strict=True):
        yield indices, images, targets


@dataclass(frozen=True)
class _Augmented(TorchDataset[Sample]):
    """Places of an epoch to training samples."""

    dataset: Dataset
    images: Images
    order: Places
    seed: int
    epoch: int

    def __getitem__(self, place: int) -> Sample:
        random = np.random.default_rng([self.seed, _AUGMENT, self.epoch, place])
        return self.dataset.augment(self.images[int(self.order[place % len(self.order)])], random)


@dataclass(frozen=True)
class _Prepared(TorchDataset[Sample]):
    """Indices to samples for evaluation."""

    dataset: Dataset
    images: Images
    middle: int | None

    def __getitem__(self, index: int) -> Sample:
        sample = self.dataset.prepare(self.images[index])
        return sample if self.middle is None else cut_middle(sample, self.middle)


def _load(source: TorchDataset[Sample], batches: list[list[int]], workers: int) -> Iterator[Batch]:
    # A generator of its own: by default the loader draws from the global random numbers.
    return iter(
        DataLoader(
            source,
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=collate,
            generator=torch.Generator(),
            pin_memory=torch.cuda.is_available(),
        )
    )
