"""saliency-check: zero the most and the least salient kernels of learned networks, and score."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...explanation import saliency
from ...lab.data.dataset import Dataset
from ...lab.data.loader import evaluation_batches
from ...lab.measure.statistics import Interval, mean_interval
from ...lab.run.evaluation import compute_logits
from ...lab.run.folder import Run, open_data
from ...lab.run.metrics import Outcomes, score
from ...prune import zero_
from .. import xrays
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import COLOURS, new_figure, tidy
from ..setting import Setting
from ..verdicts import above, within

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
End = Literal["most", "least"]
Curves = Mapping[str, Mapping[End, Array]]  # by network: AUC `(runs, shares)`
Batches = list[tuple[Tensor, Tensor]]

SHARES = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
FEW, HALF = SHARES.index(0.03), SHARES.index(0.5)
RANDOM = 0.5  # the AUC of a guess
NEAR = 0.05  # of AUC: what is nearer to a guess is random
MARGIN = 0.02  # of AUC: a smaller loss is none
INK = tuple(COLOURS[name] for name in ("ghaar", "ones", "unchanged", "psine", "dct2", "learned"))

CLAIMS = (
    Claim(
        "most",
        "Zeroing 3% of the kernels, the most salient, makes the output random.",
        "random at less than 3%",
        f"The AUC with 3% of the kernels zeroed, the most salient first, less {RANDOM}, over all "
        f"runs: agrees if the 95% t interval lies within {NEAR} of 0, disagrees if wholly outside, "
        "else undecided.",
    ),
    Claim(
        "least",
        "Zeroing half of the kernels, the least salient, costs nothing in some networks.",
        "no loss at 50% in some",
        "For each network the mean AUC with nothing zeroed less that with half, the least salient "
        f"first: agrees if it is below {MARGIN} for one network at least, disagrees if above "
        f"{2 * MARGIN} for all, else undecided.",
    ),
    Claim(
        "separates",
        "The saliency separates important kernels from unimportant ones.",
        "least > most",
        "For each run the mean AUC over the shares zeroed, least salient first less most salient "
        "first: agrees if the 95% t interval over all runs lies above 0, disagrees if below, else "
        "undecided.",
    ),
)


def train(setting: Setting) -> dict[str, Run]:
    """Learned networks on x-rays, those of classification."""
    begins = xrays.starts(setting, "scratch")
    if setting.scale == "cpu":
        begins += xrays.starts(setting, "pretrained")
    seeds = range(setting.pick(smoke=2, cpu=2, paper=6))
    return xrays.train_methods(setting, begins, ["learned"], seeds)


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Score every run with more and more of its kernels nought."""
    data = open_data(next(iter(runs.values())).config)
    scored = some_images(data, "test", setting.pick(smoke=8, cpu=600, paper=None))
    shown = some_images(data, "val", setting.pick(smoke=8, cpu=128, paper=512), size=4)
    found: dict[str, dict[End, list[list[float]]]] = {}
    for label, run in setting.tracked(list(runs.items()), "Zeroing"):
        model = run.model("best").eval()
        saliences = saliency(model, shown)
        mine = found.setdefault(label.rpartition(" ")[0], {"most": [], "least": []})
        for end, rows in mine.items():
            rows.append(score_zeroed(model, saliences, scored, data, end))
    titles = {
        start.label("learned"): start.title
        for start in (*xrays.starts(setting, "scratch"), *xrays.starts(setting, "pretrained"))
    }
    curves: Curves = {
        titles[label]: {end: np.array(rows) for end, rows in both.items()}
        for label, both in found.items()
    }
    return Outcome(
        verdicts=verdicts(curves),
        tables={"Test AUC with a share of the kernels zeroed, mean over runs": table(curves)},
        figures={
            "Test AUC against the share of kernels zeroed, linear above and logarithmic below: "
            "mean of the runs of each network, from the lowest to the highest": plot(curves)
        },
        notes=notes(setting, runs, sum(len(images) for images, _ in scored)),
    )


