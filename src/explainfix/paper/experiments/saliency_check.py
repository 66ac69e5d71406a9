"""saliency-check: zero the most and the least salient kernels of learned networks, and score."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ...explanation import saliency
from ...lab.data.dataset import Dataset
from ...lab.measure.statistics import Interval
from ...lab.run.folder import Run, open_data
from ...prune import zero_
from .. import xrays
from ..contrast import ANY, Measure, Scores, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, Figure, new_figure, plot_range, tidy
from ..scores import MARGIN, Array, score_on
from ..setting import Batches, Setting, first_batches
from ..verdict import InWords, Verdict, decide, difference, signed, untested, word_of

# What is zeroed first. In all but the last the first spatial layer stays whole: it has one input
# channel, so that without its most salient kernels nothing of the image is left.
End = Literal["most", "least", "random", "least gradient", "most, first layer too"]
ENDS: tuple[End, ...] = get_args(End)
SAID = {"most": "most salient", "least": "least salient", "random": "at random"}


@dataclass(frozen=True)
class ScoreKey:
    """What tells scores apart: which end of the saliency is zeroed first, and how much."""

    network: str
    seed: int
    end: str
    share: float


SHARES = (0, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
FEW, HALF = 0.03, 0.5
BATCH = 64  # test images
RANDOM = 0.5  # the AUC of a guess
NEAR = 0.05  # of AUC: what is nearer to a guess is random
INK = tuple(COLOURS[name] for name in ("ghaar", "ones", "unchanged", "psine", "dct2", "learned"))


def unsigned(found: Interval) -> str:
    """A score with its interval."""
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def judge_least(scores: Scores) -> Verdict:
    """What half of the kernels, the least salient, cost each network."""
    found = {}
    for network in networks(scores):
        whole, half = (
            pick(scores, network=network, end="least", share=share) for share in (0, HALF)
        )
        if len(whole) > 1:
            found[network] = difference(half, whole)
    if not found:
        return untested("one run of each network, of which no interval can be made")
    words = {word_of(one, -MARGIN) for one in found.values()}
    said = ", ".join(f"{name} {signed(one)}" for name, one in found.items())
    return decide(said, agrees="agrees" in words, disagrees=words == {"disagrees"})


def networks(scores: Scores) -> list[str]:
    """Those that were scored."""
    return list(dict.fromkeys(key.network for key in scores))


AUC = Measure("test AUC", ScoreKey)
few = AUC.mean(
    f"with {FEW:.0%} of the kernels behind the first layer zeroed, the most salient",
    end="most",
    share=FEW,
)
least, random, gradient = (
    AUC.mean(f"the mean over shares zeroed {how}", end=end, share=ANY)
    for end, how in (
        ("least", "from the least salient on"),
        ("random", "at random"),
        ("least gradient", "from the smallest absolute gradient on"),
    )
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
        InWords(
            f"For each network the AUC with {HALF:.0%} of the kernels zeroed, the least salient "
            "first, less that with none, seed by seed: agrees if the 95% t interval lies above "
            f"-{MARGIN} for one network at least, disagrees if it lies below for all, else "
            "undecided.",
            judge_least,
        ),
    ),
    Claim(
        "separates",
        "The saliency separates important kernels from unimportant ones.",
        "least salient > random",
        (least - random).exceeds(MARGIN).for_every("network"),
    ),
    Claim(
        "gradient",
        "The absolute value of the gradients is sufficient.",
        "sufficient",
        (gradient - least > -MARGIN).for_every("network"),
    ),
)


def train(setting: Setting) -> dict[xrays.Key, Run]:
    """Learned networks on x-rays, those of classification."""
    begins = (
        xrays.few_starts(setting) if setting.scale == "cpu" else xrays.starts(setting, "scratch")
    )
    return xrays.train_methods(setting, begins, ["learned"], paper=6)


def judge(setting: Setting, runs: Mapping[xrays.Key, Run]) -> Evidence:
    """Score every run with more and more of its kernels zero."""
    titles = xrays.titles(setting)
    scores = {
        ScoreKey(titles[key.family, key.begin], key.seed, end, share): score
        for key, ends in measure(setting, runs).items()
        for end, curve in ends.items()
        for share, score in zip(SHARES, curve, strict=True)
    }
    return Evidence(
        scores={"AUC": scores},
        tables={"Test AUC with a share of the kernels zeroed, mean over runs": table(scores)},
        figures={
            "Test AUC against the share of kernels zeroed: mean of the runs of each network, from "
            "the lowest to the highest": plot(scores)
        },
        notes=notes(setting, runs),
    )


def measure(
    setting: Setting, runs: Mapping[xrays.Key, Run]
) -> dict[xrays.Key, dict[End, list[float]]]:
    """For each run and end, the AUC with every share zeroed."""
    data = open_data(next(iter(runs.values())).config)
    scored = first_batches(data, "test", scored_batches(setting), size=BATCH)
    shown = first_batches(data, "val", setting.pick(smoke=2, cpu=50, paper=50), size=4)
    return setting.measure(
        runs, EXPERIMENT.name, lambda _, run: zero_more_and_more(run, scored, shown, data)
    )


def scored_batches(setting: Setting) -> int | None:
    """How many batches of test images networks are scored on, if not all."""
    return setting.pick(smoke=1, cpu=10, paper=None)


def zero_more_and_more(
    run: Run, scored: Batches, shown: Batches, data: Dataset
) -> dict[End, list[float]]:
    """For each end, a run's AUC with every share zeroed."""
    model = run.model("best").eval()
    whole = score_on(model, scored, data)
    found = {}
    for end, order in orders(model, shown, run.config.seed).items():
        found[end] = [whole]
        for share in SHARES[1:]:
            zeroed = copy.deepcopy(model)
            zero_(zeroed, order, share, allow_dead_layers=True)
            found[end].append(score_on(zeroed, scored, data))
    return found


