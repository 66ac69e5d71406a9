"""What a model scores: Dice, ROC AUC or accuracy, with bootstrap intervals over the images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...extras import needed_for
from ...registry import unknown
from ..data.dataset import Task, as_outputs

if TYPE_CHECKING:
    import pandas as pd

# The score that picks the best epoch: the higher the better.
MAIN_SCORE: dict[Task, str] = {
    "segmentation": "dice",
    "multilabel": "auc",
    "multiclass": "accuracy",
}


@dataclass(frozen=True)
class Outcomes:
    """What metrics need to know of a model's answers, a row per image.

    For masks, pixel counts `(n, classes, 3)`: true positive, predicted, true. For labels, the
    logits `(n, classes)` and the targets, `(n, classes)` for several or `(n,)` for one.
    """

    task: Task
    classes: tuple[str, ...]
    values: Tensor
    targets: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Score:
    """One number and its interval, `None` where none was asked for."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        between = "" if self.low is None else f" ({self.low:.4f} to {self.high:.4f})"
        return f"{self.value:.4f}{between}"


@dataclass(frozen=True)
class Scores:
    """The scores of a model on some images; the first is the one that models are chosen by."""

    scores: tuple[Score, ...]
    images: int
    left_out: tuple[str, ...] = ()  # labels with one class only, which have no ROC curve
    interval: str = "none"

    def __getitem__(self, name: str) -> Score:
        found = {score.name: score for score in self.scores}
        if name not in found:
            raise unknown("score", name, found)
        return found[name]

    def table(self) -> "pd.DataFrame":
        """A row per score."""
        with needed_for("a table"):
            import pandas as pd
        rows = {score.name: (score.value, score.low, score.high) for score in self.scores}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])

    def __repr__(self) -> str:
        images = f"{self.images:,} image{'s' * (self.images != 1)}"
        width = max((len(score.name) for score in self.scores), default=0)
        return "\n".join(
            [f"Scores on {images}; interval: {self.interval}"]
            + [f"{score.name:{width}}  {score}" for score in self.scores]
        )


def count_pixels(logits: Tensor, masks: Tensor) -> Tensor:
    """True positive, predicted and true pixels `(n, classes, 3)` of `(n, classes, h, w)`.

    A pixel is predicted where its logit is above zero, or the largest of several classes; those
    whose mask `(n, 1, h, w)` is NaN do not count.
    """
    classes = logits.shape[1]
    found = logits > 0 if classes == 1 else as_outputs(logits.argmax(1, keepdim=True), classes) > 0
    predicted, true = found & ~masks.isnan(), as_outputs(masks, classes) > 0
    counts = [part.flatten(2).sum(2) for part in (predicted & true, predicted, true)]
    return torch.stack(counts, -1)


