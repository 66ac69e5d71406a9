"""landscape: the paper's table of approaches, measured on the same x-rays instead of ticked."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ...backward.saved import kept_for_backward
from ...explanation import Explanation, explain, saliency
from ...fix import fix_
from ...lab.data.loader import Share, training_steps
from ...lab.measure.statistics import Interval, mean_interval
from ...lab.measure.timing import time_training
from ...lab.run.config import RunConfig
from ...lab.run.folder import Run, open_data
from ...prune import prune_, zero_
from ...recipe import check_fixed
from .. import rivals, xrays
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import COLOURS as METHOD_COLOURS
from ..figures import new_figure, tidy
from ..scores import runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired
from ..xrays import MARGIN

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PLAIN, FIXED, PRUNED = "plain", "fixed", "pruned"
TITLES = {
    "scattering": "Wavelet scattering",
    "gabor": "Gabor filters",
    "magnitude": "Magnitude pruning",
    PLAIN: "Plain network",
    FIXED: "Ours: fixed (GHaar)",
    PRUNED: "Ours: fixed and pruned",
}
RIVALS = ("scattering", "gabor", "magnitude")
COLOURS = dict(
    zip(TITLES, (METHOD_COLOURS[m] for m in ("psine", "ones", "dct2", "learned", "guidedsteer",
                                             "ghaar")), strict=True)
)  # fmt: skip
TICKS = {  # the paper's Table 1: interpretable, faster, less memory, no loss
    "scattering": ("yes", "yes", "yes", "no"),
    "gabor": ("yes", "no", "no", "yes"),
    "magnitude": ("no", "?", "yes", "?"),
    PLAIN: ("no", "=", "=", "="),
    FIXED: ("yes", "yes", "yes", "yes"),
    PRUNED: ("yes", "yes", "yes", "yes"),
}
ZERO = 0.9  # the share of the kernels that ours, pruned, begins without
LESS = 0.01  # a difference in memory below this share is none

CLAIMS = (
    Claim(
        "interpretable",
        "Fixed filters are more interpretable than those of the plain network.",
        "yes, plain: no",
        "How few filters of the basis a layer's spectrum e(2) needs: 1 less its effective number, "
        "(Σe)²/Σe², as a share of the basis, mean over spatial layers. Fixed less plain, seed by "
        "seed: agrees if the 95% t interval lies above 0, disagrees if below, else undecided.",
    ),
    Claim(
        "faster",
        "Fixed and pruned networks train faster than the plain one.",
        "yes, plain: =",
        "Seconds of a training step, plain less ours in the same round, networks in turn: agrees "
        "if the 95% t interval over rounds lies above 0, disagrees if below, else undecided.",
    ),
    Claim(
        "memory",
        "They need less memory for it.",
        "yes, plain: =",
        f"Bytes kept for the backward pass of a batch: agrees if ours are fewer by more than "
        f"{LESS:.0%}, disagrees if more by that, else undecided.",
    ),
    Claim(
        "no-loss",
        "They lose no performance.",
        "yes, plain: =",
        "Test AUC of a finding, ours less plain, finding by finding and seed by seed, for fixed, "
        f"and for fixed and pruned: agrees if both 95% t intervals lie above -{MARGIN}, disagrees "
        "if one lies below, else undecided.",
    ),
    Claim(
        "scattering",
        "Wavelet scattering networks do worse than plain ones.",
        "worse",
        "The same with plain less scattering: agrees if the 95% t interval lies above 0, disagrees "
        "if below, else undecided.",
    ),
    Claim(
        "gabor",
        "Networks with Gabor filters cost more time to train.",
        "slower",
        "Seconds of a training step, Gabor less plain, round by round: agrees if the 95% t "
        "interval lies above 0, disagrees if below, else undecided.",
    ),
    Claim(
        "compatible",
        "ExplainFix can be applied to all of them.",
        "yes, 5 of 5",
        "explain, fix_ by GHaar, and prune_ with half of the kernels zeroed run on every trained "
        "network, the fixed kernels are as fixed, and pruning changes no output of an example by "
        "more than 1%: agrees if on all, disagrees otherwise.",
    ),
)


@dataclass(frozen=True)
class Measured:
    """What was measured of one approach; lists have a value for each seed or round."""

    focus: list[float]
    auc: list[float]  # of every finding
    seconds: list[float]
    kept: int  # bytes
    parameters: int
    learned: int
    applied: str  # what ExplainFix does to it, or why it fails
    compatible: bool


def train(setting: Setting) -> dict[str, Run]:
    """Plain and fixed networks are those of classification; the others are trained here."""
    begins = [start for start in xrays.starts(setting, "scratch") if start.family == "resnet"]
    seeds = range(setting.pick(smoke=2, cpu=2, paper=3))
    shared = xrays.train_methods(setting, begins, ["learned", "ghaar"], seeds)
    names = {"learned": PLAIN, "ghaar": FIXED}
    runs = {f"{names[label.split(' ')[2]]} {label.split(' ')[3]}": r for label, r in shared.items()}
    options = xrays.options(setting)
    configs = {
        f"{PRUNED} {s}": RunConfig(
            **begins[0].options, **options, fix="ghaar", fix_seed=s, zero=ZERO, prune=True, seed=s
        )
        for s in seeds
    }
    for rival in RIVALS:
        for s in seeds:
            configs[f"{rival} {s}"] = RunConfig(model=spec(setting, rival), **options, seed=s)
    return runs | setting.sweep(configs)


def spec(setting: Setting, rival: str) -> str:
    """A rival as a run names it; below the present folder without the folders above."""
    file = Path(rivals.__file__)
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    return f"{file}:{rival}_{setting.scale}"


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Measure every approach."""
    networks = {name: [run.model("best") for run in runs_of(runs, name)] for name in TITLES}
    config = runs_of(runs, PLAIN)[0].config
    data = open_data(config)
    steps = training_steps(data, "train", Share(config.batch_size), seed=0, epoch=0)
    images, _ = next(steps)[0]
    racing = {name: runs_of(runs, name)[0].model("best") for name in TITLES}
    rounds = setting.pick(smoke=3, cpu=12, paper=30)
    seconds = time_training(racing, images, rounds=rounds, narrow=0).times
    found = {}
    for name, models in setting.tracked(list(networks.items()), "Measuring"):
        parameters = list(models[0].parameters())
        kept = kept_for_backward(models[0].train(), images)
        plain = [rivals.settle_(model).eval() for model in models]
        applied, compatible = apply_explainfix(plain[0], images[:4])
        found[name] = Measured(
            focus=[focus(explain(model)) for model in plain],
            auc=finding_scores(runs_of(runs, name)),
            seconds=seconds[name],
            kept=kept,
            parameters=sum(p.numel() for p in parameters),
            learned=sum(p.numel() for p in parameters if p.requires_grad),
            applied=applied,
            compatible=compatible,
        )
    return Outcome(
        verdicts=verdicts(found),
        tables={
            "Table 1, measured; mean over seeds, median over rounds": table(found),
            "The paper's ticks, and ExplainFix applied": ticks(found),
        },
        figures={
            "Time of a training step and memory kept for it, relative to the plain network, and "
            "test AUC; dots are rounds, or findings and seeds, diamonds their median": plot(found)
        },
        notes=notes(setting, runs, len(images)),
    )


