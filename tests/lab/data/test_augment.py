import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from explainfix.lab.data.augment import (
    Crop,
    LabelNoise,
    Shift,
    add_noise,
    augmentations,
    bend,
    brighten,
    choose_steps,
    flip,
    flip_sideways,
    rotate90,
)
from explainfix.lab.data.dataset import Dataset, Sample
from explainfix.lab.data.preparation import Preparation, shift_mean, stretch_contrast

seeds = st.integers(0, 2**32 - 1)


def marked(height, width):
    """An image whose mask can be told from it, pixel by pixel."""
    image = torch.rand(3, height, width)
    return Sample(image, (image[:1] > 0.5).float())


@pytest.mark.parametrize("step", [flip, flip_sideways, rotate90, Crop(5), Shift(0.3)])
@settings(deadline=None)
@given(st.integers(5, 9), st.integers(5, 9), seeds)
def test_the_mask_follows_the_image(step, height, width, seed):
    image, target = step(marked(height, width), np.random.default_rng(seed))
    assert torch.equal(target, (image[:1] > 0.5).float())


@pytest.mark.parametrize(
    "step",
    [*augmentations.values(), Crop(4)],
    ids=lambda step: getattr(step, "__name__", str(step)),
)
def test_labels_stay_and_nothing_is_changed_in_place(step):
    sample = Sample(torch.rand(1, 8, 8), torch.tensor([1.0, torch.nan]))
    before = sample.image.clone()
    for seed in range(5):
        changed = step(sample, np.random.default_rng(seed))
        assert changed.target is sample.target
    assert torch.equal(sample.image, before)


def test_right_angles_are_equally_likely_and_keep_the_shape():
    sample = Sample(torch.arange(4.0).reshape(1, 2, 2), torch.tensor(0))
    generator = np.random.default_rng(0)
    corners = [int(rotate90(sample, generator).image[0, 0, 0]) for _ in range(4000)]
    assert np.bincount(corners) == pytest.approx([1000] * 4, rel=0.1)
    wide = marked(4, 6)
    turned = {rotate90(wide, generator).image[0, 0, 0].item() for _ in range(40)}
    assert turned == {wide.image[0, 0, 0].item(), wide.image[0, -1, -1].item()}
    assert rotate90(wide, generator).image.shape == (3, 4, 6)


def test_bending_moves_a_little_and_masks_stay_masks():
    """A ramp across shows how far each pixel moved: about 1/50 of the width, smoothly."""
    ramp = torch.linspace(0, 1, 64).expand(1, 64, 64).contiguous()
    mask = (ramp > 0.5).float()
    mask[:, :8] = torch.nan
    moved = []
    for seed in range(50):
        image, target = bend(Sample(ramp, mask), np.random.default_rng(seed))
        moved.append(image - ramp)
        assert set(target.nan_to_num(2).unique().tolist()) <= {0.0, 1.0, 2.0}
        inside = target[:, 16:-8]
        wrong = (inside != (image[:, 16:-8] > 0.5).float()).float().mean()
        assert float(wrong) < 0.02  # a pixel at the border of the mask
    moved = torch.stack(moved)
    assert 0.005 < float(moved.std()) < 0.03
    assert float(moved.diff(dim=-1).abs().max()) < 0.05


def test_brightness_is_of_the_whole_image():
    sample = marked(8, 8)
    for seed in range(20):
        image = brighten(sample, np.random.default_rng(seed)).image
        slope, offset = np.polyfit(sample.image.flatten(), image.flatten(), 1)
        assert 0.8 <= slope <= 1.25
        np.testing.assert_allclose(image, slope * sample.image + offset, atol=1e-5)
        assert abs(float(image.mean() - sample.image.mean())) <= 0.1 + 1e-6


def test_steps_are_chosen_in_the_place_of_a_datasets_own():
    own = (Crop(8), flip, add_noise, LabelNoise(0.1))
    assert choose_steps(own, ()) == own
    assert choose_steps(own, ["none"]) == (Crop(8), LabelNoise(0.1))
    chosen = choose_steps(own, ["rotate90", "shift"])
    assert chosen == (Crop(8), rotate90, Shift(1 / 16), LabelNoise(0.1))
    assert choose_steps((Crop(8),), ["noise"]) == (Crop(8), add_noise)
    with pytest.raises(ValueError, match="unknown augmentation 'rotate'"):
        choose_steps(own, ["rotate"])