def score(
    outcomes: Outcomes,
    *,
    resamples: int = 0,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> Scores:
    """The scores of a model; with `resamples`, percentile bootstrap intervals over the images."""
    n = len(outcomes)
    if n == 0:
        raise ValueError("there is no image to score")
    left_out = single_class_tasks(outcomes)
    compute = _SCORES[outcomes.task]
    names, values = compute(outcomes, torch.ones(1, n, dtype=torch.float64))
    if not resamples:
        pairs = zip(names, values[0].tolist(), strict=True)
        return Scores(tuple(Score(*pair) for pair in pairs), n, left_out)
    _, again = compute(outcomes, _resampled(n, resamples, generator))
    low, high = again.nanquantile(_tails(level), dim=0)
    rows = zip(names, values[0].tolist(), low.tolist(), high.tolist(), strict=True)
    interval = f"{level:.0%} percentile bootstrap over images, {resamples} resamples"
    return Scores(tuple(Score(*row) for row in rows), n, left_out, interval)


def score_difference(
    first: Outcomes,
    second: Outcomes,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> Score:
    """By how much the second model's main score is higher, with the paired bootstrap interval.

    Both have answered for the same images, and every resample draws the same ones of both.
    """
    if (first.task, len(first)) != (second.task, len(second)):
        raise ValueError(
            f"scores are compared on the same images: {len(first)} of {first.task} and "
            f"{len(second)} of {second.task} are not"
        )
    compute, n = _SCORES[first.task], len(first)
    weights = torch.cat([torch.ones(1, n).double(), _resampled(n, resamples, generator)])
    once, again = (compute(outcomes, weights)[1][:, 0] for outcomes in (first, second))
    apart = again - once
    low, high = apart[1:].nanquantile(_tails(level)).tolist()
    return Score(MAIN_SCORE[first.task], float(apart[0]), low, high)


def _resampled(n: int, resamples: int, generator: torch.Generator | None) -> Tensor:
    """How often each of n images is in each resample, `(resamples, n)`."""
    generator = generator or torch.Generator().manual_seed(0)
    drawn = torch.randint(n, (resamples, n), generator=generator)
    weights = torch.zeros(resamples, n, dtype=torch.float64)
    return weights.scatter_add_(1, drawn, torch.ones_like(weights))


def _tails(level: float) -> Tensor:
    return torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)


def single_class_tasks(outcomes: Outcomes) -> tuple[str, ...]:
    """The labels that only occur with one value here."""
    if outcomes.task != "multilabel" or outcomes.targets is None:
        return ()
    both = (outcomes.targets == 1).any(0) & (outcomes.targets == 0).any(0)
    return tuple(name for name, two in zip(outcomes.classes, both.tolist(), strict=True) if not two)


def weighted_auc(scores: Tensor, positive: Tensor, weights: Tensor) -> Tensor:
    """ROC AUC under each row of weights `(resamples, n)`: the share of pairs in order, ties half.

    NaN where the weights leave only one class.

    >>> weights = torch.ones(1, 4, dtype=torch.float64)
    >>> truth = torch.tensor([0, 1, 0, 1])
    >>> weighted_auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), truth, weights)
    tensor([0.8750], dtype=torch.float64)
    """
    _, group = scores.unique(return_inverse=True)  # sorted: equal scores share a number
    sums = torch.zeros(2, len(weights), int(group.max()) + 1, dtype=weights.dtype)
    for out, mine in zip(sums, (positive == 1, positive == 0), strict=True):
        out.index_add_(1, group, weights * mine)
    up, down = sums
    below = down.cumsum(1) - 0.5 * down
    auc: Tensor = (up * below).sum(1) / (up.sum(1) * down.sum(1))
    return auc


def _dice(outcomes: Outcomes, weights: Tensor) -> tuple[Sequence[str], Tensor]:
    """Pooled over the pixels of all images, and the mean over images; then per class, if many.

    Of several classes the first is the background, which is left out. An image without a true or
    predicted pixel has a Dice of 1.
    """
    classes = outcomes.classes[1:] or outcomes.classes
    counts = outcomes.values[:, -len(classes) :].double()

    def dice(part: Tensor) -> Tensor:
        both = part[..., 1] + part[..., 2]
        return torch.where(both > 0, 2 * part[..., 0] / both.clamp(min=1), 1.0)

    pooled = dice(torch.einsum("bn,nck->bck", weights, counts))
    each = weights @ dice(counts) / weights.sum(1, keepdim=True)
    names = ["dice", "dice per image"]
    columns = [pooled.mean(1), each.mean(1)]
    if len(classes) > 1:
        names += [f"dice {name}" for name in classes]
        columns += list(pooled.unbind(1))
    return names, torch.stack(columns, 1)


def _auc(outcomes: Outcomes, weights: Tensor) -> tuple[Sequence[str], Tensor]:
    """The mean over the labels that have both classes, and each of them."""
    assert outcomes.targets is not None
    left_out = single_class_tasks(outcomes)
    names, columns = [], []
    for task, name in enumerate(outcomes.classes):
        if name not in left_out:
            known = ~outcomes.targets[:, task].isnan()
            logits, truth = outcomes.values[known, task], outcomes.targets[known, task]
            columns.append(weighted_auc(logits, truth, weights[:, known]))
            names.append(f"auc {name}")
    if not columns:
        raise ValueError(
            f"no ROC AUC can be computed: each of {', '.join(map(repr, left_out))} has one class "
            "only in these images"
        )
    table = torch.stack(columns, 1)
    return ["auc", *names], torch.cat([table.mean(1, keepdim=True), table], 1)


def _accuracy(outcomes: Outcomes, weights: Tensor) -> tuple[Sequence[str], Tensor]:
    """The share of images whose largest logit is that of their class."""
    assert outcomes.targets is not None
    known = ~outcomes.targets.isnan()
    right = (outcomes.values.argmax(1) == outcomes.targets).double()[known]
    counted = weights[:, known]
    return ["accuracy"], (counted @ right / counted.sum(1)).unsqueeze(1)


_SCORES: dict[Task, Callable[[Outcomes, Tensor], tuple[Sequence[str], Tensor]]] = {
    "segmentation": _dice,
    "multilabel": _auc,
    "multiclass": _accuracy,
}
