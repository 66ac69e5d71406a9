"""The methods that are compared, and the scores of runs: of their history, or measured anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..lab.data.dataset import Dataset
from ..lab.run import metrics
from ..lab.run.evaluation import compute_logits
from ..lab.run.folder import Run
from .setting import Batches

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


LATE = "the second half of the epochs, or the last quarter where the rate falls"


def late_mean(run: Run, column: str) -> float:
    """The mean score over the second half of the epochs, as the paper's 151 to 300.

    Over the last quarter where the rate falls.
    """
    begin = 0.75 if run.config.schedule == "onecycle" else 0.5
    return float(part(run, column, after=begin * run.config.epochs).mean())


def late_means(runs: Mapping[K, Run], column: str) -> dict[K, float]:
    """The same of all runs."""
    return {key: late_mean(run, column) for key, run in runs.items()}


def score_on(model: nn.Module, batches: Batches, data: Dataset) -> float:
    """The score of a network on some batches of a dataset: AUC, on x-rays."""
    with torch.inference_mode():
        logits = torch.cat([compute_logits(model, images) for images, _ in batches])
    targets = torch.cat([targets for _, targets in batches])
    outcomes = metrics.Outcomes(data.task, data.classes, logits.float(), targets.float())
    return metrics.score(outcomes).scores[0].value


def say_reach(pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """How far the intervals of paired differences reach: what these runs can tell.

    >>> say_reach({"GHaar": ([0.8, 0.82, 0.84], [0.8, 0.81, 0.82])}).partition(", which")[0]
    'The deviation s of paired differences is 0.010 (GHaar): with 3 pairs an interval'
    """
    found = {
        name: float(np.std(np.subtract(*pair), ddof=1)) if len(pair[0]) > 1 else np.nan
        for name, pair in pairs.items()
    }
    known = {name: s for name, s in found.items() if np.isfinite(s)}
    if not known:
        return "One pair of runs has no deviation: no interval can be made of it."
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    count = len(pairs[high][0])
    at_least = "" if low == high else f"{known[low]:.3f} ({low}) to "
    return (
        f"The deviation s of paired differences is {at_least}{known[high]:.3f} ({high}): with "
        f"{count} pairs an interval, which reaches t·s/√n to each side, reaches "
        f"{'' if low == high else f'{reach(known[low], count):.3f} to '}"
        f"{reach(known[high], count):.3f}."
    )


def reach(deviation: float, count: int) -> float:
    """Half the width of the 95% t interval of `count` paired differences: t(n-1)·s/√n.

    >>> [round(reach(0.013, n), 3) for n in (3, 5, 6)]
    [0.032, 0.016, 0.014]
    """
    from scipy import stats

    half: float = float(stats.t.ppf(0.975, count - 1)) * deviation / count**0.5
    return half
