"""What the experiments on spectra share: networks explained, distances, and heatmaps."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..explanation import Explanation, explain, saliency
from ..filters.dct2 import frequency_order
from ..lab.data.dataset import Dataset
from ..lab.run.folder import Run, open_data
from ..recipe import changed_layers
from ..report.heatmap import energy_blocks, main_shapes
from .contrast import Verdict, decide
from .figures import LABELS, Figure, bare, new_figure
from .networks import find_pretrained
from .scores import Array
from .setting import Batches, Setting, first_batches

ENOUGH = 64  # a layer with fewer kernels than this says little about its distribution
MOVED = 0.05  # the share of a layer's energy that may lie elsewhere
GUIDED = (
    f"Over the layers with at least {ENOUGH} kernels: the share of e(2) that lies elsewhere than "
    f"the guide's. Agrees if the largest is below {MOVED:.0%}, disagrees if the median is above, "
    "else undecided."
)
JOINT = (
    "GuidedSteer samples whole kernels of its guide's layer. The paper's algorithm has one basis "
    "for all layers of a kernel shape and draws coefficients independently: where a layer's "
    "coefficients depend on each other, its spectrum moves."
)


def large_layers(why: Explanation) -> list[str]:
    """The layers with enough kernels, or all if there are none such."""
    return [p for p, layer in why.layers.items() if layer.kernels >= ENOUGH] or list(why)


def judge_guided(moved: Sequence[float]) -> Verdict:
    """Distances between the spectra of GuidedSteer and of its guide, by the rule `GUIDED`."""
    largest, median = max(moved), float(np.median(moved))
    said = f"{median:.1%} elsewhere, at most {largest:.1%}"
    return decide(said, agrees=largest < MOVED, disagrees=median >= MOVED)


def mean_frequency(shares: Array, size: int) -> Array:
    """The mean total frequency of spectra `(..., size²)` that sum to one."""
    total = np.array([sum(frequency) for frequency in frequency_order((size, size))], float)
    found: Array = shares @ total
    return found


def focus(why: Explanation) -> float:
    """1 less the effective share of the basis that a layer's spectrum needs, mean over layers.

    >>> from explainfix import fix_
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(1, 9, 3))
    >>> recipe = fix_(model, "ones")  # one filter of nine
    >>> round(focus(explain(model)), 4)
    0.8889
    """
    shares = []
    for spectrum in why.values():
        e = spectrum.ed
        shares.append(float(e.sum() ** 2 / e.square().sum().clamp(min=1e-300)) / len(e))
    return 1 - statistics.fmean(shares)


@dataclass(frozen=True)
class Key:
    """What tells the runs apart; a network is told by its title."""

    network: str
    method: str
    seed: int


@dataclass(frozen=True)
class Case:
    """A network, how its filters came about, and its spectra."""

    network: str
    method: str
    seed: int
    plain: Explanation
    weighted: Explanation | None
    changed: int | None  # fixed layers that training changed; `None` if it was not trained


def trained_cases(setting: Setting, runs: Mapping[Key, Run]) -> Iterator[Case]:
    """The runs; saliency only for what is learned or drawn."""
    batches: dict[str, Batches] = {}
    for key, run in setting.tracked(list(runs.items()), "Explaining"):
        model = run.model("best")
        weighted = None
        if key.method == "learned" or key.seed == 0:
            data = run.config.data
            if data not in batches:
                batches[data] = some_batches(setting, open_data(run.config))
            wrapped = key.network.replace(", ", "\n")  # below its bars
            weighted = explain(model, saliency=saliency(model, batches[data]), title=wrapped)
        yield Case(
            key.network,
            key.method,
            key.seed,
            explain(model, title=key.network),
            weighted,
            None if key.method == "learned" else len(changed_layers(model)),
        )


def some_batches(setting: Setting, data: Dataset) -> Batches:
    """The first test images: one a batch for masks, four for labels."""
    size = 1 if data.task == "segmentation" else 4
    count = setting.pick(smoke=2, cpu=16, paper=64)
    return first_batches(data, "test", count, size=size)


def untrained_cases(setting: Setting) -> Iterator[Case]:
    """Networks from ImageNet whose weights are here, as they are."""
    networks = {} if setting.scale == "smoke" else find_pretrained()
    if not networks:
        return
    grey = some_batches(setting, setting.open_data("xrays"))
    images = [(x.expand(-1, 3, -1, -1) - 0.45) / 0.225 for x, _ in grey]
    for name, network in setting.tracked(list(networks.items()), "Explaining what is pretrained"):
        title = f"{name} on ImageNet"
        scores = saliency(network, images)
        weighted = explain(network, saliency=scores, title=f"{name}\non ImageNet")
        yield Case(title, "learned", 0, explain(network, title=title), weighted, None)


def plot_heatmap(why: Explanation) -> Figure:
    """The library's own, whose heading our caption replaces."""
    figure = why.plot()
    figure.axes[0].set_title("", loc="left")
    return figure


def plot_methods(pairs: Mapping[str, tuple[Explanation, Explanation | None]]) -> Figure:
    """A row per initialisation: heatmaps without and with saliency, each with its own colours."""
    rows = [len(stack_energies(plain)) for plain, _ in pairs.values()]
    figure = new_figure(7.0, 0.3 + sum(min(0.045 * count, 0.9) + 0.15 for count in rows))
    grid = figure.subplots(len(pairs), 2, squeeze=False, height_ratios=rows)
    for row, (method, pair) in zip(grid, pairs.items(), strict=True):
        for axes, why in zip(row, pair, strict=True):
            bare(axes, LABELS[method] if axes is row[0] else "")
            if why is not None:
                axes.imshow(stack_energies(why), aspect="auto", cmap="viridis", vmin=0,
                            interpolation="nearest")  # fmt: skip
    for axes, name in zip(grid[0], ("without saliency", "with saliency"), strict=True):
        axes.set_title(name, fontsize=9)
    return figure


def stack_energies(why: Explanation) -> Array:
    """e(2) of the main kernel shapes, one block of rows each; NaN where a layer has another."""
    return np.concatenate(energy_blocks(why, main_shapes(why)))