def test_flips_are_equally_likely():
    sample = Sample(torch.arange(4.0).reshape(1, 2, 2), torch.tensor(0))
    generator = np.random.default_rng(0)
    corners = [int(flip(sample, generator).image[0, 0, 0]) for _ in range(4000)]
    assert np.bincount(corners) == pytest.approx([1000] * 4, rel=0.1)
    corners = [int(flip_sideways(sample, generator).image[0, 0, 0]) for _ in range(2000)]
    assert np.bincount(corners) == pytest.approx([1000, 1000], rel=0.1)


class TestNoise:
    def test_its_variance(self):
        """0.8 of the images get N(0, 1/u²), u ~ U(5, 10); E[1/u²] = 1/50."""
        sample = Sample(torch.full((1, 32, 32), 0.5), torch.tensor(0))
        generator = np.random.default_rng(0)
        noise = torch.stack([add_noise(sample, generator).image for _ in range(1000)]) - 0.5
        quiet = (noise == 0).all(-1).all(-1).float().mean()
        assert float(quiet) == pytest.approx(0.2, abs=0.04)
        # clipping at three deviations or so takes a little away
        assert float(noise.square().mean()) == pytest.approx(0.8 / 50, rel=0.05)
        assert float(noise.mean()) == pytest.approx(0, abs=1e-3)

    def test_stays_from_0_to_1(self):
        sample = Sample(torch.rand(3, 16, 16) * 1.4 - 0.2, torch.tensor(0))
        generator = np.random.default_rng(0)
        noisy = [add_noise(sample, generator).image for _ in range(10)]
        assert all(
            image.min() >= 0 and image.max() <= 1 for image in noisy if image is not sample[0]
        )

    def test_labels(self):
        sample = Sample(torch.zeros(1, 100, 100), torch.ones(1, 100, 100))
        target = LabelNoise(0.1)(sample, np.random.default_rng(0)).target
        assert float(target.mean()) == pytest.approx(0.9, abs=0.01)


class TestCrop:
    def test_every_place_is_reached(self):
        sample = Sample(torch.arange(12.0).reshape(1, 3, 4), torch.tensor(0))
        generator = np.random.default_rng(0)
        corners = {int(Crop(2)(sample, generator).image[0, 0, 0]) for _ in range(200)}
        assert corners == {0, 1, 2, 4, 5, 6}

    def test_beyond_the_image(self):
        image, target = Crop(6)(marked(4, 8), np.random.default_rng(0))
        assert image.shape == (3, 6, 6)
        assert image[:, 4:].eq(0).all()
        assert target[:, 4:].isnan().all()
        assert not target[:, :4].isnan().any()


def test_steps_are_between_what_evaluation_does():
    half = (0.5,) * 3
    data = Dataset(
        name="one",
        task="segmentation",
        classes=("x",),
        preparation=Preparation(adjust="shift_mean", mean=half, deviation=half),
        splits={},
        steps=(Crop(4), lambda sample, _: sample._replace(image=sample.image.clip(0.2, 0.8))),
    )
    sample = marked(8, 8)
    prepared = data.prepare(sample).image
    torch.testing.assert_close(prepared, (shift_mean(sample.image) - 0.5) / 0.5)
    changed = data.augment(sample, np.random.default_rng(0)).image
    assert changed.shape == (3, 4, 4)
    torch.testing.assert_close(changed.aminmax(), torch.tensor([-0.6, 0.6]).unbind())


class TestNormalising:
    @settings(deadline=None)
    @given(seeds)
    def test_mean(self, seed):
        image = torch.rand(3, 9, 7, generator=torch.Generator().manual_seed(seed))
        shifted = shift_mean(image)
        assert float(shifted.mean()) == pytest.approx(0.5, abs=1e-6)
        torch.testing.assert_close(shifted - shifted[0, 0, 0], image - image[0, 0, 0])

    @staticmethod
    def scene(cover):
        """Nuclei of level 1 on a background of 0, over a share of the image."""
        image = torch.zeros(3, 100, 100)
        image[:, : int(100 * cover)] = 1
        return image

    @pytest.mark.parametrize("cover", [0.02, 0.1, 0.3])
    @pytest.mark.parametrize(("gain", "offset"), [(0.08, 0.01), (0.3, 0.02), (-0.6, 0.9)])
    def test_stretching_undoes_exposure_crowding_and_polarity(self, cover, gain, offset):
        image = self.scene(cover) * gain + offset
        stretched = stretch_contrast(image)
        torch.testing.assert_close(stretched, self.scene(cover), atol=1e-4, rtol=0)
        if cover > 0.02:  # what the mean does instead
            moved = shift_mean(image)
            assert (moved - self.scene(cover)).abs().max() > 0.1

    def test_an_even_image(self):
        even = stretch_contrast(torch.full((3, 8, 8), 0.2))
        assert even.isfinite().all()
