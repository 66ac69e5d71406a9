"""The rows of numbers of a run, one an epoch: on disk, as events, and when they say to stop."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...extras import needed_for
from .checkpoint import writing
from .config import RunConfig

METRICS = "metrics.csv"


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


def open_events(folder: Path, epoch: int) -> Any:
    """A writer of TensorBoard events that forgets what an interrupted run wrote after `epoch`."""
    with needed_for("a file of events"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder / "events"), purge_step=epoch + 1)


def write_events(events: Any, row: dict[str, float]) -> None:
    """Write a row as TensorBoard events."""
    for name, value in row.items():
        if name != "epoch":
            events.add_scalar(name.replace(" ", "/", 1), value, int(row["epoch"]))
    events.flush()
