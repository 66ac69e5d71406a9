"""The methods that are compared, and a run's history as scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..lab.run.folder import Run

K = TypeVar("K")
Array = NDArray[np.float64]

UNSTEERED = ("ones", "dct2")
STEERED = ("unchanged", "ghaar", "psine", "guidedsteer")
METHODS = ("learned", *UNSTEERED, *STEERED)
MARGIN = 0.02  # of Dice or AUC: what is nearer is approximately equal
PSINE = (
    "Psine's kernels are centred in their range, as in the authors' code, which leaves them a mean "
    "(7% of the energy); the paper's text has zero mean."
)


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


def part(run: Run, column: str, *, after: float = 0, to: float = inf) -> Array:
    """The scores of the epochs after one and up to another."""
    epochs, values = curve(run, column)
    numbers = np.array(epochs)
    return values[(numbers > after) & (numbers <= to)]


def late_mean(run: Run, column: str) -> float:
    """The mean score over the second half of the epochs, as the paper's 151 to 300."""
    return float(part(run, column, after=run.config.epochs / 2).mean())


def late_means(runs: Mapping[K, Run], column: str) -> dict[K, float]:
    """The same of all runs."""
    return {key: late_mean(run, column) for key, run in runs.items()}
