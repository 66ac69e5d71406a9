"""What runs scored: curves over epochs, means over the second half, the best run of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..lab.run.folder import Run

Array = NDArray[np.float64]


def curve(run: Run, column: str) -> tuple[list[int], Array]:
    """The epochs that were scored and their scores, such as "test dice"."""
    rows = [row for row in run.history if column in row]
    if not rows:
        known = [name for row in run.history[-1:] for name in row if name != "epoch"]
        raise ValueError(f"{str(run.folder)!r} has no {column!r}: it has {', '.join(known)}")
    return [int(row["epoch"]) for row in rows], np.array([row[column] for row in rows])


def curves(runs: Sequence[Run], column: str) -> tuple[list[int], Array]:
    """The same of several runs `(runs, epochs)`, which were scored at the same epochs."""
    found = [curve(run, column) for run in runs]
    return found[0][0], np.stack([values for _, values in found])


def late_mean(run: Run, column: str) -> float:
    """The mean score over the second half of the epochs, as the paper's 151 to 300."""
    epochs, values = curve(run, column)
    return float(values[np.array(epochs) > run.config.epochs / 2].mean())


def by_method(
    runs: Mapping[str, Run], methods: Sequence[str], column: str
) -> dict[str, list[float]]:
    """Late means by method in the order of the seeds; labels are "METHOD SEED"."""
    return {method: [late_mean(run, column) for run in runs_of(runs, method)] for method in methods}


def runs_of(runs: Mapping[str, Run], method: str) -> list[Run]:
    """The runs labelled "METHOD SEED"."""
    return [run for label, run in runs.items() if label.rpartition(" ")[0] == method]


def best_of(runs: Sequence[Run], column: str) -> int:
    """The place of the run with the highest late mean."""
    return int(np.argmax([late_mean(run, column) for run in runs]))