def some_images(data: Dataset, split: str, count: int | None, *, size: int = 64) -> Batches:
    """The first images of a split, read once."""
    limit = None if count is None else -(-count // size)
    batches = evaluation_batches(data, split, batch_size=size)
    return [(images, targets) for _, images, targets in islice(batches, limit)]


def score_zeroed(
    model: nn.Module, saliences: Mapping[str, Tensor], batches: Batches, data: Dataset, end: End
) -> list[float]:
    """The AUC with each of `SHARES` of the kernels zeroed, from one end of the saliency."""
    order = saliences if end == "least" else reverse(saliences)
    scores = []
    for share in SHARES:
        zeroed = copy.deepcopy(model)
        if share:
            zero_(zeroed, order, share, allow_dead_layers=True)
        with torch.inference_mode():
            logits = torch.cat([compute_logits(zeroed, images) for images, _ in batches])
        targets = torch.cat([targets for _, targets in batches])
        found = score(Outcomes(data.task, data.classes, logits.float(), targets.float()))
        scores.append(found.scores[0].value)
    return scores


def reverse(saliences: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scores in the opposite order, still above nought."""
    top = max(float(scores.max()) for scores in saliences.values())
    return {path: top - scores for path, scores in saliences.items()}


def verdicts(curves: Curves) -> dict[str, Verdict]:
    """The three claims, by their rules."""
    few = np.concatenate([both["most"][:, FEW] for both in curves.values()])
    random = mean_interval(few - RANDOM)
    loss = {
        name: float((both["least"][:, 0] - both["least"][:, HALF]).mean())
        for name, both in curves.items()
    }
    least: Word = "undecided"
    if min(loss.values()) < MARGIN:
        least = "agrees"
    elif min(loss.values()) > 2 * MARGIN:
        least = "disagrees"
    apart = mean_interval(
        np.concatenate([(both["least"] - both["most"]).mean(1) for both in curves.values()])
    )
    lost = ", ".join(f"{name} {-value:+.3f}" for name, value in loss.items())
    return {
        "most": Verdict(within(random, NEAR), f"AUC {_shifted(random, RANDOM)}"),
        "least": Verdict(least, lost),
        "separates": Verdict(above(apart), f"{_shifted(apart)} of AUC"),
    }


def _shifted(found: Interval, by: float = 0.0) -> str:
    return f"{found.mean + by:.3f} ({found.low + by:.3f} to {found.high + by:.3f})"


def table(curves: Curves) -> pd.DataFrame:
    """A row per network and end."""
    import pandas as pd

    rows = []
    for name, both in curves.items():
        for end, values in both.items():
            cells = {
                f"{100 * share:g}%": float(mean)
                for share, mean in zip(SHARES, values.mean(0), strict=True)
                if share in (0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
            }
            rows.append({"network": name, "first": f"{end} salient", **cells})
    return pd.DataFrame(rows)


def plot(curves: Curves) -> Figure:
    """The most salient first on the left, the least on the right."""
    figure = new_figure(7.0, 5.0)
    grid = figure.subplots(2, 2, sharey=True)
    ends: Sequence[End] = ("most", "least")
    for row, scale in zip(grid, ("linear", "log"), strict=True):
        for axes, end in zip(row, ends, strict=True):
            for colour, (name, both) in zip(INK, curves.items(), strict=False):
                first = 1 if scale == "log" else 0
                x, values = SHARES[first:], both[end][:, first:]
                axes.plot(x, values.mean(0), ".-", color=colour, linewidth=1.5, label=name)
                axes.fill_between(
                    x, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0
                )
            axes.axhline(RANDOM, color="#8a93a3", linestyle="--", linewidth=1)
            axes.set_xscale(scale)
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
            axes.set_xlabel(f"kernels zeroed, {end} salient first")
            tidy(axes)
        row[0].set_ylabel("test AUC")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, ncols=2, loc="outside upper center")
    return figure


def notes(setting: Setting, runs: Mapping[str, Run], images: int) -> list[str]:
    """What differs from the paper."""
    count = len(runs) // len({label.rpartition(" ")[0] for label in runs})
    said = []
    if setting.scale != "paper":
        said.append(
            f"The learned runs of classification, {count} of each network; the paper has 6. "
            f"Scored on {images:,} test images; saliency is over validation images."
        )
    said += xrays.notes(setting, runs)[:-1]
    said.append("A layer may lose all its kernels. BatchNorm keeps the statistics it had.")
    return said


register(
    Experiment(
        name="saliency-check",
        title="Is saliency right about what matters?",
        reference="Fig. I.1, App. I",
        needs=("xrays",),
        claims=CLAIMS,
        cost={
            "smoke": "5 s",
            "cpu": "4 min after classification",
            "paper": "about 5 GPU-days, some of them shared with classification",
        },
        train=train,
        judge=judge,
    )
)
