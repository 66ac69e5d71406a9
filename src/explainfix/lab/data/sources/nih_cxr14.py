"""nih-cxr14: chest X-rays of the NIH Clinical Center with up to fourteen findings.

PATH is the folder as downloaded (Data_Entry_2017.csv or Data_Entry_2017_v2020.csv, images*/,
train_val_list.txt, test_list.txt), or a prepared .npz of {train,val,test}_{images,labels,names}
and classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ....registry import datasets, unknown
from .. import cache
from ..archive import Tree, few, find_damaged, found_in, report_damaged
from ..augment import Shift
from ..dataset import Dataset, Images, Listed, Sample
from ..images import resize
from ..preparation import Preparation
from ..reading import check_least, check_share, divide, read_table

CHEXPERT = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Effusion")
OTHERS = (
    "Emphysema",
    "Fibrosis",
    "Hernia",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pleural_Thickening",
    "Pneumonia",
    "Pneumothorax",
)
TABLES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
LISTS = ("train_val_list.txt", "test_list.txt")


@datasets.register("nih-cxr14")
def nih_cxr14(
    path: str,
    *,
    skip_damaged: bool = False,
    classes: Literal["chexpert", "all"] = "chexpert",
    size: int = 320,
    val_share: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Chest X-rays, larger ones reduced to `size` pixels; the five findings of CheXpert, or all 14.

    Test is the official list; val is `val_share` of the patients of the other, drawn by `seed`. A
    prepared file brings its own splits.
    """
    check_share("val_share", val_share)
    check_least(0, seed=seed)
    check_least(1, size=size)
    chosen = CHEXPERT if classes == "chexpert" else tuple(sorted((*CHEXPERT, *OTHERS)))
    prepared = _find_prepared(path)
    preparation = Preparation(channels=1, size=size, enlarge=False)
    damaged: tuple[str, ...] = ()
    if prepared is not None:
        splits = _open_prepared(prepared, chosen, size)
    else:
        splits, damaged = _open_official(path, chosen, preparation, val_share, seed, skip_damaged)
    return Dataset(
        name="nih-cxr14",
        task="multilabel",
        classes=chosen,
        preparation=preparation,
        splits=splits,
        steps=(Shift(1 / 16),),
        damaged=damaged,
    )


def _find_prepared(path: str) -> Path | None:
    """The .npz that PATH is, or the only one in it if it has no official table."""
    folder = Path(path)
    if path.endswith(".npz") and folder.is_file():
        return folder
    if path and folder.is_dir() and not any((folder / table).is_file() for table in TABLES):
        files = sorted(folder.glob("*.npz"))
        if len(files) == 1:
            return files[0]
    return None


def _open_prepared(path: Path, chosen: Sequence[str], size: int) -> dict[str, Images]:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a zip of arrays can be broken in many ways
        raise ValueError(f"{str(path)!r} cannot be read: {' '.join(str(error).split())}") from None
    wanted = [f"{split}_{what}" for split in ("train", "val", "test") for what in _PARTS]
    missing = [name for name in ("classes", *wanted) if name not in arrays]
    if missing:
        raise ValueError(f"{str(path)!r} has no array {missing[0]!r}")
    known = [str(name) for name in arrays["classes"]]
    for name in chosen:
        if name not in known:
            raise ValueError(f"{str(path)!r} has no finding {name!r}: it has {', '.join(known)}")
    columns = [known.index(name) for name in chosen]
    splits: dict[str, Images] = {}
    for split in ("train", "val", "test"):
        images, labels, names = (arrays[f"{split}_{what}"] for what in _PARTS)
        if not len(images) == len(labels) == len(names) > 0:
            counts = f"{len(images)} images, {len(labels)} labels and {len(names)} names"
            raise ValueError(f"the split {split!r} of {str(path)!r} has {counts}")
        targets = labels[:, columns].astype(np.float32)
        read = partial(_read_prepared, images, targets, size)
        splits[split] = Listed(tuple(map(str, names)), read, torch.from_numpy(targets))
    return splits


