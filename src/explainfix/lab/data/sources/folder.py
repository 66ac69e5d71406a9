"""folder: images of your own, in a folder or zip: a folder for each class, or images/ and masks/.

Either may be within train/, val/ and test/; otherwise images are divided at random. PNG, JPEG,
TIFF and DICOM; volumes as NIfTI and DICOM series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ....registry import datasets
from ..archive import Tree, check_one_size, few, find_damaged, report_damaged
from ..augment import Crop, flip, flip_sideways
from ..dataset import Augment, Dataset, Images, Listed, Sample
from ..images import Levels, read_image
from ..listing import SPLITS, Item, divide_items, list_items
from ..masks import Labels, find_labels, read_levels
from ..normalising import Normalise, hardly_used, levels_of, standardise
from ..preparation import Preparation
from ..reading import check_least, check_share


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
    masks: Literal["values", "binary"] = "values",
    ignore: int | None = None,
    val_share: float = 0.15,
    test_share: float = 0.15,
    seed: int = 0,
) -> Dataset:
    """Your own images, for classes or for masks.

    `size` makes every image that many pixels square; `crop` cuts squares out of them to train on,
    cubes out of volumes. `grey` mixes colours to one channel. Levels are divided by the largest
    there can be ("range"), stretched between percentiles of each image, standardised by the mean
    and deviation of the images to train on ("dataset") or of ImageNet, or shown through a DICOM's
    own window; "auto" is that window and else the range, and percentiles for volumes. Each value of
    the masks is a class, but for `ignore`, or with `masks="binary"` all but 0 are one. Without val/
    and test/ folders, shares of each class are drawn by `seed`.
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
    listing = list_items(tree)
    every = [item for items in listing.groups.values() for item in items]
    volumes = _are_volumes(path, every)
    levels = levels_of(normalise, volumes=volumes)
    problems = _find_problems(tree, every, levels, skip_damaged) | listing.lone
    damaged = report_damaged(path, problems, skip=skip_damaged)
    groups = divide_items(listing.groups, val_share, test_share, seed)
    found = _without(damaged, groups, path)
    if size is None and crop is None:
        _need_no_crop(tree, found["train"], volumes=volumes)
    labels = Labels(classes=listing.classes or ("mask",), ignore=ignore)
    if not listing.classes and masks == "values":
        labels = _find_labels(tree, found, ignore)
    channels = _count_channels(tree, found["train"][0]) if volumes else 1 if grey else 3
    window = crop if volumes else None
    preparation = Preparation(channels=channels, size=size, levels=levels, window=window)
    train = {item.name: item.files for item in found["train"]}
    preparation = standardise(preparation, normalise, tree, train)
    splits: dict[str, Images] = {
        split: Listed(
            tuple(item.name for item in items), partial(_read, tree, items, preparation, labels)
        )
        for split, items in found.items()
    }
    steps: list[Augment] = [] if crop is None else [Crop(crop)]
    if flips != "none":
        steps.append(flip if flips == "both" else flip_sideways)
    return Dataset(
        name="folder",
        task="multiclass" if listing.classes else "segmentation",
        classes=labels.classes,
        preparation=preparation,
        splits=splits,
        steps=tuple(steps),
        damaged=damaged,
        notes=tuple(hardly_used(preparation, tree, train)),
    )


def _without(
    damaged: Sequence[str], groups: Mapping[str, Sequence[Item]], path: str
) -> dict[str, tuple[Item, ...]]:
    """The items of each split that are whole; none may be empty."""
    bad, found = set(damaged), {}
    for split in [name for name in SPLITS if name in groups]:
        found[split] = tuple(i for i in groups[split] if bad.isdisjoint((*i.files, *i.mask)))
        if not found[split]:
            raise ValueError(f"the split {split!r} of {path!r} is empty")
    return found


def _need_no_crop(tree: Tree, items: Sequence[Item], *, volumes: bool) -> None:
    """Raise unless images can be trained on as large as they are."""
    if volumes:
        raise ValueError("volumes need crop=, the side of the cubes to train on, or size=")
    check_one_size([(tree, item.name) for item in items], "size= or crop=")


def _count_channels(tree: Tree, volume: Item) -> int:
    return len(read_image([tree.read(file) for file in volume.files], volume.name))


def _find_labels(tree: Tree, found: Mapping[str, Sequence[Item]], ignore: int | None) -> Labels:
    """The classes that the masks to train on have; others must have no more."""
    masks = {split: {i.mask[0]: i.mask for i in items} for split, items in found.items()}
    train = masks.pop("train")
    others = {name: files for part in masks.values() for name, files in part.items()}
    return find_labels(tree, train, others, ignore=ignore)


def _find_problems(
    tree: Tree, items: Sequence[Item], levels: Levels, every: bool
) -> dict[str, list[str]]:
    """What is damaged. Masks may have any levels."""
    files: dict[Levels, list[str]] = defaultdict(list)
    for item in items:
        files[levels] += item.files
        files["percentiles"] += item.mask
    problems: dict[str, list[str]] = defaultdict(list)
    for kind, names in files.items():
        for what, damaged in find_damaged(tree, names, levels=kind, every=every).items():
            problems[what] += damaged
    return dict(problems)


def _are_volumes(path: str, items: Sequence[Item]) -> bool:
    """Whether images are volumes; an error if some are and some are not."""
    volumes = [item.name for item in items if item.volume]
    if volumes and len(volumes) < len(items):
        pictures = [item.name for item in items if not item.volume]
        both = f"{few(volumes, 'volume')} and {few(pictures, 'picture')}"
        raise ValueError(f"{path!r} holds {both}: a network takes one or the other")
    return bool(volumes)


def _read(
    tree: Tree, items: Sequence[Item], preparation: Preparation, labels: Labels, index: int
) -> Sample:
    item = items[index]
    image = preparation.decode([tree.read(file) for file in item.files], item.name)
    if not item.mask:
        return Sample(preparation.fitted(image), torch.tensor(item.label))
    mask = labels.numbers(read_levels(tree, item.mask))
    if mask.shape[1:] != image.shape[1:]:
        sizes = " and ".join("x".join(map(str, part.shape[1:])) for part in (image, mask))
        raise ValueError(f"{item.name!r} and its mask {item.mask[0]!r} differ in size: {sizes}")
    return Sample(preparation.fitted(image), _fitted(mask, preparation, len(labels.classes)))


def _fitted(mask: Tensor, preparation: Preparation, classes: int) -> Tensor:
    """The mask as large as the image is to be, each pixel of the class that covers most of it."""
    if preparation.size is None:
        return mask
    known = ~mask.isnan()
    each = F.one_hot(mask.nan_to_num().long()[0], max(classes, 2)).movedim(-1, 0) * known
    shares = preparation.fitted(torch.cat([each, ~known]).float())
    numbers = shares.argmax(0, keepdim=True).float()
    return numbers.masked_fill(numbers == len(each), torch.nan)
