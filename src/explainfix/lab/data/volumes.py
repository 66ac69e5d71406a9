"""Volumes from files: NIfTI, and the slices of a DICOM series."""

from __future__ import annotations

import gzip
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...extras import needed_for
from . import cache

if TYPE_CHECKING:
    from torch import Tensor

    from .archive import Tree

NIFTI = (".nii", ".nii.gz")
SLICES = (".dcm", ".dicom")
Array = NDArray[Any]


@dataclass(frozen=True)
class Volume:
    """What a file measures, `(c, d, h, w)`, and where its voxels lie.

    `affine` takes the place `(w, h, d)` of a voxel to millimetres right, forward and up.
    """

    levels: Array
    affine: Array


def read_volume(files: Sequence[io.BytesIO]) -> Volume:
    """The volume in a NIfTI file, or in the slices of a DICOM series in any order."""
    [first, *others] = files
    return _read_series(files) if others or _is_dicom(first) else _read_nifti(first)


def read_affine(files: Sequence[Path]) -> Array:
    """Where the voxels of the volume in these files lie."""
    return read_volume([io.BytesIO(file.read_bytes()) for file in files]).affine


def write_volume(path: Path, values: Tensor, affine: Array) -> None:
    """Write a mask `(d, h, w)`, or `(c, d, h, w)`, on the voxels of a volume, as NIfTI."""
    with needed_for("writing NIfTI"):
        import nibabel
    image = nibabel.Nifti1Image(values.numpy().T, affine)
    image.header.set_xyzt_units("mm")
    data = image.to_bytes()
    # without a name and a time in it: the same mask is the same file
    path.write_bytes(gzip.compress(data, mtime=0))


def find_series(tree: Tree) -> dict[str, tuple[str, ...]]:
    """The slices of each DICOM volume, by the name of the folder they are in.

    Pictures that share a folder and a series, and that have a position, are slices. Where a folder
    holds several series, their numbers follow its name. The answer is kept until a file changes.
    """
    names = [name for name in tree.names if name.lower().endswith(SLICES)]
    if not names:
        return {}
    told = cache.remember_names(
        f"series {tree.path.absolute().as_posix()}",
        tree.stamp(names),
        lambda: [_series(tree.read(name)) for name in names],
    )
    folders: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, series in zip(names, told, strict=True):
        if series != _ALONE:
            folders[name.rpartition("/")[0]][series].append(name)
    volumes: dict[str, tuple[str, ...]] = {}
    for folder, found in folders.items():
        for series, slices in found.items():
            if len(slices) > 1:
                name = folder if len(found) == 1 else f"{folder}/{series}".lstrip("/")
                volumes[name] = tuple(slices)
    return volumes


_ALONE = "-"


def _series(file: io.BytesIO) -> str:
    """The number of the series that a slice is of, or `_ALONE`."""
    with needed_for("reading DICOM"):
        import pydicom
    try:
        head = pydicom.dcmread(file, stop_before_pixels=True)
    except Exception:  # damaged: told when it is looked at as a picture
        return _ALONE
    known = all(hasattr(head, tag) for tag in ("ImagePositionPatient", "ImageOrientationPatient"))
    return str(head.SeriesInstanceUID) if known and hasattr(head, "SeriesInstanceUID") else _ALONE


def _is_dicom(file: io.BytesIO) -> bool:
    return bytes(file.getbuffer()[128:132]) == b"DICM"


def _read_nifti(file: io.BytesIO) -> Volume:
    with needed_for("reading NIfTI"):
        import nibabel
    data = file.getvalue()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    second = data[4:8] == b"n+2\0"
    image = (nibabel.Nifti2Image if second else nibabel.Nifti1Image).from_bytes(data)
    levels = np.asarray(image.dataobj, dtype=np.float32).T  # depth comes first in a network
    if levels.ndim > 4:
        levels = levels.reshape(-1, *levels.shape[-3:])  # vectors: a time of one
    if levels.ndim not in (3, 4):
        raise ValueError(f"it has {levels.ndim} dimensions: a volume has three, or four")
    return Volume(levels if levels.ndim == 4 else levels[None], image.affine)


def _read_series(files: Sequence[io.BytesIO]) -> Volume:
    """Slices in the order of their place; values in the unit of the file, such as Hounsfield's."""
    with needed_for("reading DICOM"):
        import pydicom
    slices = [pydicom.dcmread(file) for file in files]
    across, down = np.array(slices[0].ImageOrientationPatient, dtype=float).reshape(2, 3)
    normal = np.cross(across, down)
    slices.sort(key=lambda one: float(normal @ np.array(one.ImagePositionPatient, dtype=float)))
    sizes = {(one.Rows, one.Columns) for one in slices}
    if len(sizes) > 1:
        raise ValueError(f"its slices are of {len(sizes)} sizes")
    levels = np.stack(
        [
            one.pixel_array * np.float32(one.get("RescaleSlope", 1))
            + np.float32(one.get("RescaleIntercept", 0))
            for one in slices
        ]
    ).astype(np.float32)
    first, last = (
        np.array(slices[end].ImagePositionPatient, dtype=float) for end in (0, len(slices) - 1)
    )
    between_rows, between_columns = (float(x) for x in slices[0].get("PixelSpacing", (1, 1)))
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = across * between_columns, down * between_rows
    affine[:3, 2] = (last - first) / max(len(slices) - 1, 1)
    affine[:3, 3] = first
    affine[:2] *= -1  # DICOM counts to the left and back
    return Volume(levels[None], affine)
