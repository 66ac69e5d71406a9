"""What the experiments on spectra share: networks explained, what is measured, and heatmaps."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from ..explanation import Explanation, explain, saliency
from ..explanation.advice import stage_of
from ..explanation.compare import spectral_distance
from ..explanation.file import rebuild
from ..filters.dct2 import frequency_order
from ..fix import fix_
from ..lab.data.dataset import Dataset
from ..lab.run.folder import Run, open_data
from ..layers import spatial_layers
from ..recipe import changed_layers
from ..report.heatmap import energy_blocks, main_shapes
from .contrast import Measure, Scores, pick, samples
from .figures import LABELS, Figure, bare, new_figure
from .networks import find_pretrained
from .scores import Array
from .setting import Batches, Setting, first_batches
from .verdict import InWords, Verdict

ENOUGH = 64  # a layer with fewer kernels than this says little about its distribution
LONG = 3  # layers that make a stage
MOVED = 0.05  # the share of a layer's energy that may lie elsewhere
_MOVED = Measure(
    f"the share of e(2) that GuidedSteer has elsewhere than its guide, the median over the layers "
    f"with at least {ENOUGH} kernels",
    words={"number": "seed"},
)
_GUIDED = _MOVED.mean("GuidedSteer", name="GuidedSteer") < MOVED
RESAMPLED = "its guide, resampled"
# What is kept of a trained network.
PLAIN, WEIGHTED, BY_GRADIENT, CHANGED = "plain", "weighted", "by gradient", "changed layers"


def _judge_guided(scores: Scores) -> Verdict:
    means = {
        name: f"{np.mean(pick(scores, name=name)):.1%}"
        for name in dict.fromkeys(key.name for key in scores)
    }
    said = ", ".join(f"{name} {mean}" for name, mean in means.items())
    return Verdict(_GUIDED.judge(scores).word, said)


GUIDED = InWords(str(_GUIDED), _judge_guided)
JOINT = (
    "GuidedSteer samples whole kernels of its guide's layer. The paper's algorithm has one basis "
    "for all layers of a kernel shape and draws coefficients independently: where a layer's "
    "coefficients depend on each other, its spectrum moves. The guide's own kernels, drawn again "
    "with replacement, tell how far chance alone moves it."
)


def large_layers(why: Explanation) -> list[str]:
    """The layers with enough kernels, or all if there are none such."""
    return [p for p, layer in why.layers.items() if layer.kernels >= ENOUGH] or list(why)


def guided_scores(guide: nn.Module, seeds: Iterable[int]) -> Scores:
    """By seed: how far GuidedSteer's spectra are from its guide's, and a resampled guide's."""
    before = explain(guide)
    paths = large_layers(before)
    found: dict[str, list[float]] = {"GuidedSteer": [], RESAMPLED: []}
    for seed in seeds:
        steered, resampled = copy.deepcopy(guide), copy.deepcopy(guide)
        fix_(steered, "guidedsteer", seed=seed, guide=guide)
        generator = torch.Generator().manual_seed(seed)
        for layer in spatial_layers(resampled).values():
            kernels = layer.weight.data.flatten(0, 1)
            drawn = torch.randint(len(kernels), (len(kernels),), generator=generator)
            layer.weight.data = kernels[drawn].reshape(layer.weight.shape)
        for name, model in (("GuidedSteer", steered), (RESAMPLED, resampled)):
            after = explain(model)
            moved = [spectral_distance(before[path].ed, after[path].ed) for path in paths]
            found[name].append(float(np.median(moved)))
    return samples(found)


def above_even(spectra: Array, size: int) -> Array:
    """The mean total frequency less that of an even spread, the constant filter left out."""
    varying = spectra[..., 1:] / spectra[..., 1:].sum(-1, keepdims=True)
    even = np.full(size**2 - 1, 1 / (size**2 - 1))
    zero = np.zeros((*spectra.shape[:-1], 1))
    mine = mean_frequency(np.concatenate([zero, varying], -1), size)
    return np.asarray(mine - mean_frequency(np.append(0.0, even), size))


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
    by_gradient: Explanation | None  # weighted by the absolute gradient alone
    changed: int | None  # fixed layers that training changed; `None` if it was not trained


def measure_spectra(
    setting: Setting, runs: Mapping[Key, Run], weighed: Callable[[Key], bool]
) -> dict[Key, dict[str, Any]]:
    """The spectra of runs, those that are `weighed` with saliency; what is learned in all ways."""
    batches: dict[str, Batches] = {}

    def look(key: Key, run: Run) -> dict[str, Any]:
        model, data = run.model("best"), run.config.data
        learned = key.method == "learned"
        found: dict[str, Any] = {PLAIN: packed(explain(model, title=key.network))}
        if learned or weighed(key):
            if data not in batches:
                batches[data] = some_batches(setting, open_data(run.config))
            wrapped = key.network.replace(", ", "\n")  # below its bars
            found[WEIGHTED] = packed(weigh(model, batches[data], wrapped))
        if learned:
            by_gradient = weigh(model, batches[data], key.network, kind="gradient")
            found[BY_GRADIENT] = packed(by_gradient)
        else:
            found[CHANGED] = len(changed_layers(model))
        return found

    return setting.measure(runs, "spectra", look)


def trained_cases(measured: Mapping[Key, Mapping[str, Any]]) -> Iterator[Case]:
    """The runs that were measured."""
    for key, found in measured.items():
        plain, weighted, by_gradient = (
            unpacked(found[name]) if name in found else None
            for name in (PLAIN, WEIGHTED, BY_GRADIENT)
        )
        assert plain is not None
        changed = found.get(CHANGED)
        yield Case(key.network, key.method, key.seed, plain, weighted, by_gradient, changed)


