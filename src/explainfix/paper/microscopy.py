"""What the experiments with U-NetD on microscopy share: options, runs by key, curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..lab.measure.statistics import epoch_bands
from ..lab.run.config import RunConfig
from ..lab.run.folder import Run
from .contrast import pick
from .figures import COLOURS, GREEN, LABELS, RED, Axes, Figure, new_figure, plot_range, tidy
from .scores import UNSTEERED, Array, curves
from .setting import Setting

STEERED = ("unchanged", "ghaar", "psine")  # 6 methods of 6 runs: Fig. 8 has no GuidedSteer
METHODS = ("learned", *UNSTEERED, *STEERED)
SEEDS = 6  # of the runs at cpu scale, as in the paper
HELD_OUT = 0.3  # of the training images, on which runs at cpu scale are compared
RECALIBRATE = 25  # batches that BatchNorm's statistics are averaged over before an evaluation
SIGNIFICANT = 0.001  # the paper's, for the bands behind the curves


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    method: str
    seed: int


def is_brief(setting: Setting) -> bool:
    """Whether the images are real and the time is short."""
    return setting.scale == "cpu" and setting.data("microscopy").startswith("bbbc038v1")


def options(setting: Setting) -> dict[str, Any]:
    """What all runs on microscopy share."""
    return {
        "model": "unetd",
        "data": setting.data("microscopy"),
        "data_options": setting.data_options("microscopy"),
        "evaluate_on": ("val", *test_splits(setting)),
        "evaluate_every": 3 if is_brief(setting) else 1,
        "epochs": setting.pick(smoke=2, cpu=9, paper=300),
        "batch_size": setting.pick(smoke=4, cpu=10, paper=10),
        "lr": 0.008,
        "recalibrate": setting.pick(smoke=1, cpu=RECALIBRATE, paper=0),
        "precision": setting.precision,
        "channels_last": setting.scale == "cpu",
    }


def holding_out(setting: Setting) -> dict[str, Any]:
    """The same with training images held out to compare runs on, where the training is brief.

    On the 65 test images, which are unlike those trained on, seeds differ more than methods do: so
    many of the training images are held out that they differ little.
    """
    if not is_brief(setting):
        return options(setting)
    data = setting.data_options("microscopy") | {"val_share": HELD_OUT}
    return options(setting) | {"data_options": data}


def settled(setting: Setting) -> dict[str, Any]:
    """The same of runs whose last weights are compared.

    A brief training at the paper's constant rate ends anywhere: here the rate falls.
    """
    brief = {"epochs": 12, "evaluate_every": 4, "schedule": "onecycle"}
    return holding_out(setting) | (brief if is_brief(setting) else {})


def compared_on(setting: Setting) -> str:
    """The split that runs are compared on, once some of it is held out."""
    return "val" if is_brief(setting) else test_splits(setting)[-1]


def test_splits(setting: Setting) -> tuple[str, ...]:
    """What is scored; the last is what the paper's Fig. 8 shows, if it is there."""
    everything = setting.scale == "paper" and setting.data("microscopy").startswith("bbbc038v1")
    return ("test", "stage2") if everything else ("test",)


def train_steering(setting: Setting) -> dict[Key, Run]:
    """The runs of `steering`, which others look at too."""
    seeds = range(setting.pick(smoke=2, cpu=SEEDS, paper=6))
    return train_methods(setting, METHODS, seeds, **settled(setting))


def train_methods(
    setting: Setting, methods: Iterable[str], seeds: Iterable[int], **shared: Any
) -> dict[Key, Run]:
    """These methods with all seeds."""
    keys = [Key(method, seed) for method in methods for seed in seeds]
    return setting.sweep({key: configure(key, **shared) for key in keys})


def configure(key: Key, **shared: Any) -> RunConfig:
    """The run of a key."""
    if key.method == "learned":
        return RunConfig(seed=key.seed, **shared)
    return RunConfig(seed=key.seed, fix=key.method, fix_seed=key.seed, **shared)


def plot_curves(runs: Mapping[Key, Run], split: str) -> Figure:
    """A panel for each fixed method, with the learned baseline and the paper's bands."""
    figure = new_figure(7.0, 4.1)
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    learned = pick(runs, method="learned")
    epochs, base = curves(learned, f"{split} dice")
    reach = max(10 // learned[0].config.evaluate_every, 1)
    grid.flat[-1].set_visible(False)
    for axes, method in zip(grid.flat, METHODS[1:], strict=False):
        _, ours = curves(pick(runs, method=method), f"{split} dice")
        axes.plot(epochs, base.mean(0), color=COLOURS["learned"], linewidth=1.4)
        plot_range(axes, epochs, ours, COLOURS[method], linewidth=1.8)
        bands = epoch_bands(ours, base, width=reach)
        _shade(axes, epochs, bands.higher, GREEN)
        _shade(axes, epochs, bands.lower, RED)
        tidy(axes, x="epoch", y="Dice", title=LABELS[method])
        axes.label_outer()
    return figure


def _shade(axes: Axes, epochs: list[int], p: Array, colour: str) -> None:
    """The background of the epochs that are significant."""
    half = (epochs[1] - epochs[0]) / 2 if len(epochs) > 1 else 0.5
    for epoch, marked in zip(epochs, p < SIGNIFICANT, strict=True):
        if marked:
            axes.axvspan(epoch - half, epoch + half, color=colour, alpha=0.18, linewidth=0)
