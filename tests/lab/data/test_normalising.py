"""Levels of one's own images: each way to normalise them against its formula."""

import json

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from explainfix.lab.data.dataset import Signature, open_dataset
from explainfix.lab.data.images import read_image
from explainfix.lab.data.preparation import IMAGENET, Preparation
from scans import dicom

LARGEST = 4095  # of 12 bits


@pytest.fixture
def scans(tmp_path):
    """Images of 12 bits in files of 16, in two classes."""
    random = np.random.default_rng(0)
    for kind in ("a", "b"):
        (tmp_path / "scans" / kind).mkdir(parents=True)
        for number in range(8):
            levels = random.integers(0, LARGEST + 1, (16, 16)).astype(np.uint16)
            tifffile.imwrite(tmp_path / "scans" / kind / f"{number}.tif", levels)
    return tmp_path / "scans"


def images_of(data, split="train"):
    return torch.stack([data.prepare(sample).image for sample in data.split(split)])


def test_the_range_of_the_type_is_hardly_used_and_that_is_said(scans):
    data = open_dataset(f"folder:{scans}", grey=True)
    images = images_of(data)
    assert images.max() <= LARGEST / 65535
    name = data.split("train").names[0]
    levels = tifffile.imread(scans / name)
    np.testing.assert_array_equal(images[0, 0], levels.astype(np.float32) / np.float32(65535))
    [note] = data.notes
    assert "use 6.2% of the range" in note
    assert "normalise=percentiles" in note
    assert open_dataset(f"folder:{scans}", normalise="percentiles").notes == ()
    assert open_dataset(f"folder:{scans}", normalise="dataset").notes == ()


