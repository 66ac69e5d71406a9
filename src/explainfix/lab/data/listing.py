"""What is in a folder of images: each with its class or its mask, pictures or volumes, by split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from .archive import Tree, few
from .images import EXTENSIONS
from .reading import divide
from .volumes import NIFTI, find_series

SPLITS = ("train", "val", "test")
LAYOUT = "CLASS/*.png, or images/ and masks/, alone or within train/, val/ and test/"


@dataclass(frozen=True)
class Item:
    """An image with its mask, or with the number of its class; several files are slices."""

    name: str
    files: tuple[str, ...]
    mask: tuple[str, ...] = ()
    label: int = -1

    @property
    def volume(self) -> bool:
        return len(self.files) > 1 or self.name.lower().endswith(NIFTI)


@dataclass(frozen=True)
class Listing:
    """Images by split ("" if they are yet to be divided), the classes, and what has no partner."""

    groups: dict[str, list[Item]]
    classes: tuple[str, ...] = ()
    lone: dict[str, list[str]] = field(default_factory=dict)


def list_images(tree: Tree) -> dict[str, tuple[str, ...]]:
    """The images of a folder in the order of their names, with their files.

    Slices of a DICOM series are one, under the name of the folder they are in.
    """
    series = find_series(tree)
    slices = {file for files in series.values() for file in files}
    single = {name: (name,) for name in tree.names if name.lower().endswith(EXTENSIONS)}
    found = {name: single[name] for name in single if name not in slices} | series
    return dict(sorted(found.items()))


def list_items(tree: Tree) -> Listing:
    """The images of a folder, with a folder for each class or with images/ and masks/."""
    files = list_images(tree)
    names = list(files)
    tops = {name.partition("/")[0] for name in names if "/" in name}
    divided = "train" in tops and tops <= set(SPLITS)
    parts = [(name, PurePosixPath(name).parts[divided:]) for name in names]
    inner = {part[0] for _, part in parts if len(part) > 1}
    split_of = {name: name.partition("/")[0] if divided else "" for name in names}
    groups: dict[str, list[Item]] = defaultdict(list)
    if inner >= {"images", "masks"}:
        masks, images = (
            {
                (split_of[name], _key(str(PurePosixPath(*part[1:])), files[name])): name
                for name, part in parts
                if part[0] == top and len(part) > 1
            }
            for top in ("masks", "images")
        )
        for key, name in images.items():
            if key in masks:
                groups[key[0]].append(Item(name, files[name], mask=files[masks[key]]))
        lone = {
            "without a mask": [images[key] for key in images if key not in masks],
            "without an image": [masks[key] for key in masks if key not in images],
        }
        return Listing(groups, lone=lone)
    classes = tuple(sorted(inner))
    if len(classes) < 2:
        there = few(list(tree.names), "file") if tree.names else "no files"
        raise ValueError(f"{str(tree.path)!r} is not laid out as {LAYOUT}: found {there}")
    for name, part in parts:
        if len(part) > 1:
            groups[split_of[name]].append(Item(name, files[name], label=classes.index(part[0])))
    return Listing(groups, classes)


def stem_of(name: str) -> str:
    """A path without its ending.

    >>> stem_of("images/case1.nii.gz"), stem_of("images/a.b.png"), stem_of("1.2/scan")
    ('images/case1', 'images/a.b', '1.2/scan')
    """
    ending = next((end for end in reversed(NIFTI) if name.lower().endswith(end)), None)
    return name[: -len(ending)] if ending else PurePosixPath(name).with_suffix("").as_posix()


def _key(name: str, files: Sequence[str]) -> str:
    """What an image and its mask have in common; the folder of a series has no ending."""
    return stem_of(name) if len(files) == 1 else name


def divide_items(
    groups: dict[str, list[Item]], val_share: float, test_share: float, seed: int
) -> dict[str, list[Item]]:
    """Every split there is to be: those given, and shares of each class of what was not divided."""
    if "" not in groups and "val" in groups:
        return groups
    whole = groups.pop("", None)
    divided: dict[str, list[Item]] = {"train": [], "val": []}
    by_class: dict[int, list[Item]] = defaultdict(list)
    for item in whole if whole is not None else groups["train"]:
        by_class[item.label].append(item)
    for items in by_class.values():
        rest, test = divide(items, test_share, seed) if whole is not None else (items, [])
        # a share of all, not of the rest
        train, val = divide(rest, val_share * len(items) / len(rest), seed)
        divided["train"] += train
        divided["val"] += val
        if test:
            divided.setdefault("test", []).extend(test)
    given = {"test": groups["test"]} if "test" in groups else {}
    return {split: items for split, items in {**divided, **given}.items() if items}
