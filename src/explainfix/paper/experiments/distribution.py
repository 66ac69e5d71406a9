"""distribution: images like those trained on against images of another kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...lab.data.dataset import Dataset, Images
from ...lab.data.loader import Share
from ...lab.run import metrics
from ...lab.run.evaluation import collect_outcomes
from ...lab.run.folder import Run
from ..contrast import Measure, Scores, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, LABELS, Figure, new_figure, tidy
from ..microscopy import METHODS, STEERED, Key, plot_curves, test_splits, train_steering
from ..scores import MARGIN, Array, late_mean
from ..setting import Setting
from ..verdict import difference, signed

LIKE, OTHER = IMAGES = ("like", "other")


@dataclass(frozen=True)
class ScoreKey:
    """What tells scores apart."""

    images: str
    method: str
    seed: int


DICE = Measure(
    "Dice, over the second half of the epochs or, without stage2, of the best weights", ScoreKey
)
learned = DICE.mean("learned", method="learned")
everything = DICE.mean("all methods", method=METHODS)
lead = DICE.mean("the steered methods", method=STEERED) - learned
CLAIMS = (
    Claim(
        "higher",
        "Scores are higher on images from other laboratories than on images like those trained on.",
        "stage2 > test",
        (everything.at(images=OTHER) - everything.at(images=LIKE)).exceeds(MARGIN),
    ),
    Claim(
        "equal",
        "On both, every steered method about equals the learned baseline or does better.",
        "steered ≥ learned on both, about",
        (DICE.each("each steered method", method=STEERED) - learned > -MARGIN).for_every(
            "images", "method"
        ),
    ),
    Claim(
        "transfer",
        "Fixed filters do not overfit: they lose no more on other images than learned ones do.",
        "no overfitting",
        lead.at(images=OTHER) - lead.at(images=LIKE) > -MARGIN,
    ),
)


@dataclass(frozen=True)
class Group:
    """Some images of a split."""

    name: str
    dataset: Dataset
    indices: Sequence[int]


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Score the runs on both kinds of images."""
    figures: dict[str, Figure] = {}
    official = "stage2" in test_splits(setting)
    if official:
        names = ("test", "stage2")
        scores = {
            ScoreKey(images, key.method, key.seed): late_mean(run, f"{split} dice")
            for images, split in zip(IMAGES, names, strict=True)
            for key, run in runs.items()
        }
        for split in names:
            caption = f"Dice at each epoch on {split}; grey is learned, background as in steering"
            figures[caption] = plot_curves(runs, split)
    else:
        groups = substitute(setting)
        names = (groups[0].name, groups[1].name)
        scores = {
            ScoreKey(images, key.method, key.seed): dice
            for key, both in score_groups(setting, runs, groups).items()
            for images, dice in both.items()
        }
    return Evidence(
        scores={"Dice": scores},
        untested={} if official else {"higher": "stage2 is not in this data"},
        tables={"Dice, mean over seeds": summary(scores, names)},
        figures={"Mean Dice on both, and each run": plot_both(scores, names)} | figures,
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
    """The rows' places, nearest to any of the `known` rows first, each column in its own spread.

    >>> order_by_distance(np.array([[5.0], [0.1], [9.5]]), np.array([[0.0], [10.0]]))
    [1, 2, 0]
    """
    spread = known.std(0)
    spread[spread == 0] = 1.0
    apart = np.linalg.norm((rows[:, None] - known[None]) / spread, axis=2).min(1)
    return [int(place) for place in np.argsort(apart, kind="stable")]


def score_groups(
    setting: Setting, runs: Mapping[Key, Run], groups: tuple[Group, Group]
) -> dict[Key, dict[str, float]]:
    """Dice of the best weights (by validation) of every run on each group."""
    return setting.measure(runs, EXPERIMENT.name, lambda _, run: score_both(run, groups))


def measure(setting: Setting, runs: Mapping[Key, Run]) -> dict[Key, dict[str, float]]:
    """The same, where the groups stand for stage2."""
    if "stage2" in test_splits(setting):
        return {}
    return score_groups(setting, runs, substitute(setting))


def score_both(run: Run, groups: tuple[Group, Group]) -> dict[str, float]:
    """Dice of a run's best weights on each group."""
    model = run.model("best")
    known: dict[int, metrics.Outcomes] = {}
    found = {}
    for images, group in zip(IMAGES, groups, strict=True):
        data = id(group.dataset)
        if data not in known:
            known[data] = collect_outcomes(model, group.dataset, "test", Share(1))
        whole = known[data]
        part = metrics.Outcomes(whole.task, whole.classes, whole.values[list(group.indices)])
        found[images] = metrics.score(part)["dice"].value
    return found


def summary(scores: Scores, names: Sequence[str]) -> Rows:
    """A row per method."""
    rows: Rows = []
    for method in METHODS:
        like, other = (pick(scores, images=images, method=method) for images in IMAGES)
        means = (float(np.mean(like)), float(np.mean(other)))
        rows.append(
            {"method": LABELS[method]}
            | dict(zip(names, means, strict=True))
            | {"difference": signed(difference(other, like))}
        )
    return rows


def plot_both(scores: Scores, names: Sequence[str]) -> Figure:
    """For each method its runs on both kinds of images, joined."""
    figure = new_figure(7.0, 3.2)
    axes = figure.subplots()
    for place, method in enumerate(METHODS):
        ends = (place - 0.2, place + 0.2)
        like, other = (pick(scores, images=images, method=method) for images in IMAGES)
        for pair in zip(like, other, strict=True):
            axes.plot(ends, pair, color=COLOURS[method], alpha=0.35, linewidth=1)
        means = (np.mean(like), np.mean(other))
        axes.plot(ends, means, color=COLOURS[method], linewidth=2)
        axes.plot(ends[0], means[0], "o", color=COLOURS[method], markersize=6)
        axes.plot(ends[1], means[1], "s", color=COLOURS[method], markersize=6)
    axes.set_xticks(range(len(METHODS)), [LABELS[method] for method in METHODS])
    for mark, name in zip("os", names, strict=True):
        axes.plot([], [], mark, color=COLOURS["learned"], label=name)
    axes.legend(
        fontsize=8, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1),
        borderaxespad=0,
    )  # fmt: skip
    tidy(axes, y="Dice")
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


EXPERIMENT = Experiment(
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
    train=train_steering,
    judge=judge,
    measure=measure,
)
