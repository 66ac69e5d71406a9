"""capacity: fixed against learned filters as EfficientNet grows from b0 to b5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...lab.run.folder import Run
from ..contrast import Measure, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, judge_claims
from ..figures import COLOURS, LABELS, Figure, new_figure, tidy
from ..scores import MARGIN, STEERED
from ..setting import Setting
from ..xrays import Key, Start, final, train_methods
from ..xrays import notes as shared_notes

POOR = 0.7  # AUC of a network that has learned little


@dataclass(frozen=True)
class ScoreKey:
    """What tells scores apart."""

    size: int  # parameters
    method: str
    seed: int


AUC = Measure("test AUC", ScoreKey)
learned = AUC.mean("learned", method="learned")
lead = AUC.each("each steered method", method=STEERED) - learned
CLAIMS = (
    Claim(
        "equal",
        "Steered fixed networks do not do worse than learned ones at any capacity.",
        "about equal from b0 to b5",
        AUC.mean("the steered methods", method=STEERED) - learned > -MARGIN,
    ),
    Claim(
        "trend",
        "They do not fall behind as the capacity grows.",
        "no falling behind with size",
        lead.at(size=max) - lead.at(size=min) > -MARGIN,
    ),
)


def train(setting: Setting) -> dict[Key, Run]:
    """Every method on every network, from scratch."""
    return train_methods(
        setting,
        networks(setting),
        methods(setting),
        range(setting.pick(smoke=2, cpu=2, paper=1)),
        epochs=setting.pick(smoke=1, cpu=5, paper=80),
        batch_size=setting.pick(smoke=8, cpu=16, paper=4),  # they need many steps
    )


def networks(setting: Setting) -> list[Start]:
    """From small to large, with random weights."""
    if setting.scale == "smoke":
        return [_start("test_efficientnet", "tiny"), _start("tinynet_e", "tinynet-e")]
    if setting.scale == "cpu":
        return [_start(f"efficientnet_b{size}", f"b{size}") for size in (0, 2)]
    return [_start(f"tf_efficientnet_b{size}", f"b{size}", ".ap_in1k") for size in range(6)]


def _start(name: str, title: str, weights: str = "") -> Start:
    """`weights` is what timm adds to the name for those that GuidedSteer is guided by."""
    guide = f"timm:{name}{weights}" if weights else None
    return Start(name, "scratch", title, {"model": f"timm:{name}"}, guide)


def methods(setting: Setting) -> tuple[str, ...]:
    """Learned, and the fixed methods there is time for."""
    return ("learned", *setting.pick(smoke=("ghaar",), cpu=("ghaar",), paper=STEERED))


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare fixed with learned at each size."""
    titles = {
        int(pick(runs, family=start.family)[0].result["parameters"]): start.title
        for start in networks(setting)
    }
    scores = {
        ScoreKey(int(run.result["parameters"]), key.method, key.seed): final(run)
        for key, run in runs.items()
    }
    means = {
        size: {m: mean_of(scores, size=size, method=m) for m in methods(setting)} for size in titles
    }
    return Evidence(
        verdicts=judge_claims(CLAIMS, scores),
        tables={
            "Test AUC by network, mean over seeds": [
                {
                    "network": title,
                    "parameters": size,
                    "runs": len(pick(scores, size=size, method="learned")),
                    **{LABELS[m]: mean for m, mean in means[size].items()},
                }
                for size, title in titles.items()
            ]
        },
        figures={"Test AUC against parameters: runs (dots) and their means": plot(scores, titles)},
        notes=notes(setting, runs, max(max(row.values()) for row in means.values())),
    )


def plot(scores: Scores, titles: Mapping[int, str]) -> Figure:
    """A line per method over the sizes."""
    figure = new_figure(5.5, 3.2)
    axes = figure.subplots()
    x = [size / 1e6 for size in titles]
    for name in dict.fromkeys(key.method for key in scores):
        values = [pick(scores, size=size, method=name) for size in titles]
        axes.plot(x, [np.mean(v) for v in values], color=COLOURS[name], label=LABELS[name])
        for place, dots in zip(x, values, strict=True):
            axes.plot([place] * len(dots), dots, "o", color=COLOURS[name], alpha=0.5, markersize=4)
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{title}\n{size / 1e6:.1f} M" for size, title in titles.items()])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    tidy(axes, y="test AUC")
    return figure


def notes(setting: Setting, runs: Mapping[Key, Run], best: float) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs, usual=False, weights=False)
    if setting.scale == "cpu":
        said.append("b0 and b2 with GHaar only, two seeds; the paper goes to b5, with 80 epochs.")
        if best < POOR:
            said.append(f"The best mean AUC is {best:.2f}: these networks have learned little yet.")
    said.append("From scratch: the paper does not say, nor which fixed methods it shows.")
    return said


EXPERIMENT = Experiment(
    name="capacity",
    title="Fixed filters as the network grows",
    reference="Fig. 9, Sec. 4.3",
    needs=("xrays",),
    claims=CLAIMS,
    cost={"smoke": "5 s", "cpu": "about 14 min on 2 cores", "paper": "about 50 GPU-days"},
    train=train,
    judge=judge,
)
