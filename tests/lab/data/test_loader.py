"""The order of data: complete, repeatable, and the same for any number of processes."""

import pytest
import torch

from explainfix.lab.data.dataset import Dataset, Sample
from explainfix.lab.data.loader import (
    Share,
    count_steps,
    epoch_order,
    evaluation_batches,
    step_places,
    step_seed,
    training_steps,
)
from explainfix.lab.data.preparation import Preparation


class Numbers:
    """Images that are their own index."""

    def __init__(self, count):
        self.names = tuple(map(str, range(count)))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return Sample(torch.full((1, 4, 4 + index % 2), float(index)), torch.tensor(float(index)))


def noisy(sample, generator):
    image = sample.image[..., :4] + float(generator.random()) / 2
    return Sample(image, sample.target)


def dataset(count=10, drawn=None):
    return Dataset(
        name="numbers",
        task="multiclass",
        classes=("a",),
        preparation=Preparation(channels=1),
        splits={"train": Numbers(count)},
        steps=(noisy,),
        samples_per_epoch=drawn,
    )


def flat(steps):
    return [[batch[0][:, 0, 0, 0].tolist() for batch in step] for step in steps]


def test_an_epoch_shows_every_image_and_the_next_another_order():
    first, second = (epoch_order(20, seed=3, epoch=epoch) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(20))
    assert list(first) != list(second)
    assert list(first) == list(epoch_order(20, seed=3, epoch=0))
    drawn = epoch_order(20, seed=3, epoch=0, drawn=500)
    assert len(drawn) == 500
    assert set(drawn) == set(range(20))


def test_two_processes_see_in_a_step_what_one_does_with_the_double_batch():
    whole = step_places(23, Share(4))
    halves = step_places(23, Share(2, world=2))
    parts = step_places(23, Share(2, accumulate=2))
    assert whole.reshape(6, 4).tolist() == halves.reshape(6, 4).tolist()
    assert whole.reshape(6, 4).tolist() == parts.reshape(6, 4).tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_going_on_in_the_middle_is_as_if_nothing_had_happened(workers):
    def steps(**more):
        return flat(training_steps(dataset(), "train", Share(3), seed=1, epoch=2, **more))

    whole = steps()
    assert len(whole) == count_steps(dataset(), "train", Share(3)) == 4
    assert steps(start=2, workers=workers) == whole[2:]
    ranks = [
        flat(training_steps(dataset(), "train", Share(1, world=3, rank=r), seed=1, epoch=2))
        for r in range(3)
    ]
    merged = [[[value for r in range(3) for value in ranks[r][step][0]]] for step in range(4)]
    assert merged == whole


def test_the_last_step_is_full_and_nothing_is_left_out():
    steps = flat(training_steps(dataset(5), "train", Share(2, accumulate=2), seed=0, epoch=0))
    seen = [int(value) for step in steps for batch in step for value in batch]
    assert len(seen) == 8
    assert set(seen) == set(range(5))


def test_evaluation_sees_each_image_once_padded():
    got = list(evaluation_batches(dataset(7), "train", batch_size=3))
    assert [indices for indices, _, _ in got] == [[0, 1, 2], [3, 4, 5], [6]]
    assert got[0][1].shape == (3, 1, 4, 5)
    shares = [
        list(evaluation_batches(dataset(7), "train", batch_size=2, rank=r, world=2)) for r in (0, 1)
    ]
    assert sorted(i for share in shares for indices, _, _ in share for i in indices) == list(
        range(7)
    )


def test_loading_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    list(training_steps(dataset(), "train", Share(3), seed=0, epoch=0))
    assert torch.equal(before, torch.get_rng_state())


def test_steps_have_seeds_of_their_own():
    seeds = {step_seed(0, e, s, r) for e in range(5) for s in range(5) for r in range(2)}
    assert len(seeds) == 50
