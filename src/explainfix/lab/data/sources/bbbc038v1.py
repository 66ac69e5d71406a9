"""bbbc038v1: microscopy images of nuclei with masks (Data Science Bowl 2018), as downloaded.

PATH holds stage1_train and, if there, stage1_test with stage1_solution.csv and stage2_test_final
with stage2_solution_final.csv; folders or zips.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ....registry import datasets
from .. import cache
from ..archive import Tree, check_one_size, few, find_damaged, found_in, report_damaged
from ..augment import Crop, LabelNoise, add_noise, flip, soften_labels
from ..dataset import Augment, Dataset, Images, Listed, Sample
from ..images import read_image, read_mask
from ..preparation import Adjust, Preparation
from ..reading import check_least, check_share, divide, read_table

TABLES = {  # the folder or zip of a split, and the table of its masks if they are not in it
    "stage1_train": None,
    "stage1_test": "stage1_solution.csv",
    "stage2_test_final": "stage2_solution_final.csv",
}


@datasets.register("bbbc038v1")
def bbbc038v1(
    path: str,
    *,
    skip_damaged: bool = False,
    crop: int | None = 256,
    val_share: float = 0.1,
    seed: int = 0,
    normalise: Literal["mean", "robust"] = "mean",
    label_noise: float = 0.0,
    soft_labels: bool = False,
) -> Dataset:
    """Microscopy of nuclei: train and val from stage1_train, test is stage1_test, stage2 too.

    `crop` pixels square are cut from an image to train on. `val_share` of the images, drawn by
    `seed`, are val. `normalise="mean"` moves the mean to 0.5 as in the paper; "robust" stretches
    the contrast and makes nuclei bright. `label_noise` is the share of pixels whose label is
    wrong in training; `soft_labels` gives masks the noise of images, as the authors' code does.
    """
    check_share("val_share", val_share)
    check_share("label_noise", label_noise)
    check_least(0, seed=seed)
    check_least(1, crop=crop)
    parts, problems = _open_parts(path)
    damaged = report_damaged(path, problems, skip=skip_damaged)
    parts["train"], parts["val"] = divide(parts["train"], val_share, seed)
    bad = set(damaged)
    splits: dict[str, Images] = {}
    for split in [name for name in ("train", "val", "test", "stage2") if parts.get(name)]:
        entries = tuple(entry for entry in parts[split] if bad.isdisjoint(entry.where))
        if not entries:
            raise ValueError(
                f"the split {split!r} of {path!r} is empty: all its images are damaged"
            )
        splits[split] = Listed(tuple(e.name for e in entries), partial(_read, entries))
        if split == "train" and crop is None:
            check_one_size([(entry.tree, entry.image) for entry in entries], "crop=")
    adjust: Adjust = "shift_mean" if normalise == "mean" else "stretch_contrast"
    steps: list[Augment] = [flip, add_noise]
    if crop is not None:
        steps.insert(0, Crop(crop))
    if label_noise:
        steps.append(LabelNoise(label_noise))
    if soft_labels:
        steps.append(soften_labels)
    return Dataset(
        name="bbbc038v1",
        task="segmentation",
        classes=("nucleus",),
        preparation=Preparation(adjust=adjust),
        splits=splits,
        steps=tuple(steps),
        damaged=damaged,
    )


@dataclass(frozen=True)
class Entry:
    """One image and its masks, as files or as rows of a table."""

    name: str
    tree: Tree
    image: str
    masks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def where(self) -> list[str]:
        return [f"{self.tree.path.name}/{name}" for name in (self.image, *self.masks)]


def _open_parts(path: str) -> tuple[dict[str, list[Entry]], dict[str, list[str]]]:
    """The entries of each part that is there, and the files with a problem."""
    folder = Path(path)
    if not path or not folder.is_dir():
        raise ValueError(
            "'bbbc038v1' needs the folder that holds stage1_train or stage1_train.zip, as in "
            f"bbbc038v1:FOLDER: {found_in(path)}"
        )
    parts: dict[str, list[Entry]] = {}
    problems: dict[str, list[str]] = defaultdict(list)
    for split, (stem, table) in zip(("train", "test", "stage2"), TABLES.items(), strict=True):
        tree = _find(folder, stem)
        if tree is None:
            continue
        if table is not None and not (folder / table).is_file():
            raise ValueError(f"{str(tree.path)!r} is there but its masks, {table}, are not")
        images, masks = _list_files(tree)
        rows = _read_table(folder / table) if table else {}
        known = set(rows) if table else set(masks)
        place = tree.path.name
        if split != "stage2":  # where the organisers left images out
            lone = [images[name] for name in sorted(set(images) - known)]
            problems["without a mask"] += [f"{place}/{name}" for name in lone]
        problems["without an image"] += [f"{place}/{name}" for name in sorted(known - set(images))]
        parts[split] = [
            Entry(name, tree, images[name], tuple(masks.get(name, ())), tuple(rows.get(name, ())))
            for name in sorted(known & set(images))
        ]
        files = [file for entry in parts[split] for file in (entry.image, *entry.masks)]
        for reason, names in find_damaged(tree, files).items():
            problems[reason] += [f"{place}/{name}" for name in names]
        if not parts[split]:
            raise ValueError(
                f"{str(tree.path)!r} has {few(list(images.values()), 'image')} as ID/images/*.png "
                "and no masks for them"
            )
    if "train" not in parts:
        raise ValueError(f"{path!r} has no stage1_train.zip and no stage1_train/: {found_in(path)}")
    return parts, problems


def _find(folder: Path, stem: str) -> Tree | None:
    candidates = (folder / stem, folder / f"{stem}.zip")
    return next((Tree(path) for path in candidates if path.exists()), None)


def _list_files(tree: Tree) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Images and masks by the name of the image, however deep their folders lie."""
    images: dict[str, str] = {}
    masks: dict[str, list[str]] = defaultdict(list)
    for name in tree.names:
        match name.lower().split("/")[-3:], name.split("/")[-3:]:
            case [_, "images", _], [key, *_]:
                images[key] = name
            case [_, "masks", _], [key, *_]:
                masks[key].append(name)
    return images, masks


