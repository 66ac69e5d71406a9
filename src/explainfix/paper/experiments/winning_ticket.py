"""winning-ticket: pretrained filters, fixed, against the same learned further and random ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...lab.run.folder import Run
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import COLOURS, new_figure, tidy
from ..scores import Array, curves, runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired
from ..xrays import Start, finals, starts, train_methods
from ..xrays import notes as shared_notes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLES = {  # by what is learned or fixed
    "learned": "Learned, pretrained",
    "unchanged": "Unchanged, pretrained",
    "random": "Unchanged, random",
}
INK = {"learned": COLOURS["learned"], "unchanged": COLOURS["unchanged"], "random": COLOURS["dct2"]}

CLAIMS = (
    Claim(
        "ticket",
        "Pretrained filters, fixed as they are, do better than when they are learned further.",
        "Unchanged > learned, ResNet50 pretrained",
        "Per seed: the validation AUC of pretrained Unchanged less that of pretrained learned, "
        "mean over all epochs. Agrees if the 95% t interval of these differences lies above 0, "
        "disagrees if below, else undecided.",
    ),
    Claim(
        "always",
        "They do so at every epoch.",
        "consistently for all epochs",
        "Agrees if the mean over seeds of that difference is above 0 at every epoch, disagrees if "
        "it is below 0 at half of them or more, else undecided.",
    ),
    Claim(
        "random",
        "Random filters, fixed as they are, do worse than the pretrained learned baseline.",
        "random Unchanged < learned",
        "As the first, with pretrained learned less random Unchanged.",
    ),
)


def train(setting: Setting) -> dict[str, Run]:
    """Three ways to begin, where there are weights trained on ImageNet; else random ones only."""
    random, trained = networks(setting)
    seeds = range(setting.pick(smoke=2, cpu=4, paper=6))
    runs = train_methods(setting, [random], ["unchanged"], seeds)
    if trained:
        runs |= train_methods(setting, [trained], ["learned", "unchanged"], seeds)
    return runs


def networks(setting: Setting) -> tuple[Start, Start | None]:
    """The network from random weights and from those of ImageNet: the first that has such."""
    trained = starts(setting, "pretrained")
    random = {start.family: start for start in starts(setting, "scratch")}
    return random[trained[0].family if trained else "resnet"], trained[0] if trained else None


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare validation AUC epoch by epoch."""
    random, trained = networks(setting)
    if trained is None:
        lacking = Verdict("undecided", "no ImageNet weights at this scale")
        return Outcome(
            verdicts={claim.key: lacking for claim in CLAIMS},
            tables={"What was trained": _summary(runs, {"random": random.label("unchanged")})},
            notes=notes(setting, runs),
        )
    labels = {
        "learned": trained.label("learned"),
        "unchanged": trained.label("unchanged"),
        "random": random.label("unchanged"),
    }
    found = {key: curves(runs_of(runs, label), "val auc") for key, label in labels.items()}
    values = {key: scores for key, (_, scores) in found.items()}
    return Outcome(
        verdicts=verdicts(values),
        tables={"AUC by epoch and at the end": _summary(runs, labels)},
        figures={
            f"Validation AUC at each epoch, mean and range over seeds, {trained.title}": _plot(
                found["learned"][0], values
            )
        },
        notes=notes(setting, runs),
    )


def verdicts(values: Mapping[str, Array]) -> dict[str, Verdict]:
    """The three claims, by their rules, from scores `(seeds, epochs)`."""
    mean = {key: scores.mean(1) for key, scores in values.items()}
    ticket = compare_paired(mean["unchanged"], mean["learned"])
    random = compare_paired(mean["learned"], mean["random"])
    lead = (values["unchanged"] - values["learned"]).mean(0)
    higher, lower = int((lead > 0).sum()), int((lead < 0).sum())
    word: Word = "undecided"
    if higher == len(lead):
        word = "agrees"
    elif 2 * lower >= len(lead):
        word = "disagrees"
    return {
        "ticket": Verdict(above(ticket.interval), str(ticket)),
        "always": Verdict(word, f"higher at {higher} of {len(lead)} epochs"),
        "random": Verdict(above(random.interval), f"learned less random {random}"),
    }


def _summary(runs: Mapping[str, Run], labels: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for key, label in labels.items():
        mine = runs_of(runs, label)
        rows.append(
            {
                "filters": TITLES[key],
                "network": mine[0].config.model,
                "runs": len(mine),
                "val AUC, all epochs": float(curves(mine, "val auc")[1].mean()),
                "val AUC, last": float(np.mean(finals(runs, label, "val auc"))),
                "test AUC, last": float(np.mean(finals(runs, label))),
            }
        )
    return pd.DataFrame(rows)


def _plot(epochs: list[int], values: Mapping[str, Array]) -> Figure:
    figure = new_figure(5.5, 3.2)
    axes = figure.subplots()
    for key, scores in values.items():
        axes.plot(epochs, scores.mean(0), color=INK[key], label=TITLES[key], linewidth=1.8)
        low, high = scores.min(0), scores.max(0)
        axes.fill_between(epochs, low, high, color=INK[key], alpha=0.15, linewidth=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation AUC")
    axes.locator_params(axis="x", integer=True)
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)
    return figure


def notes(setting: Setting, runs: Mapping[str, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    _, trained = networks(setting)
    if setting.scale == "cpu" and trained:
        said.append(
            "The claims are about ResNet50, whose ImageNet weights are not at hand: they are "
            f"judged on another architecture, {trained.title}."
        )
    said.append("The paper does not say of how many runs its curves are the mean.")
    return said


register(
    Experiment(
        name="winning-ticket",
        title="A winning ticket: pretrained filters that need no learning",
        reference="Fig. H.1, Sec. 4.1",
        needs=("xrays",),
        claims=CLAIMS,
        cost={
            "smoke": "5 s",
            "cpu": "about 5 min on 2 cores after classification",
            "paper": "about 5 GPU-days",
        },
        train=train,
        judge=judge,
    )
)
