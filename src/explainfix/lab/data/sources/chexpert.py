"""chexpert: chest X-rays with five findings, in the layout of CheXpert-v1.0-small.

PATH is the folder CheXpert-v1.0-small, with train.csv, valid.csv, train/ and valid/.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ....registry import datasets, unknown
from ..archive import Tree, find_damaged, found_in, report_damaged
from ..augment import Crop
from ..dataset import Dataset, Images, Listed, Sample
from ..preparation import Preparation
from ..reading import check_least, check_share, read_table

CLASSES = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
TARGETS = {"": 0.0, "0.0": 0.0, "1.0": 1.0, "-1.0": np.nan}  # missing is negative, U-Ignore
TARGETS |= {text.removesuffix(".0"): value for text, value in TARGETS.items()}
PREPARATION = Preparation(channels=1)


@datasets.register("chexpert")
def chexpert(
    path: str,
    *,
    skip_damaged: bool = False,
    crop: int = 320,
    val_share: float = 0.3,
    seed: int = 138,
    by_patient: bool = False,
    samples_per_epoch: int = 15_000,
) -> Dataset:
    """Chest X-rays with five findings: train and val from train.csv, test is valid.csv.

    Missing labels are negative, uncertain ones not counted. As in the paper the split is one of
    images, by torch's generator with `seed`; a patient may be in both train and val, unless
    `by_patient`. `crop` pixels square are cut from an image to train on.
    """
    check_share("val_share", val_share)
    check_least(1, crop=crop, samples_per_epoch=samples_per_epoch)
    folder = _find(path)
    tree = Tree(folder)
    rows = {name: _read_rows(folder / name) for name in ("train.csv", "valid.csv")}
    everything = [image for part in rows.values() for image, _ in part]
    problems = find_damaged(tree, everything, every=skip_damaged)
    damaged = report_damaged(path, problems, skip=skip_damaged)
    train, val = _divide(rows["train.csv"], val_share, seed, by_patient)
    bad = set(damaged)
    splits: dict[str, Images] = {}
    for split, part in {"train": train, "val": val, "test": rows["valid.csv"]}.items():
        good = [row for row in part if row[0] not in bad]
        if good:
            names = tuple(image for image, _ in good)
            targets = torch.tensor([labels for _, labels in good])
            splits[split] = Listed(names, partial(_read, tree, good), targets)
        elif part or split != "val":
            raise ValueError(f"the split {split!r} of {path!r} is empty")
    return Dataset(
        name="chexpert",
        task="multilabel",
        classes=CLASSES,
        preparation=PREPARATION,
        splits=splits,
        steps=(Crop(crop),),
        samples_per_epoch=samples_per_epoch,
        damaged=damaged,
    )


Row = tuple[str, tuple[float, ...]]


def _find(path: str) -> Path:
    folders = (Path(path), Path(path) / "CheXpert-v1.0-small")
    for folder in folders if path else ():
        if (folder / "train.csv").is_file() and (folder / "valid.csv").is_file():
            return folder
    raise ValueError(
        "'chexpert' needs the folder CheXpert-v1.0-small with train.csv and valid.csv, as in "
        f"chexpert:FOLDER: {found_in(path)}"
    )


def _read_rows(path: Path) -> list[Row]:
    """Images, by their name within the folder, and their five labels."""
    table = read_table(path, ("Path", *CLASSES))
    labels = []
    for task in CLASSES:
        strange = set(table[task].unique()) - set(TARGETS)
        if strange:
            raise unknown(f"label of {task!r} in {path.name}", min(strange), sorted(TARGETS))
        labels.append(table[task].map(TARGETS).tolist())
    # rows begin with the name the folder had when it was published
    images = [name.partition("/")[2] for name in table["Path"].tolist()]
    return list(zip(images, zip(*labels, strict=True), strict=True))


def _divide(
    rows: Sequence[Row], share: float, seed: int, by_patient: bool
) -> tuple[list[Row], list[Row]]:
    """The paper's split: a random permutation by torch, whose first part is for training."""
    keys = [name.split("/")[1] if by_patient else name for name, _ in rows]
    groups = list(dict.fromkeys(keys))
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed)).tolist()
    kept = {groups[place] for place in order[: int((1 - share) * len(groups))]}
    train = [row for row, key in zip(rows, keys, strict=True) if key in kept]
    return train, [row for row, key in zip(rows, keys, strict=True) if key not in kept]


def _read(tree: Tree, rows: Sequence[Row], index: int) -> Sample:
    name, labels = rows[index]
    return Sample(PREPARATION.read(tree.read(name), name), torch.tensor(labels))
