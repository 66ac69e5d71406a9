"""Pictures from files: PNG, JPEG, TIFF, DICOM, of 8 to 16 bits, to numbers from 0 to 1.

Volumes too, which `volumes` reads.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...extras import needed_for
from .volumes import NIFTI, SLICES, read_volume

if TYPE_CHECKING:
    from PIL import Image

EXTENSIONS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *SLICES, *NIFTI)
# A file, or the slices of a DICOM series: by name, or already opened.
Source = str | Path | io.BytesIO | Sequence[Path | io.BytesIO]
Array = NDArray[Any]
# What of a picture becomes 0 and 1: the least and the largest level that its bits allow ("range"),
# its own percentiles 0.5 and 99.5, the window of a DICOM file, or that and else the range ("file").
Levels = Literal["file", "range", "percentiles", "window"]


class Decoded(NamedTuple):
    """The levels as they are in a file, `(h, w)` or `(h, w, c)`, and what it says about them."""

    levels: Array
    largest: int | None  # that the bits allow; `None` for floats and what has none
    least: int = 0
    inverted: bool = False  # the least is white
    windowed: Array | None = None  # from 0 to 1 through the window of the file, if it has one


def read_image(source: Source, name: str = "", *, levels: Levels = "file") -> Tensor:
    """A picture as `(c, h, w)` from 0 to 1: one channel if it is grey, three if not.

    The kind is told by the ending of `source`, or of `name` for bytes; floats must be from 0 to 1
    already, unless `levels` are "percentiles". Transparency is dropped. A volume is `(c, d, h, w)`,
    each channel between its own percentiles.
    """
    given = [source] if isinstance(source, str | Path | io.BytesIO) else list(source)
    name = name or str(given[0])
    files = [
        one if isinstance(one, io.BytesIO) else io.BytesIO(Path(one).read_bytes()) for one in given
    ]
    if len(files) > 1 or name.lower().endswith(NIFTI):
        return _read_volume(files, name, levels)
    [file] = files
    try:
        scaled = _scaled(_decode(file, name), levels)
    except Exception as error:  # decoders raise anything when bytes are wrong
        raise _undecodable(name, file, error) from None
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32))


def to_channels(image: Tensor, channels: int) -> Tensor:
    """Colours mixed to grey as the eye weighs them (ITU-R BT.601), or grey repeated as colour."""
    if len(image) == channels:
        return image
    if len(image) not in (1, 3) or channels not in (1, 3):
        raise ValueError(f"a picture of {len(image)} channels does not become one of {channels}")
    if channels == 3:
        return image.expand(3, *image.shape[1:]).contiguous()
    weights = torch.tensor([0.299, 0.587, 0.114]).view(3, *[1] * (image.dim() - 1))
    return (image * weights).sum(0, keepdim=True)


def resize(image: Tensor, size: int) -> Tensor:
    """The image with `size` pixels along each axis, free of aliases."""
    if all(side == size for side in image.shape[1:]):
        return image
    planes = image.flatten(0, -3)[None]
    reduced = F.interpolate(planes, (size, size), mode="bilinear", antialias=True)
    if image.dim() == 4:  # then the depth, as the height of planes whose width stays
        planes = reduced.view(1, *image.shape[:2], size**2)
        reduced = F.interpolate(planes, (size, size**2), mode="bilinear", antialias=True)
    return reduced.view(len(image), *[size] * (image.dim() - 1)).clamp_(0, 1)


def open_picture(file: io.BytesIO) -> Image.Image:
    """A picture as Pillow opens it."""
    with needed_for("reading images"):
        from PIL import Image
    return Image.open(file)


def read_mask(source: io.BytesIO, name: str) -> NDArray[np.bool_]:
    """Where a picture `(h, w)` is not black."""
    if PurePosixPath(name).suffix.lower() == ".png":
        try:
            with open_picture(source) as picture:
                if picture.mode in ("1", "L", "I;16", "I"):  # nearly all masks: nothing to convert
                    return np.asarray(picture) > 0
        except Exception as error:
            raise _undecodable(name, source, error) from None
        source.seek(0)
    return (read_image(source, name) > 0).any(0).numpy()


def check_image(source: io.BytesIO, name: str, *, levels: Levels = "file") -> None:
    """An error if the picture is damaged, found as cheaply as its format allows.

    PNG has check sums, so nothing need be decoded; JPEG is decoded at an eighth of its size.
    """
    kind = PurePosixPath(name).suffix.lower()
    if kind not in (".png", ".jpg", ".jpeg") or levels == "window":
        read_image(source, name, levels=levels)
        return
    try:
        with open_picture(source) as picture:
            if kind == ".png":
                picture.verify()
            else:
                picture.draft("L", (picture.width // 8, picture.height // 8))
                picture.load()
    except Exception as error:
        raise _undecodable(name, source, error) from None


def image_size(source: io.BytesIO, name: str) -> tuple[int, ...]:
    """Height and width, or depth too, without decoding where the format allows."""
    if PurePosixPath(name).suffix.lower() in (".png", ".jpg", ".jpeg"):
        with open_picture(source) as picture:
            return picture.height, picture.width
    return _decode(source, name).levels.shape[:2]


def _decode(file: io.BytesIO, name: str) -> Decoded:
    """The levels in a file `(h, w, c)`."""
    read = {".tif": _read_tiff, ".tiff": _read_tiff, ".dcm": _read_dicom, ".dicom": _read_dicom}
    found = read.get(PurePosixPath(name).suffix.lower(), _read_picture)(file)
    if found.levels.ndim == 2:
        found = found._replace(levels=found.levels[..., None])
    if found.levels.shape[-1] in (2, 4):  # transparency comes last
        found = found._replace(levels=found.levels[..., :-1])
    return found


class DamagedError(ValueError):
    """A file that cannot be decoded; `reason` says why without its name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name!r} cannot be decoded: {reason}")
        self.reason = reason


