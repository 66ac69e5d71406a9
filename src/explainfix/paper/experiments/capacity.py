"""capacity: fixed against learned filters as EfficientNet grows from b0 to b5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...lab.run.folder import Run
from ..experiment import Claim, Experiment, Outcome, Verdict, register
from ..figures import COLOURS, LABELS, new_figure, tidy
from ..scores import runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired
from ..xrays import MARGIN, STEERED, Start, finals, train_methods
from ..xrays import notes as shared_notes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

POOR = 0.7  # AUC of a network that has learned little
Scores = dict[str, dict[str, list[float]]]  # by network, from small to large, and method

CLAIMS = (
    Claim(
        "equal",
        "Steered fixed networks do not do worse than learned ones at any capacity.",
        "about equal from b0 to b5",
        "For each network and seed: the mean test AUC of the steered methods less learned. Agrees "
        f"if the 95% t interval of these differences lies above -{MARGIN}, disagrees if it lies "
        f"below -{MARGIN}, else undecided.",
    ),
    Claim(
        "trend",
        "They do not fall behind as the capacity grows.",
        "no falling behind with size",
        "For each steered method and seed: its lead over learned on the largest network less that "
        f"on the smallest. Agrees if the 95% t interval lies above -{MARGIN}, disagrees if it lies "
        f"below -{MARGIN}, else undecided.",
    ),
)


def train(setting: Setting) -> dict[str, Run]:
    """Every method on every network, from scratch."""
    return train_methods(
        setting,
        networks(setting),
        ("learned", *steered(setting)),
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


def steered(setting: Setting) -> tuple[str, ...]:
    """The fixed methods there is time for."""
    return setting.pick(smoke=("ghaar",), cpu=("ghaar",), paper=STEERED)


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare fixed with learned at each size."""
    scores: Scores = {
        start.title: {
            name: finals(runs, start.label(name)) for name in ("learned", *steered(setting))
        }
        for start in networks(setting)
    }
    sizes = {
        start.title: int(runs_of(runs, start.label("learned"))[0].result["parameters"])
        for start in networks(setting)
    }
    return Outcome(
        verdicts=verdicts(scores),
        tables={"Test AUC by network, mean over seeds": table(scores, sizes)},
        figures={
            "Test AUC against parameters: runs (dots) and their means": plot(scores, sizes),
        },
        notes=notes(setting, runs, scores),
    )


def verdicts(scores: Scores) -> dict[str, Verdict]:
    """The two claims, by their rules."""
    fixed = [name for name in next(iter(scores.values())) if name != "learned"]
    ours = [np.mean([row[name] for name in fixed], axis=0) for row in scores.values()]
    equal = compare_paired(
        np.concatenate(ours), np.concatenate([row["learned"] for row in scores.values()])
    )
    small, *_, large = scores.values()

    def leads(row: Mapping[str, list[float]]) -> list[float]:
        return [o - b for name in fixed for o, b in zip(row[name], row["learned"], strict=True)]

    trend = compare_paired(leads(large), leads(small))
    return {
        "equal": Verdict(above(equal.interval, -MARGIN), str(equal)),
        "trend": Verdict(above(trend.interval, -MARGIN), str(trend)),
    }


def table(scores: Scores, sizes: Mapping[str, int]) -> pd.DataFrame:
    """A row per network, a column per method."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"network": title, "parameters": sizes[title], "runs": len(row["learned"])}
            | {LABELS[name]: float(np.mean(values)) for name, values in row.items()}
            for title, row in scores.items()
        ]
    )


def plot(scores: Scores, sizes: Mapping[str, int]) -> Figure:
    """A line per method over the sizes."""
    figure = new_figure(5.5, 3.2)
    axes = figure.subplots()
    x = [sizes[title] / 1e6 for title in scores]
    for name in next(iter(scores.values())):
        values = [scores[title][name] for title in scores]
        axes.plot(x, [np.mean(v) for v in values], color=COLOURS[name], label=LABELS[name])
        for place, dots in zip(x, values, strict=True):
            axes.plot([place] * len(dots), dots, "o", color=COLOURS[name], alpha=0.5, markersize=4)
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{title}\n{size:.1f} M" for title, size in zip(scores, x, strict=True)])
    axes.minorticks_off()
    axes.set_ylabel("test AUC")
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)
    return figure


def notes(setting: Setting, runs: Mapping[str, Run], scores: Scores) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs, usual=False, weights=False)
    best = max(float(np.mean(values)) for row in scores.values() for values in row.values())
    if setting.scale == "cpu":
        said.append("b0 and b2 with GHaar only, two seeds; the paper goes to b5, with 80 epochs.")
        if best < POOR:
            said.append(f"The best mean AUC is {best:.2f}: these networks have learned little yet.")
    said.append("From scratch: the paper does not say, nor which fixed methods it shows.")
    return said


register(
    Experiment(
        name="capacity",
        title="Fixed filters as the network grows",
        reference="Fig. 9, Sec. 4.3",
        needs=("xrays",),
        claims=CLAIMS,
        cost={"smoke": "5 s", "cpu": "about 14 min on 2 cores", "paper": "about 50 GPU-days"},
        train=train,
        judge=judge,
    )
)
