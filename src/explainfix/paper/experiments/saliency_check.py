"""saliency-check: zero the most and the least salient kernels of learned networks, and score."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...explanation import saliency
from ...lab.data.dataset import Dataset
from ...lab.measure.statistics import Interval
from ...lab.run import metrics
from ...lab.run.evaluation import compute_logits
from ...lab.run.folder import Run, open_data
from ...prune import zero_
from .. import xrays
from ..contrast import ANY, Measure, Scores, Verdict, decide, pick
from ..experiment import Claim, Evidence, Experiment, Rows, judge_claims
from ..figures import COLOURS, Figure, new_figure, plot_range, tidy
from ..scores import MARGIN, Array
from ..setting import Batches, Setting, first_batches

End = Literal["most", "least"]
ENDS: tuple[End, ...] = ("most", "least")


@dataclass(frozen=True)
class ScoreKey:
    """What tells scores apart: which end of the saliency is zeroed first, and how much."""

    network: str
    seed: int
    end: End
    share: float


SHARES = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
SHOWN = (0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)  # in the table
FEW, HALF = 0.03, 0.5
RANDOM = 0.5  # the AUC of a guess
NEAR = 0.05  # of AUC: what is nearer to a guess is random
INK = tuple(COLOURS[name] for name in ("ghaar", "ones", "unchanged", "psine", "dct2", "learned"))


def unsigned(found: Interval) -> str:
    """A score with its interval."""
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


AUC = Measure("test AUC", ScoreKey)
few = AUC.mean(f"with {FEW:.0%} of the kernels zeroed, the most salient", end="most", share=FEW)
least, most = (
    AUC.mean(f"the mean over shares zeroed from the {end} salient on", end=end, share=ANY)
    for end in ("least", "most")
)
CLAIMS = (
    Claim(
        "most",
        f"Zeroing {FEW:.0%} of the kernels, the most salient, makes the output random.",
        f"random at less than {FEW:.0%}",
        few.within(NEAR, of=RANDOM).said(lambda found: f"AUC {unsigned(found[()])}"),
    ),
    Claim(
        "least",
        "Zeroing half of the kernels, the least salient, costs nothing in some networks.",
        f"no loss at {HALF:.0%} in some",
        f"For each network the mean AUC with nothing zeroed less that with {HALF:.0%}, the least "
        f"salient first: agrees if it is below {MARGIN} for one network at least, disagrees if "
        f"above {2 * MARGIN} for all, else undecided.",
    ),
    Claim(
        "separates",
        "The saliency separates important kernels from unimportant ones.",
        "least > most",
        (least - most > 0).said(lambda found: f"{unsigned(found[()])} of AUC"),
    ),
)


def train(setting: Setting) -> dict[xrays.Key, Run]:
    """Learned networks on x-rays, those of classification."""
    begins = xrays.starts(setting, "scratch")
    if setting.scale == "cpu":
        begins += xrays.starts(setting, "pretrained")
    seeds = range(setting.pick(smoke=2, cpu=2, paper=6))
    return xrays.train_methods(setting, begins, ["learned"], seeds)


def judge(setting: Setting, runs: Mapping[xrays.Key, Run]) -> Evidence:
    """Score every run with more and more of its kernels zero."""
    data = open_data(next(iter(runs.values())).config)
    scored = first_batches(data, "test", setting.pick(smoke=1, cpu=10, paper=None), size=64)
    shown = first_batches(data, "val", setting.pick(smoke=2, cpu=32, paper=128), size=4)
    titles = xrays.titles(setting)
    scores = {}
    for key, run in setting.tracked(list(runs.items()), "Zeroing"):
        model = run.model("best").eval()
        saliences = saliency(model, shown)
        for end in ENDS:
            found = score_zeroed(model, saliences, scored, data, end)
            for share, score in zip(SHARES, found, strict=True):
                scores[ScoreKey(titles[key.family, key.begin], key.seed, end, share)] = score
    return Evidence(
        verdicts=judge_claims(CLAIMS, scores) | {"least": judge_least(scores)},
        tables={"Test AUC with a share of the kernels zeroed, mean over runs": table(scores)},
        figures={
            "Test AUC against the share of kernels zeroed, linear above and logarithmic below: "
            "mean of the runs of each network, from the lowest to the highest": plot(scores)
        },
        notes=notes(setting, runs, sum(len(images) for images, _ in scored)),
    )


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
        found = metrics.score(
            metrics.Outcomes(data.task, data.classes, logits.float(), targets.float())
        )
        scores.append(found.scores[0].value)
    return scores


def reverse(saliences: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scores in the opposite order, none below zero."""
    top = max(float(scores.max()) for scores in saliences.values())
    return {path: top - scores for path, scores in saliences.items()}


def judge_least(scores: Scores) -> Verdict:
    """What half of the kernels, the least salient, cost each network."""
    loss = {}
    for network in networks(scores):
        whole, half = (
            pick(scores, network=network, end="least", share=share) for share in (0, HALF)
        )
        loss[network] = float(np.subtract(whole, half).mean())
    said = ", ".join(f"{name} {-value:+.3f}" for name, value in loss.items())
    smallest = min(loss.values())
    return decide(said, agrees=smallest < MARGIN, disagrees=smallest > 2 * MARGIN)


def networks(scores: Scores) -> list[str]:
    """Those that were scored."""
    return list(dict.fromkeys(key.network for key in scores))


def curves(scores: Scores, network: str, end: End) -> Array:
    """AUC of a network `(runs, shares)`."""
    return np.array([pick(scores, network=network, end=end, share=share) for share in SHARES]).T


def table(scores: Scores) -> Rows:
    """A row per network and end."""
    return [
        {"network": network, "first": f"{end} salient"}
        | {
            f"{100 * share:g}%": float(mean)
            for share, mean in zip(SHARES, curves(scores, network, end).mean(0), strict=True)
            if share in SHOWN
        }
        for network in networks(scores)
        for end in ENDS
    ]


def plot(scores: Scores) -> Figure:
    """The most salient first on the left, the least on the right."""
    figure = new_figure(7.0, 5.0)
    grid = figure.subplots(2, 2, sharey=True)
    for row, spacing in zip(grid, ("linear", "log"), strict=True):
        for axes, end in zip(row, ENDS, strict=True):
            for colour, network in zip(INK, networks(scores), strict=False):
                first = 1 if spacing == "log" else 0
                x, values = SHARES[first:], curves(scores, network, end)[:, first:]
                plot_range(axes, x, values, colour, marker=".", linewidth=1.5, label=network)
            axes.axhline(RANDOM, color="#8a93a3", linestyle="--", linewidth=1)
            axes.set_xscale(spacing)
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
            tidy(axes, x=f"kernels zeroed, {end} salient first", y="test AUC")
        row[1].set_ylabel("")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, ncols=2, loc="outside upper center")
    return figure


def notes(setting: Setting, runs: Mapping[xrays.Key, Run], images: int) -> list[str]:
    """What differs from the paper."""
    count = len({key.seed for key in runs})
    said = []
    if setting.scale != "paper":
        said.append(
            f"The learned runs of classification, {count} of each network; the paper has 6. "
            f"Scored on {images:,} test images; saliency is over validation images."
        )
    said += xrays.notes(setting, runs)[:-1]
    said.append("A layer may lose all its kernels. BatchNorm keeps the statistics it had.")
    return said


EXPERIMENT = Experiment(
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
