"""The datasets that need no files: nuclei and xray-like."""

import time

import numpy as np
import pytest
import torch
from scipy import ndimage

from explainfix.lab.data.dataset import open_dataset

DRAWN = ["nuclei", "xray-like"]


@pytest.mark.parametrize("name", DRAWN)
class TestAll:
    def test_the_same_every_time_in_any_order(self, name):
        one, other = (open_dataset(name, count=8, size=48) for _ in range(2))
        forwards = list(one.split("train"))
        backwards = [other.split("train")[k] for k in reversed(range(8))][::-1]
        for a, b in zip(forwards, backwards, strict=True):
            assert torch.equal(a.image, b.image)
            torch.testing.assert_close(a.target, b.target, rtol=0, atol=0, equal_nan=True)

    def test_no_image_twice(self, name):
        seen = set()
        for seed in (0, 1):
            data = open_dataset(name, seed=seed, count=12, size=32)
            assert {split: len(images) for split, images in data.splits.items()} == {
                "train": 12, "val": 3, "test": 3,
            }  # fmt: skip
            seen |= {s.image.numpy().tobytes() for split in data.splits.values() for s in split}
        assert len(seen) == 2 * 18

    def test_no_global_random_numbers(self, name):
        np.random.seed(0)  # noqa: NPY002
        state = np.random.get_state()[1].copy()  # noqa: NPY002
        torch_state = torch.get_rng_state()
        sample = open_dataset(name, count=1, size=32).split("train")[0]
        data = open_dataset(name, count=1, size=32)
        data.augment(sample, np.random.default_rng(0))
        assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
        assert torch.equal(torch_state, torch.get_rng_state())

    def test_what_training_gets(self, name):
        data = open_dataset(name, count=4, size=40)
        assert data.split("train")[0].image.shape == (data.in_channels, 40, 40)
        for sample in data.split("train"):
            assert 0 <= sample.image.min() < sample.image.max() <= 1
            first, again = (data.augment(sample, np.random.default_rng(1)) for _ in range(2))
            assert torch.equal(first.image, again.image)
            assert first.image.shape == sample.image.shape
            assert first.image.dtype == first.target.dtype == torch.float32

    def test_quick(self, name):
        images = open_dataset(name, count=30, size=64).split("train")
        images[0]
        start = time.process_time()
        for index in range(30):
            images[index]
        assert (time.process_time() - start) / 30 < 0.02  # about 0.002 on an idle machine

    def test_mistakes(self, name):
        with pytest.raises(ValueError, match=f"'{name}' is drawn, not read: it takes no path"):
            open_dataset(f"{name}:somewhere")
        with pytest.raises(ValueError, match="size must be at least 32, not 8"):
            open_dataset(name, size=8)
        with pytest.raises(ValueError, match="count must be at least 1, not 0"):
            open_dataset(name, count=0)


@pytest.fixture(scope="module")
def samples():
    return list(open_dataset("nuclei", count=60, size=96).split("train"))


class TestNuclei:
    def test_both_kinds_and_all_crowdings(self, samples):
        light = [sample for sample in samples if sample.image.median() > 0.4]
        assert 8 < len(light) < 35
        cover = sorted(float(sample.target.mean()) for sample in samples)
        assert cover[0] < 0.1
        assert cover[-1] > 0.3

    def test_edges_are_where_the_mask_says(self, samples):
        """Just inside the outline differs from just outside, on average, in nearly every image."""
        told = []
        for image, target in samples:
            grey, mask = image.numpy().mean(0), target[0].numpy() > 0
            inside = mask & ~ndimage.binary_erosion(mask, iterations=3)
            outside = ndimage.binary_dilation(mask, iterations=3) & ~mask
            told.append(abs(grey[inside].mean() - grey[outside].mean()) > grey.std() / 10)
        assert np.mean(told) > 0.95

    def test_a_threshold_is_not_enough(self, samples):
        """Even the best threshold and polarity of each image, chosen by its mask."""
        best = []
        for image, target in samples:
            grey, mask = image.numpy().mean(0), target[0].numpy() > 0
            found = [
                2 * (guess & mask).sum() / (guess.sum() + mask.sum())
                for level in np.quantile(grey, np.linspace(0.02, 0.98, 49))
                for guess in (grey > level, grey < level)
            ]
            best.append(max(found))
        assert np.mean(best) < 0.85


class TestXrayLike:
    def test_labels(self):
        data = open_dataset("xray-like", count=400, size=32)
        train, test = (
            torch.stack([sample.target for sample in data.split(split)])
            for split in ("train", "test")
        )
        assert set(train.nan_to_num(-1).unique().tolist()) == {-1, 0, 1}
        assert 0.02 < float(train.isnan().float().mean()) < 0.2
        assert set(test.unique().tolist()) == {0, 1}
        assert ((test.mean(0) > 0.15) & (test.mean(0) < 0.45)).all()
        assert float(train.nanmean()) < float(test.mean())  # some findings are not reported

    def test_each_finding_changes_the_picture(self):
        from explainfix.lab.data.sources.drawing import generator_of
        from explainfix.lab.data.sources.xray_like import _draw

        for finding in range(5):
            without = _draw(generator_of(0, 0, 3), 64, np.zeros(5))
            with_it = _draw(generator_of(0, 0, 3), 64, np.eye(5)[finding])
            assert np.abs(with_it - without).max() > 0.05
