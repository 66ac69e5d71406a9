"""learning-rate: the same methods at 0.008 and at 0.02, early in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...lab.run.folder import Run
from ..experiment import Claim, Experiment, Outcome, Verdict, register
from ..figures import COLOURS, LABELS, new_figure, tidy
from ..scores import Array, curve, runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired
from .steering import METHODS, STEERED, options, test_splits, train_methods

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

USUAL, LARGE = 0.008, 0.02
RATES = (USUAL, LARGE)

CLAIMS = (
    Claim(
        "early",
        "At the larger rate steered methods do better than the learned baseline early in training.",
        "steered > learned at 0.02, early",
        "Mean Dice over the early epochs (the first fifth; below the paper's scale, all that were "
        "trained at 0.02) at 0.02: the mean of the four steered methods less learned, seed by "
        "seed. Agrees if the 95% t interval lies above 0, disagrees if below, else undecided.",
    ),
    Claim(
        "dct2",
        "At the larger rate the unsteered DCT2 does worse than the learned baseline.",
        "DCT2 < learned at 0.02",
        "The same with learned less DCT2.",
    ),
    Claim(
        "grows",
        "The lead of the steered methods is larger at the larger rate.",
        "lead at 0.02 > lead at 0.008",
        "The lead of the first claim at 0.02 less that at 0.008, over the same epochs and seeds. "
        "Agrees if the 95% t interval lies above 0, disagrees if below, else undecided.",
    ),
)


def train(setting: Setting) -> dict[str, Run]:
    """Runs by "RATE METHOD SEED"; those at 0.008 are the ones of `steering`."""
    seeds = range(setting.pick(smoke=2, cpu=2, paper=6))
    usual = options(setting)
    large = usual | {"lr": LARGE, "epochs": setting.pick(smoke=2, cpu=6, paper=300)}
    return {
        f"{rate} {label}": run
        for rate, shared in ((USUAL, usual), (LARGE, large))
        for label, run in train_methods(setting, seeds, **shared).items()
    }


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare early scores, seed by seed."""
    column = f"{test_splits(setting)[0]} dice"
    until = early_epochs(setting, runs)
    scores = {
        (rate, method): early_means(runs, f"{rate} {method}", column, until)
        for rate in RATES
        for method in METHODS
    }
    return Outcome(
        verdicts=verdicts(scores),
        tables={f"{column.capitalize()}, mean over epochs 1 to {until}": summary(scores)},
        figures={
            "Dice at each epoch, mean over seeds; dashed is learned": plot_rates(
                runs, column, until if setting.scale != "paper" else None
            )
        },
        notes=notes(setting, runs, until),
    )


def early_epochs(setting: Setting, runs: Mapping[str, Run]) -> int:
    """The last epoch that counts as early."""
    trained = min(run.config.epochs for run in runs.values())
    return trained // 5 if setting.scale == "paper" else trained


def early_means(runs: Mapping[str, Run], method: str, column: str, until: int) -> Array:
    """The mean score over epochs 1 to `until` of each run of a method."""
    means = []
    for run in runs_of(runs, method):
        epochs, values = curve(run, column)
        means.append(values[np.array(epochs) <= until].mean())
    return np.array(means)


def verdicts(scores: Mapping[tuple[float, str], Array]) -> dict[str, Verdict]:
    """The three claims, by their rules."""
    steered = {rate: np.mean([scores[rate, m] for m in STEERED], axis=0) for rate in RATES}
    lead = {rate: steered[rate] - scores[rate, "learned"] for rate in RATES}
    found = {
        "early": compare_paired(steered[LARGE], scores[LARGE, "learned"]),
        "dct2": compare_paired(scores[LARGE, "learned"], scores[LARGE, "dct2"]),
        "grows": compare_paired(lead[LARGE], lead[USUAL]),
    }
    return {key: Verdict(above(pair.interval), str(pair)) for key, pair in found.items()}


def summary(scores: Mapping[tuple[float, str], Array]) -> pd.DataFrame:
    """A row per method: its score at both rates, and its lead over learned."""
    import pandas as pd

    rows = []
    for method in METHODS:
        row: dict[str, object] = {"method": LABELS[method]}
        for rate in RATES:
            row[f"at {rate}"] = float(scores[rate, method].mean())
        if method != "learned":
            for rate in RATES:
                lead = compare_paired(scores[rate, method], scores[rate, "learned"])
                row[f"less learned, at {rate}"] = str(lead)
        rows.append(row)
    return pd.DataFrame(rows)


def plot_rates(runs: Mapping[str, Run], column: str, until: int | None) -> Figure:
    """A panel for each rate, a line for each method."""
    figure = new_figure(7.0, 3.4)
    for axes, rate in zip(figure.subplots(1, 2, sharey=True), RATES, strict=True):
        for method in METHODS:
            found = [curve(run, column) for run in runs_of(runs, f"{rate} {method}")]
            epochs = np.array(found[0][0])
            mean = np.mean([values for _, values in found], axis=0)
            shown = epochs <= (until or epochs[-1])
            axes.plot(
                epochs[shown], mean[shown], color=COLOURS[method], label=LABELS[method],
                linestyle="--" if method == "learned" else "-", linewidth=1.8,
                marker="o" if shown.sum() < 10 else None, markersize=4,
            )  # fmt: skip
        axes.set_title(f"learning rate {rate}")
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        tidy(axes)
    figure.axes[0].set_ylabel("Dice")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(METHODS), fontsize=7.5,
        frameon=False, handlelength=1.4, columnspacing=1.1,
    )  # fmt: skip
    return figure


def notes(setting: Setting, runs: Mapping[str, Run], until: int) -> list[str]:
    """What differs from the paper."""
    seeds = len(runs_of(runs, f"{LARGE} learned"))
    said = []
    if setting.scale == "smoke":
        said.append("Drawn images and a training of seconds: the numbers mean nothing.")
    if setting.scale != "paper":
        said.append(
            f"{seeds} runs for each method and rate, trained at 0.02 for {until} epochs; the "
            "paper's are 6 of 300."
        )
    if seeds == 2:
        said.append("With two seeds Student's t interval is 12.7 standard errors to each side.")
    said.append("Early is where the paper sees the difference; it does not say how many epochs.")
    return said


register(
    Experiment(
        name="learning-rate",
        title="A larger learning rate",
        reference="Fig. E.1, Sec. 4.3",
        needs=("microscopy",),
        claims=CLAIMS,
        cost={
            "smoke": "10 s",
            "cpu": "20 min on 2 cores after steering",
            "paper": "about 3 GPU-days",
        },
        train=train,
        judge=judge,
    )
)
