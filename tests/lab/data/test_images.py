import builtins
import io

import numpy as np
import pydicom
import pytest
import tifffile
import torch
from PIL import Image

from explainfix.lab.data.images import (
    check_image,
    image_size,
    read_image,
    read_mask,
    resize,
    to_channels,
)
from scans import dicom

generator = np.random.default_rng(0)
BYTES = generator.integers(0, 256, (6, 5), dtype=np.uint8)
WORDS = generator.integers(0, 65536, (6, 5), dtype=np.uint16)
COLOURS = generator.integers(0, 256, (6, 5, 3), dtype=np.uint8)


class TestPictures:
    @pytest.mark.parametrize(
        ("levels", "expected"),
        [
            (BYTES, BYTES[None] / 255),
            (WORDS, WORDS[None] / 65535),
            (COLOURS, COLOURS.transpose(2, 0, 1) / 255),
            (np.dstack([COLOURS, BYTES]), COLOURS.transpose(2, 0, 1) / 255),
            (np.dstack([BYTES, BYTES]), BYTES[None] / 255),
            (BYTES > 99, (BYTES > 99)[None]),
        ],
        ids=[
            "bytes",
            "16 bits",
            "colour",
            "transparent",
            "grey and transparent",
            "black and white",
        ],
    )
    def test_png(self, tmp_path, levels, expected):
        Image.fromarray(levels).save(tmp_path / "a.png")
        image = read_image(tmp_path / "a.png")
        assert image.dtype == torch.float32
        np.testing.assert_allclose(image, expected, rtol=1e-6)
        check_image(io.BytesIO((tmp_path / "a.png").read_bytes()), "a.png")

    def test_palette(self, tmp_path):
        picture = Image.fromarray(COLOURS).quantize(256)
        picture.save(tmp_path / "a.png")
        expected = np.asarray(picture.convert("RGB")).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(read_image(tmp_path / "a.png"), expected, rtol=1e-6)

    def test_jpeg(self, tmp_path):
        Image.fromarray(COLOURS).save(tmp_path / "a.JPG", quality=95)
        with Image.open(tmp_path / "a.JPG") as picture:
            expected = np.asarray(picture).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(read_image(tmp_path / "a.JPG"), expected, rtol=1e-6)

    def test_masks(self, tmp_path):
        Image.fromarray(BYTES * (BYTES > 99)).save(tmp_path / "a.png")
        file = io.BytesIO((tmp_path / "a.png").read_bytes())
        np.testing.assert_array_equal(read_mask(file, "a.png"), BYTES > 99)
        tifffile.imwrite(tmp_path / "a.tif", WORDS * (WORDS > 99))
        file = io.BytesIO((tmp_path / "a.tif").read_bytes())
        np.testing.assert_array_equal(read_mask(file, "a.tif"), WORDS > 99)


class TestTiff:
    @pytest.mark.parametrize("options", [{}, {"compression": "zlib"}], ids=str)
    @pytest.mark.parametrize("levels", [BYTES, WORDS, COLOURS], ids=["bytes", "words", "colours"])
    def test_levels(self, tmp_path, levels, options):
        kind = "rgb" if levels.ndim == 3 else "minisblack"
        tifffile.imwrite(tmp_path / "a.tif", levels, photometric=kind, **options)
        expected = levels.reshape(6, 5, -1).transpose(2, 0, 1) / np.iinfo(levels.dtype).max
        np.testing.assert_allclose(read_image(tmp_path / "a.tif"), expected, rtol=1e-6)

    def test_as_other_programs_compress(self, tmp_path):
        Image.fromarray(WORDS).save(tmp_path / "a.tif", compression="tiff_lzw")
        np.testing.assert_allclose(read_image(tmp_path / "a.tif")[0], WORDS / 65535, rtol=1e-6)

    def test_white_is_zero(self, tmp_path):
        tifffile.imwrite(tmp_path / "a.tif", BYTES, photometric="miniswhite")
        expected = 1 - BYTES / 255
        np.testing.assert_allclose(read_image(tmp_path / "a.tif")[0], expected, atol=1e-6)

    def test_floats(self, tmp_path):
        tifffile.imwrite(tmp_path / "a.tif", (BYTES / 255).astype(np.float32))
        np.testing.assert_allclose(read_image(tmp_path / "a.tif")[0], BYTES / 255, rtol=1e-6)
        tifffile.imwrite(tmp_path / "b.tif", BYTES.astype(np.float32))
        with pytest.raises(ValueError, match=r"b.tif' cannot be decoded: its floats are not from"):
            read_image(tmp_path / "b.tif")

    def test_pages(self, tmp_path):
        tifffile.imwrite(tmp_path / "a.tif", np.stack([BYTES] * 4), photometric="minisblack")
        with pytest.raises(ValueError, match="it is a stack of 4 pages: save one picture a file"):
            read_image(tmp_path / "a.tif")


