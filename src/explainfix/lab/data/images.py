"""Pictures from files: PNG, JPEG, TIFF, DICOM, of 8 to 16 bits, to numbers from 0 to 1."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

EXTENSIONS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".dcm", ".dicom")
Array = NDArray[Any]


def read_image(source: str | Path | io.BytesIO, name: str = "") -> Tensor:
    """A picture as `(c, h, w)` from 0 to 1: one channel if it is grey, three if not.

    The kind is told by the ending of `source`, or of `name` for bytes. Levels are divided by the
    largest that the bit depth allows; floats must be from 0 to 1 already. Transparency is dropped.
    """
    name = name or str(source)
    file = source if isinstance(source, io.BytesIO) else io.BytesIO(Path(source).read_bytes())
    read = {".tif": _read_tiff, ".tiff": _read_tiff, ".dcm": _read_dicom, ".dicom": _read_dicom}
    try:
        levels = read.get(PurePosixPath(name).suffix.lower(), _read_picture)(file)
    except ImportError:
        raise
    except Exception as error:  # decoders raise anything when bytes are wrong
        raise _undecodable(name, error) from None
    if levels.ndim == 2:
        levels = levels[..., None]
    if levels.shape[-1] in (2, 4):  # transparency comes last
        levels = levels[..., :-1]
    return torch.from_numpy(np.ascontiguousarray(levels.transpose(2, 0, 1), dtype=np.float32))


def to_channels(image: Tensor, channels: Literal[1, 3]) -> Tensor:
    """Colours mixed to grey as the eye weighs them (ITU-R BT.601), or grey repeated as colour."""
    if len(image) == channels:
        return image
    if channels == 3:
        return image.expand(3, -1, -1).contiguous()
    return (image * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0, keepdim=True)


def resize(image: Tensor, size: int) -> Tensor:
    """The image at `size` x `size` pixels, free of aliases."""
    if tuple(image.shape[1:]) == (size, size):
        return image
    reduced = F.interpolate(image[None], (size, size), mode="bilinear", antialias=True)
    return reduced[0].clamp_(0, 1)


def read_mask(source: io.BytesIO, name: str) -> NDArray[np.bool_]:
    """Where a picture `(h, w)` is not black."""
    if PurePosixPath(name).suffix.lower() == ".png":
        try:
            with Image.open(source) as picture:
                if picture.mode in ("1", "L", "I;16", "I"):  # nearly all masks: nothing to convert
                    return np.asarray(picture) > 0
        except Exception as error:
            raise _undecodable(name, error) from None
        source.seek(0)
    return (read_image(source, name) > 0).any(0).numpy()


def check_image(source: io.BytesIO, name: str) -> None:
    """An error if the picture is damaged, found as cheaply as its format allows.

    PNG has check sums, so nothing need be decoded; JPEG is decoded at an eighth of its size.
    """
    kind = PurePosixPath(name).suffix.lower()
    if kind not in (".png", ".jpg", ".jpeg"):
        read_image(source, name)
        return
    try:
        with Image.open(source) as picture:
            if kind == ".png":
                picture.verify()
            else:
                picture.draft("L", (picture.width // 8, picture.height // 8))
                picture.load()
    except Exception as error:
        raise _undecodable(name, error) from None


def image_size(source: io.BytesIO, name: str) -> tuple[int, int]:
    """Height and width, without decoding where the format allows."""
    if PurePosixPath(name).suffix.lower() in (".png", ".jpg", ".jpeg"):
        with Image.open(source) as picture:
            return picture.height, picture.width
    _, height, width = read_image(source, name).shape
    return height, width


def _undecodable(name: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(f"{name!r} cannot be decoded: {reason}")


def _read_picture(file: io.BytesIO) -> Array:
    with Image.open(file) as picture:
        if picture.mode in ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV"):
            return _scaled(np.asarray(picture.convert("RGB")))
        levels = np.asarray(picture)
        if picture.mode == "I":  # 16 bits in a wider number
            return _scaled(levels.astype(np.uint16))
        return _scaled(levels)


def _read_tiff(file: io.BytesIO) -> Array:
    import tifffile

    with tifffile.TiffFile(file) as tiff:
        page = tiff.pages[0]
        if len(tiff.pages) > 1 or not isinstance(page, tifffile.TiffPage):
            raise ValueError(f"it has {len(tiff.pages)} pages: save one picture a file")
        plain = page.compression in (
            tifffile.COMPRESSION.NONE,
            tifffile.COMPRESSION.ADOBE_DEFLATE,
            tifffile.COMPRESSION.DEFLATE,
        )
        if not plain or page.photometric == tifffile.PHOTOMETRIC.PALETTE:
            file.seek(0)
            return _read_picture(file)  # tifffile would want another package for these
        levels = _scaled(page.asarray(), int(page.bitspersample))
        if page.axes == "SYX":
            levels = levels.transpose(1, 2, 0)
        return 1 - levels if page.photometric == tifffile.PHOTOMETRIC.MINISWHITE else levels


def _read_dicom(file: io.BytesIO) -> Array:
    """Through the window of the file if it has one; MONOCHROME1, where large is dark, inverted."""
    try:
        import pydicom
    except ImportError:
        raise ImportError("reading DICOM needs pydicom: pip install 'explainfix[dicom]'") from None

    data = pydicom.dcmread(file)
    levels: Array = data.pixel_array
    if levels.ndim > 2 + (data.SamplesPerPixel > 1):
        raise ValueError(f"it has {len(levels)} frames: save one picture a file")
    if "WindowWidth" in data and data.SamplesPerPixel == 1:
        first = pydicom.multival.MultiValue
        centre, width = (
            float(value[0] if isinstance(value, first) else value)
            for value in (data.WindowCenter, data.WindowWidth)
        )
        values = levels * float(data.get("RescaleSlope", 1)) + float(
            data.get("RescaleIntercept", 0)
        )
        # DICOM PS3.3 C.11.2.1.2, where a window of width 1 is a threshold
        scaled = ((values - (centre - 0.5)) / max(width - 1, 1e-6) + 0.5).clip(0, 1)
    else:
        lowest = -(2 ** (data.BitsStored - 1)) if data.PixelRepresentation else 0
        scaled = ((levels.astype(np.float32) - lowest) / (2**data.BitsStored - 1)).clip(0, 1)
    return 1 - scaled if data.PhotometricInterpretation == "MONOCHROME1" else scaled


def _scaled(levels: Array, bits: int | None = None) -> Array:
    """Levels divided by the largest there can be."""
    if levels.dtype == bool:
        return levels.astype(np.float32)
    if levels.dtype.kind == "f":
        if levels.min() < 0 or levels.max() > 1:
            raise ValueError("its floats are not from 0 to 1: rescale them")
        return levels.astype(np.float32)
    if levels.dtype.kind != "u":
        raise ValueError(f"its levels are {levels.dtype}, which have no largest: save it unsigned")
    largest = 2 ** (bits or 8 * levels.dtype.itemsize) - 1
    return levels.astype(np.float32) / np.float32(largest)