def _read_table(path: Path) -> dict[str, list[str]]:
    """Run-length rows by image; those the organisers ignored are left out."""
    table = read_table(path, ("ImageId", "EncodedPixels"))
    if "Usage" in table:
        table = table[table["Usage"] != "Ignored"]
    rows: dict[str, list[str]] = defaultdict(list)
    for name, runs in zip(table["ImageId"], table["EncodedPixels"], strict=True):
        rows[name].append(runs)
    return rows


def _read(entries: Sequence[Entry], index: int) -> Sample:
    entry = entries[index]
    stamp = entry.tree.stamp((entry.image, *entry.masks)) + " ".join(entry.rows)
    levels = cache.remember(entry.tree.full(entry.image), stamp, partial(_decode, entry))
    image = np.divide(levels[:3], np.float32(255), dtype=np.float32)
    return Sample(torch.from_numpy(image), torch.from_numpy(levels[3:].astype(np.float32)))


def _decode(entry: Entry) -> NDArray[np.uint8]:
    """Red, green, blue and the union of the masks `(4, h, w)`, the last of 0 and 1."""
    image = read_image(entry.tree.read(entry.image), entry.image)
    levels = np.empty((4, *image.shape[1:]), dtype=np.uint8)
    levels[:3] = np.rint(image.numpy() * 255)
    levels[3] = decode_runs(" ".join(entry.rows), image.shape[1], image.shape[2])
    for name in entry.masks:
        mask = read_mask(entry.tree.read(name), name)
        if mask.shape != levels.shape[1:]:
            sizes = f"is of {mask.shape[0]}x{mask.shape[1]}, its image of {levels.shape[1:]}"
            raise ValueError(f"the mask {name!r} {sizes}")
        levels[3] |= mask
    return levels


def decode_runs(runs: str, height: int, width: int) -> NDArray[np.bool_]:
    """The mask of a run-length text, "start length start length …": down the columns, from 1.

    >>> decode_runs("2 3", height=3, width=2).astype(int)
    array([[0, 1],
           [1, 0],
           [1, 0]])
    """
    numbers = np.array(runs.split(), dtype=np.int64)
    starts, lengths = numbers[::2] - 1, numbers[1::2]
    steps = np.zeros(height * width + 1, dtype=np.int64)
    if len(starts) != len(lengths) or (starts < 0).any() or (starts + lengths >= len(steps)).any():
        raise ValueError(
            f"a run-length row does not fit an image of {height}x{width}: {runs[:40]!r}"
        )
    np.add.at(steps, starts, 1)
    np.add.at(steps, starts + lengths, -1)
    inside: NDArray[np.bool_] = steps[:-1].cumsum() > 0
    return inside.reshape(width, height).T
