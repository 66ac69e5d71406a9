"""The numbers of a run, epoch by epoch: on disk, as events, and when they say to stop."""

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...watch import Log, Timeline
from .checkpoint import writing
from .config import RunConfig

METRICS, SPECTRA = "metrics.csv", "spectra.json"


def read_history(folder: Path) -> list[dict[str, float]]:
    """The rows of the epochs that a run has had so far."""
    if not (folder / METRICS).is_file():
        return []
    with (folder / METRICS).open(newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def write_metrics(folder: Path, history: Sequence[dict[str, float]]) -> None:
    """Write the rows of all epochs so far."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    with writing(folder / METRICS) as path, path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(history)


def is_stale(evaluations: int, config: RunConfig) -> bool:
    """Whether so many evaluations without a better score end a run."""
    return config.patience is not None and evaluations >= config.patience


def count_stale(history: Sequence[dict[str, float]], column: str) -> int:
    """How many evaluations there were since the one with the best score.

    >>> count_stale([{"val dice": 0.5}, {"val dice": 0.7}, {"loss": 1.0}, {"val dice": 0.7}],
    ...     "val dice")
    1
    """
    scores = [row[column] for row in history if column in row]
    return len(scores) - 1 - scores.index(max(scores)) if scores else 0


def read_spectra(folder: Path) -> Timeline | None:
    """How the spectra of a run moved so far; nothing of a file that cannot be read."""
    with suppress(OSError, ValueError):
        return Timeline.load(folder / SPECTRA)
    return None


def write_spectra(folder: Path, line: Timeline) -> None:
    """Write how the spectra moved so far."""
    with writing(folder / SPECTRA) as path:
        line.save(path, overwrite=True)


def write_events(events: Log, row: dict[str, float]) -> None:
    """Write a row as TensorBoard events."""
    scores = {name.replace(" ", "/", 1): value for name, value in row.items() if name != "epoch"}
    events(scores, int(row["epoch"]))