_PARTS = ("images", "labels", "names")


def _read_prepared(images: NDArray[Any], targets: NDArray[Any], size: int, index: int) -> Sample:
    image = torch.from_numpy(images[index][None].astype(np.float32) / np.float32(255))
    image = image if image.shape[-1] <= size else resize(image, size)
    return Sample(image, torch.from_numpy(targets[index]))


def _open_official(
    path: str,
    chosen: Sequence[str],
    preparation: Preparation,
    val_share: float,
    seed: int,
    skip_damaged: bool,
) -> tuple[dict[str, Images], tuple[str, ...]]:
    folder = Path(path)
    table = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    absent = [name for name in LISTS if not (folder / name).is_file()]
    if not path or table is None or absent:
        raise ValueError(
            f"'nih-cxr14' needs a .npz or a folder with {TABLES[1]}, {LISTS[0]}, {LISTS[1]} and "
            f"images, as in nih-cxr14:PATH: {found_in(path)}"
        )
    labels, patients = _read_labels(table, chosen)
    tree = Tree(folder)
    files = {name.rpartition("/")[2]: name for name in tree.names if name.endswith(".png")}
    listed = {name: (folder / name).read_text().split() for name in LISTS}
    unlabelled = [name for names in listed.values() for name in names if name not in labels]
    if unlabelled:
        raise ValueError(f"{table.name} has no row for {few(unlabelled, 'listed image')}")
    everything = [name for names in listed.values() for name in names]
    missing = [name for name in everything if name not in files]
    known = [files[name] for name in everything if name in files]
    broken = find_damaged(tree, known, every=skip_damaged)
    problems = {"missing": missing, **broken}
    damaged = report_damaged(path, problems, skip=skip_damaged)
    train, val = divide(listed[LISTS[0]], val_share, seed, group=patients.__getitem__)
    bad = set(damaged)
    splits: dict[str, Images] = {}
    for split, names in {"train": train, "val": val, "test": listed[LISTS[1]]}.items():
        good = tuple(name for name in names if name in files and files[name] not in bad)
        if good:
            rows = tuple((files[name], labels[name]) for name in good)
            targets = torch.tensor([marks for _, marks in rows])
            splits[split] = Listed(good, partial(_read, tree, rows, preparation), targets)
        elif names or split != "val":
            raise ValueError(f"the split {split!r} of {path!r} is empty")
    return splits, damaged


def _read_labels(
    path: Path, chosen: Sequence[str]
) -> tuple[dict[str, tuple[float, ...]], dict[str, str]]:
    """The labels and the patient of each image."""
    table = read_table(path, ("Image Index", "Finding Labels", "Patient ID"))
    known = {*CHEXPERT, *OTHERS, "No Finding"}
    labels: dict[str, tuple[float, ...]] = {}
    for name, text in zip(table["Image Index"], table["Finding Labels"], strict=True):
        findings = text.split("|")
        for finding in findings:
            if finding not in known:
                raise unknown(f"finding of {name!r} in {path.name}", finding, sorted(known))
        labels[name] = tuple(float(task in findings) for task in chosen)
    return labels, dict(zip(table["Image Index"], table["Patient ID"], strict=True))


def _read(
    tree: Tree,
    rows: Sequence[tuple[str, tuple[float, ...]]],
    preparation: Preparation,
    index: int,
) -> Sample:
    name, labels = rows[index]

    def decode() -> NDArray[Any]:
        image = preparation.read(tree.read(name), name)
        return image.mul(255).round().byte().numpy()

    levels = cache.remember(f"{tree.full(name)} {preparation.size}", tree.stamp([name]), decode)
    image = np.divide(levels, np.float32(255), dtype=np.float32)
    return Sample(torch.from_numpy(image), torch.tensor(labels))
