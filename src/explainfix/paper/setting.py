"""Where and how large an experiment is: its scale, its data, its folder, and who does the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from torch import Tensor

from ..lab.data.dataset import Dataset, Task, open_dataset
from ..lab.data.loader import evaluation_batches
from ..lab.run.config import RunConfig
from ..lab.run.folder import Run, find_folder, is_finished
from ..registry import unknown
from .results.ledger import Entry, ledger_name, note_measured, read_measured

if TYPE_CHECKING:
    from ..lab.sweep.sweep import SweepReport, Workers

T = TypeVar("T")
K = TypeVar("K")  # a frozen dataclass that tells one run from another
Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Kind = Literal["microscopy", "xrays"]
Batches = list[tuple[Tensor, Tensor]]
TitledTrack = Callable[[Iterable[T], str], Iterable[T]]


@dataclass(frozen=True)
class Datasets:
    """The datasets of a kind; the last is drawn and needs no files."""

    names: tuple[str, ...]
    task: Task
    advice: str


WORDS: dict[Kind, str] = {"microscopy": "microscopy images", "xrays": "chest x-rays"}
DATASETS: dict[Kind, Datasets] = {
    "microscopy": Datasets(
        ("bbbc038v1", "nuclei"),
        "segmentation",
        "--data bbbc038v1:FOLDER (free, https://bbbc.broadinstitute.org/BBBC038), "
        "or --data nuclei for drawn images",
    ),
    "xrays": Datasets(
        ("chexpert", "nih-cxr14", "xray-like"),
        "multilabel",
        "--data chexpert:FOLDER (https://stanfordmlgroup.github.io/competitions/chexpert), "
        "--data nih-cxr14:FOLDER (https://nihcc.app.box.com/v/ChestXray-NIHCC), "
        "or --data xray-like for drawn images",
    ),
}

# What the datasets are told at each scale. Those of `paper` are the paper's Appendix A.
OPTIONS: dict[Scale, dict[str, dict[str, Any]]] = {
    "smoke": {"nuclei": {"count": 16, "size": 32}, "xray-like": {"count": 32, "size": 32}},
    "cpu": {"bbbc038v1": {"crop": 128}, "chexpert": {"crop": 128, "samples_per_epoch": 2000}},
    "paper": {
        "bbbc038v1": {"crop": 256, "soft_labels": True},  # both are the authors' code's
        "chexpert": {"crop": 320, "val_share": 0.3, "seed": 138, "samples_per_epoch": 15_000},
    },
}
PRECISION: dict[Scale, str] = {"smoke": "32-true", "cpu": "32-true", "paper": "32-true"}


@dataclass(frozen=True)
class Setting:
    """How an experiment is done.

    `given` is the data by kind, as `sort_data` makes it. Runs in `known`, by `ledger_name`, are not
    trained again, unless for their weights. A `dry` setting trains nothing: its sweep returns runs
    that have only a folder and a config.
    """

    scale: Scale
    given: Mapping[Kind, str] = field(default_factory=dict)
    folder: Path = Path("reproduced")
    workers: Workers | None = None
    report: SweepReport | None = None
    track: TitledTrack[Any] | None = None
    known: Mapping[str, Entry] = field(default_factory=dict)
    dry: bool = False

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        if self.scale == "smoke" and self.given:
            raise ValueError("--scale smoke uses drawn images and takes no --data")

    @property
    def runs(self) -> Path:
        """Where the runs of all experiments are: two that need the same run share it."""
        return self.folder / "runs"

    @property
    def precision(self) -> str:
        """Of the arithmetic of all runs; bf16-mixed is faster where the processor has it."""
        return PRECISION[self.scale]

    def pick(self, *, smoke: T, cpu: T, paper: T) -> T:
        """The value for this scale."""
        return {"smoke": smoke, "cpu": cpu, "paper": paper}[self.scale]

    def data(self, kind: Kind) -> str:
        """The dataset of a kind, as `RunConfig.data` takes it."""
        if self.scale == "smoke":
            return DATASETS[kind].names[-1]
        if kind in self.given:
            return self.given[kind]
        if self.dry:
            return DATASETS[kind].names[0]
        raise ValueError(
            f"--scale {self.scale} needs {WORDS[kind]}: {DATASETS[kind].advice}; --scale smoke "
            "needs no data"
        )

    def data_options(self, kind: Kind) -> dict[str, Any]:
        """The options of that dataset at this scale."""
        return dict(OPTIONS[self.scale].get(self.data(kind).partition(":")[0], {}))

    def open_data(self, kind: Kind, **options: Any) -> Dataset:
        """The dataset itself, with `options` over those of the scale."""
        return open_dataset(self.data(kind), **(self.data_options(kind) | options))

    def sweep(
        self,
        configs: Mapping[K, RunConfig],
        *,
        after: Mapping[K, Run] | None = None,
        make: Callable[[Mapping[K, Run]], object] | None = None,
    ) -> dict[K, Run]:
        """The runs of these configs by the same keys, each read, known or done.

        One that is known has no weights: what opens its model asks `with_weights` first. `after`
        has the run that each begins with: of those that are to be done the weights are seen to, or
        what `make` makes of it.
        """
        planned = {key: self._planned(config) for key, config in configs.items()}
        if self.dry:
            return planned
        after = after or {}
        known = {
            key: replace(run, history=entry.history, result=entry.result)
            for key, run in planned.items()
            if (entry := self._entry(run, after.values())) and not is_finished(run.folder)
        }
        (make or self.with_weights)({k: run for k, run in after.items() if k not in known})
        labels = {key: " ".join(map(str, vars(key).values())) for key in configs}
        left = {labels[key]: config for key, config in configs.items() if key not in known}
        done = self._train(left)
        return {key: known.get(key) or done[labels[key]] for key in configs}

    def with_weights(self, runs: Mapping[K, Run]) -> dict[K, Run]:
        """The same runs, their models on disk."""
        if self.dry:
            return dict(runs)
        names = {key: run.folder.name for key, run in runs.items()}
        done = self._train({names[key]: run.config for key, run in runs.items()})
        return {key: done[names[key]] for key in runs}

    def measure(
        self, runs: Mapping[K, Run], name: str, measure: Callable[[K, Run], Any]
    ) -> dict[K, Any]:
        """What is measured of the weights of each run: known, read, or done and kept.

        What is on disk comes first. Others are trained and measured a few at a time, so that what
        is done stays whenever this ends. Another measurement needs another name.
        """
        found: dict[K, Any] = {}
        for key, run in runs.items():
            entry = self._entry(run)
            there = (entry.measured if entry else {}) | read_measured(run.folder)
            if name in there:
                found[key] = there[name]
        left = [key for key in runs if key not in found]
        left.sort(key=lambda key: not is_finished(runs[key].folder))
        few = self.workers.count if self.workers else 1
        for some in self.tracked([left[i : i + few] for i in range(0, len(left), few)], name):
            for key, run in self.with_weights({key: runs[key] for key in some}).items():
                found[key] = measure(key, run)
                note_measured(run.folder, name, found[key])
        return {key: found[key] for key in runs}

    def _entry(self, run: Run, others: Iterable[Run] = ()) -> Entry | None:
        return self.known.get(ledger_name(run.config, others)) if self.known else None

    def _train(self, configs: Mapping[str, RunConfig]) -> dict[str, Run]:
        """The runs of these configs, each done or read; progress shows the labels."""
        if not configs:
            return {}
        from ..lab.sweep.sweep import Workers, sweep

        workers = self.workers or Workers()
        return sweep(configs, runs=self.runs, workers=workers, report=self.report)

    def tracked(self, items: Sequence[T], title: str) -> Iterable[T]:
        """The items, with a progress bar where there is somebody to see it."""
        return items if self.track is None else self.track(items, title)

    def _planned(self, config: RunConfig) -> Run:
        config = config.resolved(DATASETS[kind_of(config.data)].task)
        return Run(find_folder(self.runs, config), config, [], {})


def first_batches(data: Dataset, split: str, count: int | None, *, size: int) -> Batches:
    """The first images of a split with their targets, in so many batches, or all of them."""
    found = evaluation_batches(data, split, batch_size=size)
    return [(images, targets) for _, images, targets in islice(found, count)]


def kind_of(spec: str) -> Kind:
    """What a dataset shows, from its name."""
    name = spec.partition(":")[0]
    for kind, datasets in DATASETS.items():
        if name in datasets.names:
            return kind
    known = [name for datasets in DATASETS.values() for name in datasets.names]
    raise unknown("dataset for the experiments", name, known)


def sort_data(specs: Iterable[str]) -> dict[Kind, str]:
    """Datasets by what they show; one for each kind.

    >>> sort_data(["nih_cxr14:x", "bbbc038v1:y"])
    {'xrays': 'nih-cxr14:x', 'microscopy': 'bbbc038v1:y'}
    """
    found: dict[Kind, str] = {}
    for spec in specs:
        name, colon, path = spec.partition(":")
        spec = name.replace("_", "-") + colon + path
        kind = kind_of(spec)
        if kind in found:
            raise ValueError(f"--data {spec!r} and {found[kind]!r} are both {kind}: give one")
        found[kind] = spec
    return found
