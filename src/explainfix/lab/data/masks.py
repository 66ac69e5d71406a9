"""Masks in files as class numbers: which values there are, found once, and what they are called."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...extras import needed_for
from . import cache
from .archive import Tree
from .images import open_picture
from .volumes import NIFTI, SLICES, read_volume

Array = NDArray[Any]
NAMES = "classes.txt"
_COLOUR = 1 << 24  # a colour that is no grey is this and its red, green and blue
_MOST = 64  # values that are taken for classes when nobody has named them


@dataclass(frozen=True)
class Labels:
    """The values of masks in the order of their classes, and the names of these.

    One class has two values, or none: all but 0 belong to it.
    """

    values: tuple[int, ...] = ()
    classes: tuple[str, ...] = ("mask",)
    ignore: int | None = None

    def numbers(self, levels: Array) -> Tensor:
        """The class numbers `(1, h, w)` of a mask `(h, w)`, NaN where it is to be ignored.

        >>> Labels((0, 7, 9), ("background", "a", "b"), ignore=255).numbers(np.array([7, 0, 255]))
        tensor([[1., 0., nan]])
        """
        if self.values:
            numbers = np.searchsorted(self.values, levels).astype(np.float32)
        else:
            numbers = (levels != 0).astype(np.float32)
        if self.ignore is not None:
            numbers[levels == self.ignore] = np.nan
        return torch.from_numpy(numbers)[None]


def find_labels(
    tree: Tree,
    train: Mapping[str, Sequence[str]],
    others: Mapping[str, Sequence[str]],
    *,
    ignore: int | None = None,
) -> Labels:
    """The classes of masks, given as names with their files: their values, or those of classes.txt.

    Two values are one class; more are classes that exclude each other, of which 0 is the
    background. A value that no mask to train on has is an error that names the file.
    """
    found = _values(tree, {**train, **others})
    named = _read_names(tree)
    seen = {value for name in train for value in found[name]} - {ignore}
    values = sorted(named or seen)
    if len(values) == 1:
        values = [0, *values] if values[0] else []
    elif len(values) > 2:
        values = sorted({0, *values})
    if len(values) > _MOST and not named:
        raise ValueError(
            f"the masks of {str(tree.path)!r} hold {len(values)} values: if they number objects "
            "of one class, or have smooth edges, give masks=binary; if these are classes, name "
            f"them in {NAMES}, a line for each: VALUE NAME"
        )
    for name, have in found.items():
        if strange := sorted(set(have) - {*values, ignore} - ({0} if not values else set())):
            known = ", ".join(map(_name, values)) or "0"
            where = NAMES if named else "the masks to train on"
            raise ValueError(
                f"{name!r} holds the value {_name(strange[0])}, {where} only {known}: correct it, "
                "or name a value to leave out with ignore="
            )
    names = {value: _name(value) for value in values} | {0: "background"} | named
    if len(values) < 3:
        one = named.get(values[1], "mask") if values else "mask"
        return Labels(tuple(values), (one,), ignore)
    return Labels(tuple(values), tuple(names[value] for value in values), ignore)


def read_levels(tree: Tree, files: Sequence[str]) -> Array:
    """A mask's own values `(h, w)` or `(d, h, w)`: levels, palette indices, or colours.

    JPEG blurs levels: what is brighter than half is 255.
    """
    name = files[0].lower()
    if len(files) > 1 or name.endswith(NIFTI):
        levels: Array = read_volume([tree.read(file) for file in files]).levels[0]
    elif name.endswith(SLICES):
        levels = _read_slice(tree.read(files[0]))
    else:
        levels = _read_picture(tree.read(files[0]))
    if PurePosixPath(name).suffix in (".jpg", ".jpeg"):
        return np.where(levels > 127, 255, 0)
    whole = np.rint(levels).astype(np.int64)
    if levels.dtype.kind == "f" and not (whole == levels).all():
        raise ValueError(f"{files[0]!r} is no mask: its values are not whole numbers")
    return whole


def _read_picture(file: io.BytesIO) -> Array:
    with open_picture(file) as picture:
        levels = np.asarray(picture.convert("L") if picture.format == "JPEG" else picture)
    if levels.ndim == 2:
        return levels
    if levels.shape[2] < 3:  # levels and their transparency
        return levels[..., 0]
    red, green, blue = (levels[..., channel].astype(np.int64) for channel in range(3))
    return _mixed(red, green, blue)


def _mixed(red: Array, green: Array, blue: Array) -> Array:
    """The values of colours; that of a grey is its level."""
    grey = (red == green) & (green == blue)
    mixed: Array = np.where(grey, red, _COLOUR + (red << 16) + (green << 8) + blue)
    return mixed


def _read_slice(file: io.BytesIO) -> Array:
    with needed_for("reading DICOM"):
        import pydicom
    levels: Array = pydicom.dcmread(file).pixel_array
    return levels


def _name(value: int) -> str:
    """A level as it is written, a colour as #rrggbb."""
    return f"#{value - _COLOUR:06x}" if value >= _COLOUR else str(value)


def _values(tree: Tree, masks: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """The values that each mask holds. The answer is kept until a file changes."""

    def find() -> Array:
        pairs = [
            (place, value)
            for place, files in enumerate(masks.values())
            for value in np.unique(read_levels(tree, files)).tolist()
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    files = [file for files in masks.values() for file in files]
    kept = cache.remember(f"masks {tree.path.absolute().as_posix()}", tree.stamp(files), find)
    found: dict[str, list[int]] = {name: [] for name in masks}
    names = list(masks)
    for place, value in kept.tolist():
        found[names[place]].append(value)
    return found


def _read_names(tree: Tree) -> dict[int, str]:
    """The names in classes.txt by their values, or none."""
    if NAMES not in tree.names:
        return {}
    named: dict[int, str] = {}
    for line in tree.read(NAMES).getvalue().decode().splitlines():
        if not line.strip():
            continue
        text, _, name = line.strip().partition(" ")
        try:
            colour = np.frombuffer(bytes.fromhex(text[1:]), np.uint8).astype(np.int64)
            value = int(_mixed(*colour)) if text.startswith("#") else int(text)
        except (ValueError, TypeError):
            value = -1
        if value < 0 or not name.strip() or value in named or name.strip() in named.values():
            raise ValueError(
                f"the line {line!r} of {NAMES} is not VALUE NAME, each once: as in '1 liver', or "
                "'#ff0000 tumour' for a colour"
            )
        named[value] = name.strip()
    return named