class TestDicom:
    def test_bit_depth(self, tmp_path):
        levels = WORDS // 16
        image = read_image(dicom(tmp_path / "a.dcm", levels))
        np.testing.assert_allclose(image[0], levels / 4095, rtol=1e-6)

    def test_monochrome1_is_inverted(self, tmp_path):
        levels = WORDS // 16
        image = read_image(dicom(tmp_path / "a.dcm", levels, kind="MONOCHROME1"))
        np.testing.assert_allclose(image[0], 1 - levels / 4095, atol=1e-6)

    def test_signed(self, tmp_path):
        levels = (WORDS // 16).astype(np.int16) - 2048
        image = read_image(dicom(tmp_path / "a.dcm", levels))
        np.testing.assert_allclose(image[0], (levels + 2048.0) / 4095, rtol=1e-6, atol=1e-7)

    def test_the_window_of_the_file(self, tmp_path):
        levels = WORDS // 16
        scale = {"RescaleSlope": 2, "RescaleIntercept": -1000}
        window = {"WindowCenter": 500, "WindowWidth": 2000}
        path = dicom(tmp_path / "a.dcm", levels, **scale, **window)
        data = pydicom.dcmread(path)
        oracle = pydicom.pixels.apply_voi_lut(levels * 2.0 - 1000, data)
        lowest, highest = -1000, 4095 * 2 - 1000
        expected = (oracle - lowest) / (highest - lowest)
        np.testing.assert_allclose(read_image(path)[0], expected, atol=1e-3)

    def test_colour(self, tmp_path):
        image = read_image(dicom(tmp_path / "a.dcm", COLOURS, kind="RGB", bits=8))
        np.testing.assert_allclose(image, COLOURS.transpose(2, 0, 1) / 255, rtol=1e-6)

    def test_without_pydicom(self, tmp_path, monkeypatch):
        path = dicom(tmp_path / "a.dcm", WORDS // 16)
        found = builtins.__import__

        def missing(name, *args, **kwargs):
            if name == "pydicom":
                raise ModuleNotFoundError(name=name)
            return found(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", missing)
        with pytest.raises(ImportError, match=r"pip install 'explainfix\[dicom\]'"):
            read_image(path)


class TestDamaged:
    @pytest.mark.parametrize("kind", ["png", "jpg", "tif", "dcm"])
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
    def test_cut_short(self, tmp_path, kind, share):
        path = tmp_path / f"a.{kind}"
        levels = generator.integers(0, 256, (60, 50), dtype=np.uint8)
        if kind == "dcm":
            dicom(path, levels, bits=8)
        elif kind == "tif":
            tifffile.imwrite(path, levels)
        else:
            Image.fromarray(levels).save(path)
        whole = path.read_bytes()
        check_image(io.BytesIO(whole), path.name)
        with pytest.raises(ValueError, match=f"'a.{kind}' cannot be decoded: "):
            check_image(io.BytesIO(whole[: int(len(whole) * share)]), path.name)

    def test_a_changed_byte(self, tmp_path):
        Image.fromarray(COLOURS).save(tmp_path / "a.png")
        data = bytearray((tmp_path / "a.png").read_bytes())
        data[len(data) // 2] ^= 1
        with pytest.raises(ValueError, match="cannot be decoded"):
            check_image(io.BytesIO(bytes(data)), "a.png")


def test_sizes(tmp_path):
    Image.fromarray(BYTES).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "a.tif", BYTES)
    for name in ("a.png", "a.tif"):
        assert image_size(io.BytesIO((tmp_path / name).read_bytes()), name) == (6, 5)


def test_channels():
    image = torch.rand(3, 4, 4)
    assert to_channels(image, 3) is image
    grey = to_channels(image, 1)
    assert grey.shape == (1, 4, 4)
    torch.testing.assert_close(to_channels(grey, 3), grey.expand(3, 4, 4))
    white = to_channels(torch.ones(3, 2, 2), 1)
    torch.testing.assert_close(white, torch.ones(1, 2, 2))


def test_resizing_keeps_the_mean():
    image = torch.rand(1, 64, 64)
    small = resize(image, 16)
    assert small.shape == (1, 16, 16)
    assert float(small.mean()) == pytest.approx(float(image.mean()), abs=0.01)
    assert resize(image, 64) is image
