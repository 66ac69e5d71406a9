"""training: most fixed kernels can be nought before the first step, and the rest still learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...lab.measure.statistics import mean_interval
from ...lab.run.folder import Run
from ..experiment import Claim, Experiment, Outcome, Verdict, register
from ..figures import COLOURS, new_figure, tidy
from ..scores import curves, runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired, every
from ..xrays import MARGIN, Start, finals, starts, train_methods
from ..xrays import notes as shared_notes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FAMILIES = {"resnet": "ResNet50", "densenet": "DenseNet121", "efficientnet": "EfficientNet-b0"}
SHARES = {"resnet": 0.90, "densenet": 0.85, "efficientnet": 0.80}  # of the paper's figure
TEXT = {"resnet": 0.95, "densenet": 0.90, "efficientnet": 0.85}  # of its text
RULE = (
    "Per seed: the test AUC of the zeroed network less that of the learned one. Agrees if the 95% "
    f"t interval of these differences lies above -{MARGIN}, disagrees if it lies below -{MARGIN}, "
    "else undecided."
)

CLAIMS = (
    *(
        Claim(
            family,
            f"A fixed random {title} with {SHARES[family]:.0%} of its kernels zeroed before "
            "training nearly equals the learned baseline.",
            f"{SHARES[family]:.0%} unnecessary for training",
            RULE,
        )
        for family, title in FAMILIES.items()
    ),
    Claim(
        "text",
        "The same holds with 95, 90 and 85%, as the text has it.",
        "95, 90 and 85% unnecessary",
        "The same for each network with the text's shares: agrees if all do, disagrees if one "
        "does, else undecided.",
    ),
)


@dataclass(frozen=True)
class Pair:
    """A zeroed network and what it is compared with, as labels of runs."""

    title: str
    share: float
    zeroed: str
    learned: str


def train(setting: Setting) -> dict[str, Run]:
    """Learned networks, and fixed ones of which a share is nought from the first step on."""
    seeds = range(setting.pick(smoke=2, cpu=3, paper=6))
    begins = starts(setting, "scratch")
    runs = train_methods(setting, begins, ["learned"], seeds)
    for start in begins:
        for share in shares(setting, start):
            found = train_methods(setting, [start], ["unchanged"], seeds, zero=share)
            runs |= {relabel(label, share): run for label, run in found.items()}
    return runs


def shares(setting: Setting, start: Start) -> list[float]:
    """What is zeroed of a network: the figure's share and, where there is time, the text's."""
    first = [SHARES[start.family]]
    return first if setting.scale == "cpu" else [*first, TEXT[start.family]]


def relabel(label: str, share: float) -> str:
    """The label of runs with a share zeroed."""
    what, _, seed = label.rpartition(" ")
    return f"{what} {share} {seed}"


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare zeroed networks with learned ones."""
    pairs: dict[str, dict[float, Pair]] = {
        start.family: {
            share: Pair(
                start.title, share, f"{start.label('unchanged')} {share}", start.label("learned")
            )
            for share in shares(setting, start)
        }
        for start in starts(setting, "scratch")
    }
    verdicts = {
        family: compare(runs, pairs.get(family, {}).get(share)) for family, share in SHARES.items()
    }
    text = {f: compare(runs, pairs.get(f, {}).get(share)) for f, share in TEXT.items()}
    said = "; ".join(f"{FAMILIES[f]} {v.ours}" for f, v in text.items())
    absent = all(v.ours == ABSENT for v in text.values())
    verdicts["text"] = Verdict(every([v.word for v in text.values()]), ABSENT if absent else said)
    every_pair = [pair for found in pairs.values() for pair in found.values()]
    return Outcome(
        verdicts=verdicts,
        tables={"Test AUC with kernels zeroed, and learned": table(runs, every_pair)},
        figures={
            "Test AUC at each epoch, mean over seeds with its 95% t interval; grey is "
            "learned": plot(runs, [found[SHARES[f]] for f, found in pairs.items()])
        },
        notes=notes(setting, runs),
    )


ABSENT = "not trained at this scale"


def compare(runs: Mapping[str, Run], pair: Pair | None) -> Verdict:
    """The verdict on one network, by the rule."""
    if pair is None:
        return Verdict("undecided", ABSENT)
    found = compare_paired(finals(runs, pair.zeroed), finals(runs, pair.learned))
    return Verdict(above(found.interval, -MARGIN), str(found))


def table(runs: Mapping[str, Run], pairs: list[Pair]) -> pd.DataFrame:
    """A row per network and share."""
    import pandas as pd

    rows = []
    for pair in pairs:
        zeroed, learned = finals(runs, pair.zeroed), finals(runs, pair.learned)
        against = compare_paired(zeroed, learned)
        rows.append(
            {
                "network": pair.title,
                "zeroed": f"{pair.share:.0%}",
                "runs": len(zeroed),
                "AUC": float(np.mean(zeroed)),
                "learned": float(np.mean(learned)),
                "less learned": str(against),
                "Wilcoxon p": against.wilcoxon.p,
            }
        )
    return pd.DataFrame(rows)


def plot(runs: Mapping[str, Run], pairs: list[Pair]) -> Figure:
    """A panel for each network."""
    figure = new_figure(7.0, 2.6)
    grid = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    for axes, pair in zip(grid, pairs, strict=True):
        lines = ((pair.learned, COLOURS["learned"]), (pair.zeroed, COLOURS["unchanged"]))
        for label, colour in lines:
            epochs, values = curves(runs_of(runs, label), "test auc")
            spans = [mean_interval(column) for column in values.T]
            axes.plot(epochs, [span.mean for span in spans], color=colour, linewidth=1.6)
            low, high = [s.low for s in spans], [s.high for s in spans]
            axes.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
        least = min(curves(runs_of(runs, label), "test auc")[1].min() for label, _ in lines)
        axes.set_ylim(max(min(axes.get_ylim()[0], least), 0.3), min(axes.get_ylim()[1], 1.0))
        axes.set_title(f"{pair.title.partition(',')[0]}, {pair.share:.0%} zeroed")
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        tidy(axes)
    grid[0].set_ylabel("test AUC")
    return figure


def notes(setting: Setting, runs: Mapping[str, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs, weights=False)
    said.append(
        "Saliency is computed on eight batches of the first epoch, on the random network; its "
        "zeroed kernels stay nought."
    )
    if setting.scale == "smoke":
        said.append("There is no tiny DenseNet: it is left out.")
    if setting.scale == "cpu":
        said.append("Three runs each, the paper has six; the text's larger shares are left out.")
    return said


register(
    Experiment(
        name="training",
        title="Few filters suffice for training",
        reference="Fig. K.1 (a), Sec. 4.5",
        needs=("xrays",),
        claims=CLAIMS,
        cost={
            "smoke": "5 s",
            "cpu": "about 16 min on 2 cores after classification",
            "paper": "about 17 GPU-days",
        },
        train=train,
        judge=judge,
    )
)