def finding_scores(runs: Sequence[Run]) -> list[float]:
    """The test AUC of every finding of every run."""
    columns = [name for name in runs[0].history[-1] if name.startswith("test auc ")]
    return [xrays.final(run, column) for run in runs for column in columns or ["test auc"]]


def focus(why: Explanation) -> float:
    """1 less the effective share of the basis that a layer's spectrum needs, mean over layers.

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


def apply_explainfix(model: nn.Module, images: Tensor) -> tuple[str, bool]:
    """Explain a network, fix it, zero half of its kernels and cut; what came of it."""
    model = copy.deepcopy(model)
    example = images[:1]
    try:
        layers = len(explain(model))
        fix_(model, "ghaar")
        scores = saliency(model, [images])
        zero_(model, scores, 0.5)
        with torch.no_grad():
            report = prune_(model, example)
        check_fixed(model)
    except (ValueError, TypeError, RuntimeError) as error:
        return f"fails: {str(error).partition(chr(10))[0]}", False
    gone = 1 - report.params_kept
    return f"{layers} layers explained and fixed, {gone:.0%} pruned", report.difference < 0.01


def verdicts(found: Mapping[str, Measured]) -> dict[str, Verdict]:
    """The seven claims, by their rules."""
    plain, fixed, pruned = (found[name] for name in (PLAIN, FIXED, PRUNED))
    clear = compare_paired(fixed.focus, plain.focus)
    memory = pruned.kept / plain.kept
    losses = {
        "fixed": compare_paired(fixed.auc, plain.auc),
        "pruned": compare_paired(pruned.auc, plain.auc),
    }
    words = [above(loss.interval, -MARGIN) for loss in losses.values()]
    worse = compare_paired(plain.auc, found["scattering"].auc)
    fits = [name for name, one in found.items() if one.compatible]
    word: Word = "undecided"
    if abs(memory - 1) > LESS:
        word = "agrees" if memory < 1 else "disagrees"
    no_loss: Word = "agrees" if set(words) == {"agrees"} else "undecided"
    return {
        "interpretable": Verdict(above(clear.interval), str(clear)),
        "faster": _faster(plain, pruned, "ours"),
        "memory": Verdict(word, f"{memory:.0%} of the plain network's"),
        "no-loss": Verdict(
            "disagrees" if "disagrees" in words else no_loss,
            ", ".join(f"{name} {loss}" for name, loss in losses.items()),
        ),
        "scattering": Verdict(above(worse.interval), f"plain less scattering {worse}"),
        "gabor": _faster(found["gabor"], plain, "plain"),
        "compatible": Verdict(
            "agrees" if len(fits) == len(found) else "disagrees", f"{len(fits)} of {len(found)}"
        ),
    }


def _faster(slow: Measured, fast: Measured, name: str) -> Verdict:
    """Whether the second takes less time in the same rounds."""
    saved: Interval = mean_interval(np.array(slow.seconds) - np.array(fast.seconds))
    share = statistics.median(fast.seconds) / statistics.median(slow.seconds)
    return Verdict(above(saved), f"{name} takes {share:.0%} of the time")


def table(found: Mapping[str, Measured]) -> pd.DataFrame:
    """The paper's table in numbers."""
    import pandas as pd

    rows = []
    for name, one in found.items():
        rows.append(
            {
                "approach": TITLES[name],
                "focus of its spectra": statistics.fmean(one.focus),
                "seconds a step": statistics.median(one.seconds),
                "MB kept for backward": one.kept / 1e6,
                "parameters": one.parameters,
                "learned": one.learned,
                "test AUC": statistics.fmean(one.auc),
            }
        )
    return pd.DataFrame(rows)