def test_images_that_use_their_range_are_no_news(scans):
    for file in scans.rglob("*.tif"):
        levels = tifffile.imread(file)
        Image.fromarray((levels // 16).astype(np.uint8)).save(file.with_suffix(".png"))
        file.unlink()
    assert open_dataset(f"folder:{scans}").notes == ()


def test_percentiles_are_of_each_image(scans):
    data = open_dataset(f"folder:{scans}", grey=True, normalise="percentiles")
    name, image = data.split("train").names[3], images_of(data)[3, 0]
    levels = tifffile.imread(scans / name).astype(float)
    low, high = np.quantile(levels, [0.005, 0.995])
    np.testing.assert_allclose(image, ((levels - low) / (high - low)).clip(0, 1), atol=1e-6)


@pytest.mark.parametrize("grey", [True, False])
def test_the_mean_and_deviation_are_those_of_the_training_images(scans, grey):
    data = open_dataset(f"folder:{scans}", grey=grey, normalise="dataset")
    images, dims = images_of(data).double(), (0, 2, 3)
    ones, close = torch.ones(data.in_channels).double(), {"atol": 1e-5, "rtol": 0}
    torch.testing.assert_close(images.mean(dims), 0 * ones, **close)
    torch.testing.assert_close(images.std(dims, correction=0), ones, **close)
    raw = torch.stack([sample.image for sample in data.split("train")])
    assert data.preparation.mean[0] == pytest.approx(float(raw[:, 0].mean()), rel=1e-5)
    # the same images again have the same, others have not
    again = open_dataset(f"folder:{scans}", grey=grey, normalise="dataset")
    assert again.preparation == data.preparation
    for name in data.split("train").names:
        tifffile.imwrite(scans / name, np.full((16, 16), 7, np.uint16))
    with pytest.raises(ValueError, match=r"normalise=dataset needs images .* not all even"):
        open_dataset(f"folder:{scans}", grey=grey, normalise="dataset")


def test_imagenets_mean_and_deviation(scans):
    data = open_dataset(f"folder:{scans}", normalise="imagenet")
    sample = data.split("val")[0]
    mean, deviation = (torch.tensor(part)[:, None, None] for part in IMAGENET)
    torch.testing.assert_close(data.prepare(sample).image, (sample.image - mean) / deviation)
    grey = open_dataset(f"folder:{scans}", normalise="imagenet", grey=True).preparation
    assert grey.mean == pytest.approx((0.449,), abs=1e-6)


class TestDicom:
    levels = np.arange(16, dtype=np.uint16).reshape(4, 4) * 64

    def test_a_window_or_the_bits_that_are_stored(self, tmp_path):
        file = dicom(tmp_path / "a.dcm", self.levels, WindowCenter=300, WindowWidth=201)
        through = ((self.levels - 299.5) / 200 + 0.5).clip(0, 1)
        for levels in ("file", "window"):
            np.testing.assert_allclose(read_image(file, levels=levels)[0], through, atol=1e-6)
        by_range = read_image(file, levels="range")[0]
        np.testing.assert_allclose(by_range, self.levels / 4095, atol=1e-6)

    def test_without_a_window(self, tmp_path):
        file = dicom(tmp_path / "a.dcm", self.levels)
        np.testing.assert_allclose(read_image(file)[0], self.levels / 4095, atol=1e-6)
        with pytest.raises(ValueError, match="has no window"):
            read_image(file, levels="window")

    def test_white_is_white_however_it_is_normalised(self, tmp_path):
        file = dicom(tmp_path / "a.dcm", self.levels, kind="MONOCHROME1")
        for levels in ("range", "percentiles"):
            image = read_image(file, levels=levels)[0]
            assert image[0, 0] == image.max() > image[3, 3]


def test_floats_of_any_size_have_percentiles(tmp_path):
    values = np.random.default_rng(0).normal(-300, 200, (8, 8)).astype(np.float32)
    tifffile.imwrite(tmp_path / "a.tif", values)
    with pytest.raises(ValueError, match=r"floats are not from 0 to 1.* normalise=percentiles"):
        read_image(tmp_path / "a.tif")
    image = read_image(tmp_path / "a.tif", levels="percentiles")
    assert (image.min(), image.max()) == (0, 1)
    even = np.full((8, 8), -5.0, np.float32)
    tifffile.imwrite(tmp_path / "b.tif", even)
    assert read_image(tmp_path / "b.tif", levels="percentiles").eq(0).all()


def test_a_signature_survives_json(scans):
    data = open_dataset(f"folder:{scans}", normalise="dataset", size=8)
    again = Signature.from_dict(json.loads(json.dumps(data.as_dict())))
    assert again == Signature(task=data.task, classes=data.classes, preparation=data.preparation)
    file = scans / data.split("val").names[0]
    assert torch.equal(again.preparation.read(file), data.split("val")[0].image)


def test_a_preparation_that_cannot_be():
    with pytest.raises(ValueError, match="3 channels need as many means"):
        Preparation(mean=(0.5,), deviation=(0.5,))
    with pytest.raises(ValueError, match="unknown adjust 'shift'"):
        Preparation(adjust="shift")


def test_each_damaged_file_has_its_reason(scans):
    tifffile.imwrite(scans / "a/0.tif", np.full((16, 16), 7.5, np.float32))
    tifffile.imwrite(scans / "a/1.tif", np.zeros((5, 4, 4), np.uint8), photometric="minisblack")
    (scans / "a/2.png").write_text("no picture at all, whatever its name says")
    (scans / "a/3.jpg").write_bytes(b"")
    Image.new("RGB", (64, 64), "red").save(scans / "b/4.png")
    whole = (scans / "b/4.png").read_bytes()
    (scans / "b/4.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="5 pages") as caught:
        open_dataset(f"folder:{scans}")
    for name, reason in (
        ("a/0.tif", "its floats are not from 0 to 1"),
        ("a/1.tif", "it is a stack of 5 pages"),
        ("a/2.png", "it is no image"),
        ("a/3.jpg", "it is empty"),
        ("b/4.png", "it is truncated"),
    ):
        assert f"1 file ('{name}') damaged: {reason}" in str(caught.value)
    good = open_dataset(f"folder:{scans}", skip_damaged=True)
    assert sorted(good.damaged) == ["a/0.tif", "a/1.tif", "a/2.png", "a/3.jpg", "b/4.png"]
    # floats are no damage to who stretches them
    stretched = open_dataset(f"folder:{scans}", skip_damaged=True, normalise="percentiles")
    assert "a/0.tif" not in stretched.damaged
