"""winning-ticket: pretrained filters, fixed, against the same learned further and random ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...lab.run.folder import Run
from ..contrast import ANY, Measure, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, Figure, new_figure, plot_range, tidy
from ..scores import MARGIN, Array, curve, curves
from ..setting import Setting
from ..xrays import MANY_SEEDS, Key, Start, brief, final, starts, train_methods
from ..xrays import notes as shared_notes

TITLES = {  # by what is learned or fixed
    "learned": "Learned, pretrained",
    "unchanged": "Unchanged, pretrained",
    "random": "Unchanged, random",
}
INK = {"learned": COLOURS["learned"], "unchanged": COLOURS["unchanged"], "random": COLOURS["dct2"]}


@dataclass(frozen=True)
class EndKey:
    """What tells the last scores apart."""

    filters: str
    seed: int


@dataclass(frozen=True)
class ScoreKey:
    """What tells scores apart."""

    filters: str
    seed: int
    epoch: int


AUC = Measure("validation AUC over all epochs", ScoreKey)
learned, unchanged = (AUC.mean(n, filters=n, epoch=ANY) for n in ("learned", "unchanged"))
END = Measure("test AUC at the end", EndKey)
ended, random = (END.mean(name, filters=name) for name in ("learned", "random"))
at_epoch = Measure("validation AUC", ScoreKey)
lead = at_epoch.mean("unchanged", filters="unchanged") - at_epoch.mean("learned", filters="learned")
CLAIMS = (
    Claim(
        "ticket",
        "Pretrained filters, fixed as they are, do better than when they are learned further.",
        "Unchanged > learned, ResNet50 pretrained",
        (unchanged - learned).exceeds(MARGIN),
        on="by epoch",
    ),
    Claim(
        "always",
        "They do so at every epoch.",
        "consistently for all epochs",
        lead.exceeds(MARGIN).for_every("epoch"),
        on="by epoch",
    ),
    Claim(
        "random",
        "Random filters, fixed as they are, do worse than the pretrained learned baseline.",
        "random Unchanged < learned",
        (ended - random).exceeds(MARGIN).in_full(),
        on="at the end",
    ),
)


def train(setting: Setting) -> dict[Key, Run]:
    """Three ways to begin, where there are weights trained on ImageNet; else random ones only."""
    random, trained = networks(setting)
    runs = train_methods(setting, [random], ["unchanged"], paper=6)
    if trained:
        runs |= train_methods(setting, [trained], ["learned", "unchanged"], paper=6)
    return runs


def networks(setting: Setting) -> tuple[Start, Start | None]:
    """The first network that is trained both from random weights and from ImageNet's."""
    random = {start.family: start for start in starts(setting, "scratch")}
    trained = [start for start in starts(setting, "pretrained") if start.family in random]
    if not trained:
        return random["resnet"], None
    short = brief(setting, trained[0], MANY_SEEDS)
    return replace(random[short.family], seeds=short.seeds), short


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare validation AUC epoch by epoch."""
    trained = networks(setting)[1]
    groups = {"random": pick(runs, begin="scratch")}
    if trained is None:
        return Evidence(
            scores={"by epoch": {}, "at the end": {}},
            untested={claim.key: "no ImageNet weights are at hand" for claim in CLAIMS},
            tables={"What was trained": summary(groups)},
            notes=notes(setting, runs),
        )
    mine = {m: pick(runs, begin="pretrained", method=m) for m in ("learned", "unchanged")}
    groups = mine | groups
    scores = {
        ScoreKey(filters, run.config.seed, epoch): float(score)
        for filters, group in groups.items()
        for run in group
        for epoch, score in zip(*curve(run, "val auc"), strict=True)
    }
    return Evidence(
        scores={
            "by epoch": scores,
            "at the end": {
                EndKey(filters, run.config.seed): final(run)
                for filters, group in groups.items()
                for run in group
            },
        },
        tables={"AUC by epoch and at the end": summary(groups)},
        figures={
            f"Validation AUC at each epoch, mean and range over seeds, {trained.title}": plot(
                {filters: curves(group, "val auc") for filters, group in groups.items()}
            )
        },
        notes=notes(setting, runs),
    )


def summary(groups: Mapping[str, list[Run]]) -> Rows:
    """A row for each kind of filters."""
    return [
        {
            "filters": TITLES[filters],
            "network": runs[0].config.model,
            "runs": len(runs),
            "val AUC, all epochs": float(curves(runs, "val auc")[1].mean()),
            "val AUC, last": float(np.mean([final(run, "val auc") for run in runs])),
            "test AUC, last": float(np.mean([final(run) for run in runs])),
        }
        for filters, runs in groups.items()
    ]


def plot(found: Mapping[str, tuple[list[int], Array]]) -> Figure:
    """A line for each kind of filters."""
    figure = new_figure(5.5, 3.2)
    axes = figure.subplots()
    for key, (epochs, scores) in found.items():
        plot_range(axes, epochs, scores, INK[key], label=TITLES[key], linewidth=1.8)
    axes.legend(frameon=False, fontsize=8)
    tidy(axes, x="epoch", y="validation AUC")
    return figure


def notes(setting: Setting, runs: Mapping[Key, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    _, trained = networks(setting)
    if setting.scale == "cpu" and trained:
        said.append(
            "The claims are about ResNet50, whose ImageNet weights are not at hand: they are "
            f"judged on another architecture, {trained.title}."
        )
    said.append("Every epoch is every one that was scored.")
    said.append("The paper does not say of how many runs its curves are the mean.")
    return said


EXPERIMENT = Experiment(
    name="winning-ticket",
    title="A winning ticket: pretrained filters that need no learning",
    reference="Fig. H.1, Sec. 4.1",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "5 s",
        "cpu": "about 30 min on 2 cores after classification and inference",
        "paper": "about 5 GPU-days",
    },
    train=train,
    judge=judge,
)
