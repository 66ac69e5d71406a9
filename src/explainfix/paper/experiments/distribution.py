"""distribution: images like those trained on against images of another kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...lab.data.dataset import Dataset, Images
from ...lab.data.loader import Share
from ...lab.run.evaluation import collect_outcomes
from ...lab.run.folder import Run
from ...lab.run.metrics import Outcomes, score
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import COLOURS, LABELS, new_figure, tidy
from ..scores import Array, by_method, runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired, every
from .steering import MARGIN, METHODS, STEERED, plot_curves, test_splits
from .steering import train as train  # the same runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Scores = Mapping[str, Sequence[float]]  # by method, in the order of the seeds

CLAIMS = (
    Claim(
        "higher",
        "Scores are higher on images from other laboratories than on images like those trained on.",
        "stage2 > test",
        "Per seed: the mean Dice of all methods on stage2 less that on test, over the second half "
        "of the epochs. Agrees if the 95% t interval lies above 0, disagrees if below, else "
        "undecided. Without stage2, undecided whatever the substitute gives.",
    ),
    Claim(
        "equal",
        "On both, every steered method about equals the learned baseline or does better.",
        "steered ≥ learned on both, about",
        "For each steered method less learned, on like and on other images, seed by seed: agrees "
        f"if the 95% t interval lies above -{MARGIN} for all eight, disagrees if it lies below "
        f"-{MARGIN} for one, else undecided.",
    ),
    Claim(
        "transfer",
        "Fixed filters do not overfit: they lose no more on other images than learned ones do.",
        "no overfitting",
        "Per seed: the mean of the steered methods less learned, on other images less on like "
        f"ones. Agrees if the 95% t interval lies above -{MARGIN}, disagrees if below, else "
        "undecided.",
    ),
)


@dataclass(frozen=True)
class Group:
    """Some images of a split."""

    name: str
    dataset: Dataset
    indices: Sequence[int]


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Score the runs on both kinds of images."""
    figures: dict[str, Figure] = {}
    official = "stage2" in test_splits(setting)
    if official:
        like, other = (by_method(runs, METHODS, f"{split} dice") for split in ("test", "stage2"))
        names = ("test", "stage2")
        for split in names:
            caption = f"Dice at each epoch on {split}; grey is learned, background as in steering"
            figures[caption] = plot_curves(runs, split)
    else:
        groups = substitute(setting)
        names = (groups[0].name, groups[1].name)
        like, other = score_groups(setting, runs, groups)
    figures = {"Mean Dice on both, and each run": plot_both(like, other, names)} | figures
    return Outcome(
        verdicts=verdicts(like, other, official=official),
        tables={"Dice, mean over seeds": summary(like, other, names)},
        figures=figures,
        notes=notes(setting, names, official=official),
    )


def substitute(setting: Setting) -> tuple[Group, Group]:
    """Like and other images where there is no stage2.

    Drawn nuclei: others drawn at twice the size. Real ones: the half of the test images nearest to
    the training images by `look`, and the half farthest from them.
    """
    data = setting.open_data("microscopy")
    if data.name == "nuclei":
        size = setting.data_options("microscopy").get("size", 128)
        large = setting.open_data("microscopy", size=2 * size, seed=1)
        return (
            Group("as trained", data, range(len(data.split("test")))),
            Group("twice the size", large, range(len(large.split("test")))),
        )
    near = order_by_distance(looks(data.split("test")), looks(data.split("train")))
    half = len(near) // 2
    return Group("nearest half", data, near[:half]), Group("farthest half", data, near[half:])


def looks(images: Images) -> Array:
    """What each image looks like, a row each."""
    return np.stack([look(images[i].image.numpy()) for i in range(len(images))])


def look(image: Array) -> Array:
    """Five numbers of an image `(3, h, w)`: brightness, contrast, colour, detail, log size."""
    grey = image.mean(0)
    colour = (image.max(0) - image.min(0)).mean()
    detail = np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean()
    return np.array([grey.mean(), grey.std(), colour, detail, np.log(grey.size)])


def order_by_distance(rows: Array, known: Array) -> list[int]:
    """The rows' places, nearest to any of the `known` rows first, each column on its own scale.

    >>> order_by_distance(np.array([[5.0], [0.1], [9.5]]), np.array([[0.0], [10.0]]))
    [1, 2, 0]
    """
    scale = known.std(0)
    scale[scale == 0] = 1.0
    apart = np.linalg.norm((rows[:, None] - known[None]) / scale, axis=2).min(1)
    return [int(place) for place in np.argsort(apart, kind="stable")]


