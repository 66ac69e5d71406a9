"""folder: images of your own, in a folder or zip: a folder for each class, or images/ and masks/.

Either may be within train/, val/ and test/; otherwise images are divided at random. PNG, JPEG,
TIFF and DICOM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

import torch

from ....registry import datasets
from ..archive import Tree, check_one_size, few, find_damaged, report_damaged
from ..augment import Crop, flip, flip_sideways
from ..dataset import Augment, Dataset, Images, Listed, Sample
from ..images import EXTENSIONS, read_mask
from ..normalising import Normalise, hardly_used, levels_of, standardise
from ..preparation import Preparation
from ..reading import check_least, check_share, divide

SPLITS = ("train", "val", "test")
LAYOUT = "CLASS/*.png, or images/ and masks/, alone or within train/, val/ and test/"


@dataclass(frozen=True)
class Item:
    """An image with its mask, or with the number of its class."""

    name: str
    mask: str = ""
    label: int = -1


@datasets.register("folder")
def folder(
    path: str,
    *,
    skip_damaged: bool = False,
    size: int | None = None,
    crop: int | None = None,
    grey: bool = False,
    normalise: Normalise = "auto",
    flips: Literal["sideways", "both", "none"] = "sideways",
    val_share: float = 0.15,
    test_share: float = 0.15,
    seed: int = 0,
) -> Dataset:
    """Your own images, for classes or for masks.

    `size` makes every image that many pixels square; `crop` cuts squares out of them to train on.
    `grey` mixes colours to one channel. Levels are divided by the largest there can be ("range"),
    stretched between percentiles of each image, standardised by the mean and deviation of the
    images to train on ("dataset") or of ImageNet, or shown through a DICOM's own window; "auto" is
    that window and else the range. Without val/ and test/ folders, shares of each class are drawn
    by `seed`.
    """
    check_share("val_share", val_share)
    check_share("test_share", test_share)
    check_least(0, seed=seed)
    check_least(1, size=size, crop=crop)
    if not path or not Path(path).exists():
        raise ValueError(
            f"'folder' needs a folder or zip, as in folder:PATH: {path!r} is not there"
        )
    tree = Tree(Path(path))
    groups, classes, lone = _list_items(tree, path)
    preparation = Preparation(channels=1 if grey else 3, size=size, levels=levels_of(normalise))
    items = [item for group in groups.values() for item in group]
    problems = find_damaged(tree, [item.name for item in items], levels=preparation.levels)
    for reason, masks in find_damaged(tree, [item.mask for item in items if item.mask]).items():
        problems[reason] = problems.get(reason, []) + masks
    problems |= lone
    damaged = report_damaged(path, problems, skip=skip_damaged)
    groups = _divide(groups, val_share, test_share, seed)
    bad = set(damaged)
    splits: dict[str, Images] = {}
    for split in [name for name in SPLITS if name in groups]:
        good = tuple(item for item in groups[split] if bad.isdisjoint((item.name, item.mask)))
        if not good:
            raise ValueError(f"the split {split!r} of {path!r} is empty")
        names = tuple(item.name for item in good)
        splits[split] = Listed(names, partial(_read, tree, good, preparation))
    if size is None and crop is None:
        check_one_size([(tree, name) for name in splits["train"].names], "size= or crop=")
    preparation = standardise(preparation, normalise, tree, splits["train"].names)
    steps: list[Augment] = [] if crop is None else [Crop(crop)]
    if flips != "none":
        steps.append(flip if flips == "both" else flip_sideways)
    return Dataset(
        name="folder",
        task="multiclass" if classes else "segmentation",
        classes=classes or ("mask",),
        preparation=preparation,
        splits=splits,
        steps=tuple(steps),
        damaged=damaged,
        notes=tuple(hardly_used(preparation, tree, splits["train"].names)),
    )


def _list_items(
    tree: Tree, path: str
) -> tuple[dict[str, list[Item]], tuple[str, ...], dict[str, list[str]]]:
    """Images by split ("" if they are yet to be divided), the classes, and what has no partner."""
    images = [name for name in tree.names if name.lower().endswith(EXTENSIONS)]
    tops = {name.partition("/")[0] for name in images if "/" in name}
    divided = "train" in tops and tops <= set(SPLITS)
    parts = [(name, PurePosixPath(name).parts[divided:]) for name in images]
    inner = {part[0] for _, part in parts if len(part) > 1}
    split_of = {name: name.partition("/")[0] if divided else "" for name in images}
    groups: dict[str, list[Item]] = defaultdict(list)
    if inner >= {"images", "masks"}:
        masks = _by_stem(split_of, parts, "masks")
        pictures = _by_stem(split_of, parts, "images")
        for key, name in pictures.items():
            if key in masks:
                groups[key[0]].append(Item(name, mask=masks[key]))
        lone = {
            "without a mask": [pictures[key] for key in pictures if key not in masks],
            "without an image": [masks[key] for key in masks if key not in pictures],
        }
        return groups, (), lone
    classes = tuple(sorted(inner))
    if len(classes) < 2:
        found = few(list(tree.names), "file") if tree.names else "no files"
        raise ValueError(f"{path!r} is not laid out as {LAYOUT}: found {found}")
    for name, part in parts:
        if len(part) > 1:
            groups[split_of[name]].append(Item(name, label=classes.index(part[0])))
    return groups, classes, {}


def _by_stem(
    split_of: dict[str, str], parts: Sequence[tuple[str, tuple[str, ...]]], top: str
) -> dict[tuple[str, str], str]:
    """Files under `top` by their split and their path without ending."""
    return {
        (split_of[name], str(PurePosixPath(*part[1:]).with_suffix(""))): name
        for name, part in parts
        if part[0] == top and len(part) > 1
    }


def _divide(
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


def _read(tree: Tree, items: Sequence[Item], preparation: Preparation, index: int) -> Sample:
    item = items[index]
    image = preparation.decode(tree.read(item.name), item.name)
    if not item.mask:
        return Sample(preparation.fitted(image), torch.tensor(item.label))
    mask = torch.from_numpy(read_mask(tree.read(item.mask), item.mask))[None].float()
    if mask.shape[1:] != image.shape[1:]:
        sizes = " and ".join("x".join(map(str, part.shape[1:])) for part in (image, mask))
        raise ValueError(f"{item.name!r} and its mask {item.mask!r} differ in size: {sizes}")
    return Sample(preparation.fitted(image), (preparation.fitted(mask) > 0.5).float())