def _undecodable(name: str, file: io.BytesIO, error: Exception) -> Exception:
    """What to raise: that a file is damaged, unless the decoder is missing."""
    if isinstance(error, ImportError):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    if not file.getbuffer().nbytes:
        text = "it is empty"
    elif type(error).__name__ == "UnidentifiedImageError":
        text = "it is no image"
    elif "truncated" in text.lower() or isinstance(error, EOFError):
        text = "it is truncated"
    return DamagedError(name, text)


def _read_volume(files: Sequence[io.BytesIO], name: str, levels: Levels) -> Tensor:
    try:
        if levels in ("range", "window"):
            raise ValueError(f"volumes have no normalise={levels}: take percentiles")
        channels = read_volume(files).levels
        scaled = [_stretched(channel, axes=3) for channel in channels]
    except Exception as error:
        raise _undecodable(name, files[0], error) from None
    return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))


def _read_picture(file: io.BytesIO) -> Decoded:
    with open_picture(file) as picture:
        if picture.mode in ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV"):
            return _ranged(np.asarray(picture.convert("RGB")))
        levels = np.asarray(picture)
        if picture.mode == "I":  # 16 bits in a wider number
            return _ranged(levels.astype(np.uint16))
        return _ranged(levels)


def _read_tiff(file: io.BytesIO) -> Decoded:
    with needed_for("reading TIFF"):
        import tifffile
    with tifffile.TiffFile(file) as tiff:
        page = tiff.pages[0]
        if len(tiff.pages) > 1 or not isinstance(page, tifffile.TiffPage):
            raise ValueError(f"it is a stack of {len(tiff.pages)} pages: save one picture a file")
        plain = page.compression in (
            tifffile.COMPRESSION.NONE,
            tifffile.COMPRESSION.ADOBE_DEFLATE,
            tifffile.COMPRESSION.DEFLATE,
        )
        if not plain or page.photometric == tifffile.PHOTOMETRIC.PALETTE:
            file.seek(0)
            return _read_picture(file)  # tifffile would want another package for these
        found = _ranged(page.asarray(), int(page.bitspersample))
        if page.axes == "SYX":
            found = found._replace(levels=found.levels.transpose(1, 2, 0))
        return found._replace(inverted=page.photometric == tifffile.PHOTOMETRIC.MINISWHITE)


def _read_dicom(file: io.BytesIO) -> Decoded:
    """MONOCHROME1, where large is dark, is inverted."""
    with needed_for("reading DICOM"):
        import pydicom
    data = pydicom.dcmread(file)
    levels: Array = data.pixel_array
    if levels.ndim > 2 + (data.SamplesPerPixel > 1):
        raise ValueError(f"it is a stack of {len(levels)} frames: save one picture a file")
    windowed = None
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
        windowed = ((values - (centre - 0.5)) / max(width - 1, 1e-6) + 0.5).clip(0, 1)[..., None]
    least = -(2 ** (data.BitsStored - 1)) if data.PixelRepresentation else 0
    inverted = data.PhotometricInterpretation == "MONOCHROME1"
    return Decoded(levels, least + 2**data.BitsStored - 1, least, inverted, windowed)


def _ranged(levels: Array, bits: int | None = None) -> Decoded:
    """Levels whose type, or number of bits, says how large they can be."""
    if levels.dtype == bool:
        return Decoded(levels, 1)
    unsigned = levels.dtype.kind == "u"
    return Decoded(levels, 2 ** (bits or 8 * levels.dtype.itemsize) - 1 if unsigned else None)


def _scaled(found: Decoded, levels: Levels) -> Array:
    """From 0 to 1, black to white."""
    if levels == "window" and found.windowed is None:
        raise ValueError("it has no window, as some DICOM files do: take another normalise")
    if levels in ("file", "window") and found.windowed is not None:
        scaled = found.windowed
    elif levels == "percentiles":
        scaled = _stretched(found.levels.astype(np.float32))
    else:
        scaled = _by_range(found)
    return 1 - scaled if found.inverted else scaled


def _by_range(found: Decoded) -> Array:
    values, largest = found.levels, found.largest
    mend = "rescale them, or take normalise=percentiles"
    if values.dtype.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):
            raise ValueError(f"its floats are not from 0 to 1: {mend}")
        return values.astype(np.float32)
    if largest is None:
        raise ValueError(f"its levels are {values.dtype}, which have no largest: {mend}")
    scaled = (values.astype(np.float32) - np.float32(found.least)) / np.float32(
        largest - found.least
    )
    return scaled.clip(0, 1)


def _stretched(values: Array, axes: int = 2) -> Array:
    """Percentiles 0.5 and 99.5 at 0 and 1, what is beyond them too; an even picture is black.

    The first `axes` are those of space.
    """
    if not np.isfinite(values).all():
        raise ValueError("it holds NaN or infinite values")
    pixels = math.prod(values.shape[:axes])
    step = max(int((pixels / 250_000) ** (1 / axes)), 1)  # so many are enough
    some = values[(slice(None, None, step),) * axes]
    low, high = np.quantile(some, [0.005, 0.995]).astype(np.float32)
    if high <= low:
        low, high = values.min(), values.max()
    scaled: Array = (values - low) / max(high - low, np.float32(1e-30))
    return scaled.clip(0, 1)