def score_groups(
    setting: Setting, runs: Mapping[str, Run], groups: tuple[Group, Group]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Dice of the best weights (by validation) of every run on each group."""
    found: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    chosen = [(method, run) for method in METHODS for run in runs_of(runs, method)]
    for method, run in setting.tracked(chosen, "Evaluating"):
        model = run.model("best")
        known: dict[int, Outcomes] = {}
        for group, scores in zip(groups, found, strict=True):
            key = id(group.dataset)
            if key not in known:
                known[key] = collect_outcomes(model, group.dataset, "test", Share(1))
            whole = known[key]
            part = Outcomes(whole.task, whole.classes, whole.values[list(group.indices)])
            scores.setdefault(method, []).append(score(part)["dice"].value)
    return found


def verdicts(like: Scores, other: Scores, *, official: bool) -> dict[str, Verdict]:
    """The three claims, by their rules."""

    def mean(scores: Scores, methods: Sequence[str]) -> Array:
        found: Array = np.mean([scores[m] for m in methods], axis=0)
        return found

    higher = compare_paired(mean(other, METHODS), mean(like, METHODS))
    words: list[Word] = []
    lowest = None
    for scores in (like, other):
        for method in STEERED:
            found = compare_paired(scores[method], scores["learned"])
            words.append(above(found.interval, -MARGIN))
            if lowest is None or found.interval.low < lowest[1].interval.low:
                lowest = (method, found)
    assert lowest is not None
    transfer = compare_paired(
        mean(other, STEERED) - np.asarray(other["learned"]),
        mean(like, STEERED) - np.asarray(like["learned"]),
    )
    no_stage2 = "" if official else "; not on stage2"
    return {
        "higher": Verdict(
            above(higher.interval) if official else "undecided", f"{higher}{no_stage2}"
        ),
        "equal": Verdict(every(words), f"lowest: {LABELS[lowest[0]]} {lowest[1]}"),
        "transfer": Verdict(above(transfer.interval, -MARGIN), str(transfer)),
    }


def summary(like: Scores, other: Scores, names: Sequence[str]) -> pd.DataFrame:
    """A row per method."""
    import pandas as pd

    rows = []
    for method in METHODS:
        row: dict[str, object] = {"method": LABELS[method]}
        for name, scores in zip(names, (like, other), strict=True):
            row[name] = float(np.mean(scores[method]))
        row["difference"] = str(compare_paired(other[method], like[method]))
        rows.append(row)
    return pd.DataFrame(rows)


def plot_both(like: Scores, other: Scores, names: Sequence[str]) -> Figure:
    """For each method its runs on both kinds of images, joined."""
    figure = new_figure(7.0, 3.2)
    axes = figure.subplots()
    for place, method in enumerate(METHODS):
        ends = (place - 0.2, place + 0.2)
        for pair in zip(like[method], other[method], strict=True):
            axes.plot(ends, pair, color=COLOURS[method], alpha=0.35, linewidth=1)
        means = (np.mean(like[method]), np.mean(other[method]))
        axes.plot(ends, means, color=COLOURS[method], linewidth=2)
        axes.plot(ends[0], means[0], "o", color=COLOURS[method], markersize=6)
        axes.plot(ends[1], means[1], "s", color=COLOURS[method], markersize=6)
    axes.set_xticks(range(len(METHODS)), [LABELS[method] for method in METHODS])
    axes.set_ylabel("Dice")
    for mark, name in zip("os", names, strict=True):
        axes.plot([], [], mark, color=COLOURS["learned"], label=name)
    axes.legend(
        fontsize=8, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1),
        borderaxespad=0,
    )  # fmt: skip
    tidy(axes)
    return figure


def notes(setting: Setting, names: Sequence[str], *, official: bool) -> list[str]:
    """What differs from the paper."""
    if official:
        return ["The runs of steering, scored on both sets at every epoch."]
    said = ["The runs of steering, with the weights that were best on validation."]
    if setting.data("microscopy") == "nuclei":
        said.append(
            f"Drawn images: those {names[1]} stand for another laboratory. The numbers mean little."
        )
    else:
        said.append(
            "stage2, the 106 images from other laboratories, is not in this data. In its place the "
            "test images are halved by how near they are to any training image in brightness, "
            "contrast, colour, detail and size."
        )
    return said


register(
    Experiment(
        name="distribution",
        title="Images like those trained on, and others",
        reference="Fig. D.1, App. D",
        needs=("microscopy",),
        claims=CLAIMS,
        cost={
            "smoke": "5 s after steering",
            "cpu": "5 min after steering",
            "paper": "nothing after steering",
        },
        train=train,
        judge=judge,
    )
)