def ticks(found: Mapping[str, Measured]) -> pd.DataFrame:
    """What the paper says, and what came of ExplainFix here."""
    import pandas as pd

    columns = ("interpretable", "faster", "less memory", "no loss")
    return pd.DataFrame(
        [
            {
                "approach": TITLES[name],
                **dict(zip(columns, row, strict=True)),
                "ExplainFix applied here": found[name].applied,
            }
            for name, row in TICKS.items()
        ]
    )


def plot(found: Mapping[str, Measured]) -> Figure:
    """Three panels with a row for each approach."""
    figure = new_figure(7.0, 2.9)
    panels = figure.subplots(1, 3, sharey=True)
    plain = found[PLAIN]
    unit = statistics.median(plain.seconds)
    columns: Sequence[tuple[str, Mapping[str, list[float]]]] = (
        ("time of a step", {n: [s / unit for s in one.seconds] for n, one in found.items()}),
        ("memory kept", {n: [one.kept / plain.kept] for n, one in found.items()}),
        ("test AUC", {n: one.auc for n, one in found.items()}),
    )
    for axes, (label, values) in zip(panels, columns, strict=True):
        axes.axvline(
            statistics.median(values[PLAIN]), color=COLOURS[PLAIN], linestyle="--", linewidth=1
        )
        for place, (name, mine) in enumerate(values.items()):
            axes.plot(mine, [place] * len(mine), "o", color=COLOURS[name], markersize=4, alpha=0.3)
            centre = statistics.median(mine)
            axes.plot(centre, place, "D", color=COLOURS[name], markersize=6)
        axes.set_xlabel(label)
        if label != "test AUC":
            axes.set_xlim(left=0)
        tidy(axes)
    panels[0].set_yticks(range(len(found)), [TITLES[name] for name in found])
    panels[0].invert_yaxis()
    return figure


def notes(setting: Setting, runs: Mapping[str, Run], batch: int) -> list[str]:
    """What differs from the paper."""
    base = xrays.networks(setting)["resnet"].title
    seeds = len(runs_of(runs, PLAIN))
    said = [
        f"The paper ticks boxes; here {seeds} networks of each kind are trained and measured. All "
        f"but scattering are a {base}: its first {rivals.GABOR_LAYERS} spatial layers as Gabor "
        f"functions of learned parameters; {rivals.PRUNED:.0%} of the weights of its convolutions "
        f"gone by magnitude half-way through training; fixed; fixed with {ZERO:.0%} of the kernels "
        "zeroed and pruned before the first step.",
        "Scattering is of second order with Morlet wavelets in plain PyTorch, with a learned "
        "classifier of 1x1 convolutions: a much smaller network.",
        f"Time and memory are those of a batch of {batch} on the CPU. Weights pruned by magnitude "
        "are stored and multiplied as noughts.",
        "ExplainFix is applied to the kernels as they are after training: Gabor functions and "
        "masks are made plain first.",
    ]
    return said + xrays.notes(setting, runs, usual=False, weights=False)[:-1]


register(
    Experiment(
        name="landscape",
        title="Five approaches, measured",
        reference="Table 1",
        needs=("xrays",),
        claims=CLAIMS,
        cost={
            "smoke": "15 s",
            "cpu": "about 9 min after classification",
            "paper": "about 8 GPU-days after classification",
        },
        train=train,
        judge=judge,
    )
)