def packed(why: Explanation) -> dict[str, Any]:
    """An explanation in few characters: a row a layer, numbers of five digits."""
    record = why.as_dict()
    layers = record.pop("layers")
    return record | {
        "columns": list(layers[0]),
        "rows": [_short([*row.values()]) for row in layers],
    }


def unpacked(record: Mapping[str, Any]) -> Explanation:
    """The explanation that was packed."""
    layers = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    return rebuild({**record, "layers": layers})


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def weigh(
    model: nn.Module,
    batches: Sequence[Any],
    title: str,
    kind: Literal["weight_gradient", "gradient"] = "weight_gradient",
) -> Explanation:
    """The spectra of a network, its kernels weighted by their saliency."""
    return explain(model, saliency=saliency(model, batches, kind=kind), title=title)


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
        weighted = weigh(network, images, f"{name}\non ImageNet")
        by_gradient = weigh(network, images, title, kind="gradient")
        plain = explain(network, title=title)
        yield Case(title, "learned", 0, plain, weighted, by_gradient, None)


def low_leads(explanations: Sequence[Explanation]) -> list[float]:
    """The share of the lowest frequency in e(0) of 3x3 kernels less that of the highest."""
    totals = [why.totals.get((3, 3)) for why in explanations]
    spectra = [total.e0 for total in totals if total is not None and total.e0 is not None]
    return [float((e0[0] - e0[-1]) / e0.sum()) for e0 in spectra]


def early_lead(why: Explanation) -> float:
    """The share of energy in the first half of the layers, less a half; a middle one is halved."""
    sums = np.array([float(spectrum.ed.sum()) for spectrum in why.values()])
    half = len(sums) // 2
    first = sums[:half].sum() + (sums[half] / 2 if len(sums) % 2 else 0.0)
    return float(first / sums.sum() - 0.5)


def summed_leads(explanations: Sequence[Explanation]) -> list[float]:
    """The same of the sum of the layers' own e(0)."""
    found = []
    for why in explanations:
        layers = [s.e0 for s in why.values() if s.e0 is not None and s.shape == (3, 3)]
        e0 = sum(layers[1:], layers[0])
        found.append(float((e0[0] - e0[-1]) / e0.sum()))
    return found


def falling_stages(explanations: Sequence[Explanation]) -> list[float]:
    """Of each network the share of long stages whose later half has less energy, less a half."""
    found = []
    for why in explanations:
        stages: dict[str, list[float]] = {}
        for path, stage in stage_of(list(why)).items():
            stages.setdefault(stage, []).append(float(why[path].ed.sum()))
        falls = [
            np.mean(sums[-(len(sums) // 2) :]) < np.mean(sums[: len(sums) // 2])
            for sums in stages.values()
            if len(sums) >= LONG
        ]
        if falls:
            found.append(float(np.mean(falls)) - 0.5)
    return found


def layer_share(why: Explanation) -> float:
    """The share of its layers that a network's weighted energy needs, (Σe)²/Σe²/n."""
    sums = np.array([float(spectrum.ed.sum()) for spectrum in why.values()])
    return float(sums.sum() ** 2 / (sums**2).sum() / len(sums))


def nearer_by_saliency(cases: Sequence[Case]) -> dict[tuple[str, int], float]:
    """How much nearer to each other saliency brings the heatmaps of a network's initialisations."""
    groups: dict[tuple[str, int], list[Case]] = {}
    for case in cases:
        if case.weighted is not None:
            groups.setdefault((case.network, case.seed), []).append(case)
    found = {}
    for group, mine in groups.items():
        if len(mine) > 2:
            apart = [
                float(np.mean([_apart(a, b) for a, b in combinations(whys, 2)]))
                for whys in ([c.plain for c in mine], [c.weighted for c in mine if c.weighted])
            ]
            found[group] = apart[0] - apart[1]
    return found


def _apart(first: Explanation, second: Explanation) -> float:
    """The share of energy that lies elsewhere, over all layers and filters."""
    a, b = (np.nan_to_num(stack_energies(why)) for why in (first, second))
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)


def unevenness(cases: Sequence[Case]) -> dict[str, list[float]]:
    """How far DCT2 is from even, a mean over the layers of each network; the worst seed."""
    off: dict[str, float] = {}
    for case in cases:
        if case.method == "dct2":
            layers = [
                spectral_distance(case.plain[path].ed, case.plain[path].ed * 0 + 1)
                for path in large_layers(case.plain)
            ]
            off[case.network] = max(float(np.mean(layers)), off.get(case.network, 0.0))
    return {name: [value] for name, value in off.items()}


def frequencies(cases: Sequence[Case]) -> dict[str, list[float]]:
    """The mean frequency of GHaar and Psine less an even spread's, by network and shape."""
    found: dict[str, list[float]] = {}
    for case in cases:
        if case.method in ("ghaar", "psine"):
            for shape in main_shapes(case.plain):
                name = f"{LABELS[case.method]}, {case.network}, {shape[0]}x{shape[0]}"
                ed = np.asarray(case.plain.totals[shape].ed)
                found.setdefault(name, []).append(float(above_even(ed, shape[0])))
    return found


def guided_distances(cases: Sequence[Case]) -> list[float]:
    """GuidedSteer from the network's own ImageNet filters, the median over layers of each run."""
    guides = {(c.network, c.seed): c.plain for c in cases if c.method == "unchanged"}
    return [
        float(
            np.median(
                [
                    spectral_distance(guides[case.network, case.seed][path].ed, case.plain[path].ed)
                    for path in large_layers(case.plain)
                ]
            )
        )
        for case in cases
        if case.method == "guidedsteer"
    ]


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