def orders(model: nn.Module, batches: Batches, seed: int) -> dict[End, Mapping[str, Tensor]]:
    """For each end, scores of the kernels of which the lowest are zeroed first."""
    everything = saliency(model, batches)
    first, *_ = everything
    behind = {path: scores for path, scores in everything.items() if path != first}
    gradients = saliency(model, batches, kind="gradient")
    generator = torch.Generator().manual_seed(seed)
    return {
        "most": reverse(behind),
        "least": behind,
        "random": {p: torch.rand(s.shape, generator=generator) for p, s in behind.items()},
        "least gradient": {path: gradients[path] for path in behind},
        "most, first layer too": reverse(everything),
    }


def reverse(saliences: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scores in the opposite order, none below zero."""
    top = max(float(scores.max()) for scores in saliences.values())
    return {path: top - scores for path, scores in saliences.items()}


def curves(scores: Scores, network: str, end: str) -> Array:
    """AUC of a network `(runs, shares)`."""
    return np.array([pick(scores, network=network, end=end, share=share) for share in SHARES]).T


def table(scores: Scores) -> Rows:
    """A row per network and end."""
    return [
        {"network": network, "first": SAID.get(end, end)}
        | {
            f"{100 * share:g}%": float(mean)
            for share, mean in zip(SHARES, curves(scores, network, end).mean(0), strict=True)
        }
        for network in networks(scores)
        for end in ENDS
    ]


def plot(scores: Scores) -> Figure:
    """A panel for each of the first three ends."""
    figure = new_figure(7.0, 3.0)
    grid = figure.subplots(1, 3, sharey=True)
    for axes, end in zip(grid, ENDS[:3], strict=True):
        for colour, network in zip(INK, networks(scores), strict=False):
            values = curves(scores, network, end)
            plot_range(axes, SHARES, values, colour, marker=".", linewidth=1.5, label=network)
        axes.axhline(RANDOM, color="#8a93a3", linestyle="--", linewidth=1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        tidy(axes, x="kernels zeroed", y="test AUC", title=SAID[end])
        axes.label_outer()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, ncols=3, loc="outside lower center")
    return figure


def notes(setting: Setting, runs: Mapping[xrays.Key, Run]) -> list[str]:
    """What differs from the paper."""
    said = []
    if batches := scored_batches(setting):
        said.append(
            "The learned runs of classification; the paper has 6 of each network. "
            f"Scored on {batches * BATCH} test images; saliency is over validation images."
        )
    said += xrays.notes(setting, runs)[:-1]
    said.append(
        "The first spatial layer is left whole, but for the last row of each network: it has one "
        "input channel, and without its most salient kernels no network sees anything."
    )
    if setting.scale == "cpu":
        said.append("DenseNet121 and MobileNetV2 from scratch are left out, for time.")
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
        "cpu": "about 20 min after classification",
        "paper": "about 5 GPU-days, some of them shared with classification",
    },
    train=train,
    judge=judge,
    measure=measure,
)
