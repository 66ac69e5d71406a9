"""few-images: fixed against learned pretrained filters as the training set shrinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...lab.run.folder import Run
from ..contrast import Measure, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, LABELS, Figure, new_figure, tidy
from ..scores import MARGIN, say_reach
from ..setting import Setting
from ..verdict import difference, signed
from ..xrays import Start, brief, configure, finals, options, seeds, starts
from ..xrays import notes as shared_notes

SHARES = (1.0, 0.5, 0.2, 0.1, 0.05)
METHODS = ("learned", "unchanged")


@dataclass(frozen=True)
class Key:
    """What tells the runs apart: the share of the training images, and the method."""

    share: float
    method: str
    seed: int


AUC = Measure("test AUC", Key)
learned, unchanged = (AUC.mean(method, method=method) for method in METHODS)
lead = unchanged - learned
CLAIMS = (
    Claim(
        "equal",
        "Pretrained filters, fixed, do no worse than learned further, however few the images.",
        "not said",
        (AUC.mean("unchanged", method="unchanged") - learned > -MARGIN).for_every("share"),
        kind="beyond",
    ),
    Claim(
        "grows",
        "The fewer images there are, the more is gained by fixing.",
        "not said",
        (lead.at(share=min) - lead.at(share=max)).exceeds(MARGIN),
        kind="beyond",
    ),
)


def network(setting: Setting) -> Start:
    """A pretrained network, or one from scratch where there are no weights."""
    trained = [brief(setting, start) for start in starts(setting, "pretrained")]
    return [*trained, *starts(setting, "scratch")][0]


def train(setting: Setting) -> dict[Key, Run]:
    """Both methods at every share, with more epochs the fewer images there are."""
    start = network(setting)
    shares = setting.pick(smoke=(1.0, 0.5), cpu=SHARES, paper=SHARES)
    return setting.sweep(
        {
            Key(share, method, seed): configure(
                setting, start, method, seed, **fewer(setting, start, share)
            )
            for share in shares
            for method in METHODS
            for seed in seeds(setting, start, paper=3)
        }
    )


def fewer(setting: Setting, start: Start, share: float) -> dict[str, Any]:
    """The options of runs on a share of the images: epochs grow with the root of 1/share.

    Steps fall with the root of the share; the last epoch alone is scored.
    """
    if share == 1:
        return {}
    usual = (options(setting) | dict(start.options))["epochs"]
    epochs = round(usual / share**0.5)
    return {"train_share": share, "epochs": epochs, "evaluate_every": epochs}


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare at every share."""
    scores = finals(runs)
    return Evidence(
        scores={"AUC": scores},
        tables={"Test AUC by the share of the training images": table(scores, runs)},
        figures={"Test AUC against the share: runs (dots) and their means": plot(scores)},
        notes=notes(setting, runs, scores),
    )


def shares_of(scores: Scores) -> list[float]:
    return list(dict.fromkeys(key.share for key in scores))


def table(scores: Scores, runs: Mapping[Key, Run]) -> Rows:
    """A row per share."""
    rows: Rows = []
    for share in shares_of(scores):
        both = {method: pick(scores, share=share, method=method) for method in METHODS}
        rows.append(
            {
                "images": f"{share:.0%}",
                "epochs": runs[Key(share, "learned", 0)].config.epochs,
                "runs": len(both["learned"]),
                **{LABELS[m]: mean_of(scores, share=share, method=m) for m in METHODS},
                "less learned": signed(difference(both["unchanged"], both["learned"])),
            }
        )
    return rows


def plot(scores: Scores) -> Figure:
    """A line per method."""
    figure = new_figure(5.5, 3.0)
    axes = figure.subplots()
    shares = shares_of(scores)
    for method in METHODS:
        values = [pick(scores, share=share, method=method) for share in shares]
        axes.plot(shares, [np.mean(v) for v in values], color=COLOURS[method], label=LABELS[method])
        for share, dots in zip(shares, values, strict=True):
            axes.plot(
                [share] * len(dots), dots, "o", color=COLOURS[method], alpha=0.4, markersize=4
            )
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{share:.0%}" for share in shares])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    tidy(axes, x="training images", y="test AUC")
    return figure


def notes(setting: Setting, runs: Mapping[Key, Run], scores: Scores) -> list[str]:
    """How it was done."""
    said = shared_notes(setting, runs, usual=False)
    said.append(
        f"On {network(setting).title}. Epochs grow with the root of 1/share. Images are drawn by "
        "the seed, and a smaller share is part of a larger one."
    )
    pairs = {
        f"{share:.0%}": tuple(pick(scores, share=share, method=m) for m in reversed(METHODS))
        for share in shares_of(scores)
    }
    said.append(say_reach({name: (ours, base) for name, (ours, base) in pairs.items()}))
    return said


EXPERIMENT = Experiment(
    name="few-images",
    title="Few images",
    reference="Beyond the paper",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "10 s",
        "cpu": "about 30 min on 2 cores after inference",
        "paper": "about 12 GPU-days",
    },
    train=train,
    judge=judge,
)
