"""landscape: the paper's table of approaches, measured on the same x-rays instead of ticked."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...backward.saved import kept_for_backward
from ...explanation import explain, saliency
from ...fix import fix_
from ...lab.data.loader import Share, training_steps
from ...lab.measure.timing import time_training
from ...lab.run.folder import Run, open_data
from ...prune import prune_, zero_
from ...recipe import check_fixed
from .. import rivals, xrays
from ..contrast import Measure, Rule, Scores, mean_of, pick, samples, say_all
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS as METHOD_COLOURS
from ..figures import Figure, new_figure, tidy
from ..networks import factory
from ..scores import MARGIN
from ..setting import Setting
from ..spectral import focus
from ..verdict import InWords, Verdict, decide  # fmt: skip
from ..zeroing import zeroed_options

PLAIN, FIXED, PRUNED = "plain", "fixed", "pruned"
TITLES = {
    "scattering": "Wavelet scattering",
    "gabor": "Gabor filters",
    "magnitude": "Magnitude pruning",
    PLAIN: "Plain network",
    FIXED: "Ours: fixed (GHaar)",
    PRUNED: "Ours: fixed and pruned",
}
RIVALS = tuple(TITLES)[:3]
COMPARED = ("scattering", PLAIN, FIXED, PRUNED)  # the approaches whose scores claims are about
_LIKE = ("psine", "ones", "dct2", "learned", "guidedsteer", "ghaar")
COLOURS = {name: METHOD_COLOURS[method] for name, method in zip(TITLES, _LIKE, strict=True)}
TICKS = {  # the paper's Table 1: interpretable, faster, less memory, no loss
    "scattering": ("yes", "yes", "yes", "no"),
    "gabor": ("yes", "no", "no", "yes"),
    "magnitude": ("no", "?", "yes", "?"),
    PLAIN: ("no", "=", "=", "="),
    **dict.fromkeys((FIXED, PRUNED), ("yes",) * 4),
}
ZERO = 0.9  # the share of the kernels that ours, pruned, begins without
HALF = 0.5  # the share that every approach must stand
LESS = 0.01  # a difference in memory, or in an output, below this share is none


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    approach: str
    seed: int


FOCUS = Measure(
    "how few filters of the basis a layer's spectrum e(2) needs (1 less its effective number, "
    "(Σe)²/Σe², as a share of the basis, mean over spatial layers)",
    words={"number": "seed"},
)
AUC = Measure("test AUC", words={"name": "approach", "number": "seed"})
SECONDS = Measure("seconds of a training step, networks in turn", words={"number": "round"})
plain = AUC.mean("plain", name=PLAIN)
step = {name: SECONDS.mean(name, name=name) for name in (PLAIN, PRUNED, "gabor")}
CLEARER = FOCUS.mean("fixed", name=FIXED) - FOCUS.mean("plain", name=PLAIN) > 0
FASTER, SLOWER = step[PLAIN] - step[PRUNED] > 0, step["gabor"] - step[PLAIN] > 0
NO_LOSS = (AUC.each("each of ours", name=(FIXED, PRUNED)) - plain > -MARGIN).for_every("name")
WORSE = (plain - AUC.mean("scattering", name="scattering")).exceeds(MARGIN).in_full()


def faster(rule: Rule, fast: str, slow: str, name: str) -> InWords:
    """The rule, with medians for what was measured."""

    def judge(scores: Scores) -> Verdict:
        share = statistics.median(pick(scores, name=fast)) / statistics.median(
            pick(scores, name=slow)
        )
        return Verdict(rule.judge(scores).word, f"{name} takes {share:.0%} of the time")

    return InWords(str(rule), judge)


def judge_memory(scores: Scores) -> Verdict:
    """Bytes kept by ours, as a share of the plain network's."""
    memory = mean_of(scores, name=PRUNED) / mean_of(scores, name=PLAIN)
    said = f"{memory:.0%} of the plain network's"
    return decide(said, agrees=memory < 1 - LESS, disagrees=memory > 1 + LESS)


def judge_compatible(scores: Scores) -> Verdict:
    """On how many it works."""
    fits = int(sum(scores.values()))
    return decide(f"{fits} of {len(scores)}", agrees=fits == len(scores))


CLAIMS = (
    Claim(
        "interpretable",
        "Fixed filters are more interpretable than those of the plain network.",
        "yes, plain: no",
        CLEARER,
        kind="construction",
        on="focus",
    ),
    Claim(
        "faster",
        "Fixed and pruned networks train faster than the plain one.",
        "yes, plain: =",
        faster(FASTER, PRUNED, PLAIN, "ours"),
        on="seconds",
    ),
    Claim(
        "memory",
        "They need less memory for it.",
        "yes, plain: =",
        InWords(
            "Bytes kept for the backward pass of a batch: agrees if ours are fewer by more than "
            f"{LESS:.0%}, disagrees if more by that, else undecided.",
            judge_memory,
        ),
        on="bytes",
    ),
    Claim("no-loss", "They lose no performance.", "yes, plain: =", NO_LOSS.said(say_all), on="AUC"),
    Claim(
        "scattering",
        "Wavelet scattering networks do worse than plain ones.",
        "worse",
        WORSE,
        on="AUC",
    ),
    Claim(
        "gabor",
        "Networks with Gabor filters cost more time to train.",
        "slower",
        faster(SLOWER, PLAIN, "gabor", "plain"),
        on="seconds",
    ),
    Claim(
        "compatible",
        "ExplainFix can be applied to all of them.",
        "yes, 5 of 5",
        InWords(
            f"explain, fix_ by GHaar, and prune_ with {HALF:.0%} of the kernels zeroed run on all "
            "trained networks, the fixed kernels are as fixed, and pruning changes no output of an "
            f"example by more than {LESS:.0%}: agrees if on all, disagrees otherwise.",
            judge_compatible,
        ),
        kind="construction",
        on="compatible",
    ),
)


@dataclass(frozen=True)
class Measured:
    """What was measured of one approach; lists have a value for each seed or round."""

    focus: list[float]
    auc: list[float]  # mean over findings
    seconds: list[float]
    kept: int  # bytes
    parameters: int
    learned: int
    applied: str  # what ExplainFix does to it, or why it fails
    compatible: bool


def train(setting: Setting) -> dict[Key, Run]:
    """Plain and fixed networks are those of classification; the others are trained here."""
    [start] = [start for start in xrays.starts(setting, "scratch") if start.family == "resnet"]
    seeds = {
        name: range(setting.pick(smoke=2, cpu=6 if name in COMPARED else 3, paper=3))
        for name in TITLES
    }
    pruned = zeroed_options(setting, ZERO) | {"prune": True, "lr": 2 * xrays.rate(setting)}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        PLAIN: ("learned", {}),
        FIXED: ("ghaar", {}),
        PRUNED: ("ghaar", pruned),
        **{rival: ("learned", {"model": factory(f"{rival}_{setting.scale}")}) for rival in RIVALS},
    }
    return setting.sweep(
        {
            Key(name, seed): xrays.configure(setting, start, method, seed, **changes)
            for name, (method, changes) in kinds.items()
            for seed in seeds[name]
        }
    )


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Measure every approach."""
    focused = measure_focus(setting, runs)
    first = setting.with_weights({name: runs[Key(name, 0)] for name in TITLES})
    config = first[PLAIN].config
    steps = training_steps(open_data(config), "train", Share(config.batch_size), seed=0, epoch=0)
    images, _ = next(steps)[0]
    racing = {name: run.model("best") for name, run in first.items()}
    rounds = setting.pick(smoke=3, cpu=12, paper=30)
    seconds = time_training(racing, images, rounds=rounds, narrow=0).times
    found = {
        name: measure(
            first[name], images, seconds[name], pick(runs, approach=name),
            pick(focused, approach=name),
        )
        for name in setting.tracked(list(TITLES), "Measuring")
    }  # fmt: skip
    return Evidence(
        scores=as_scores(found),
        tables={
            "Table 1, measured; mean over seeds, median over rounds": table(found),
            "The paper's ticks, and ExplainFix applied": ticks(found),
        },
        figures={
            "Time of a training step and memory kept for it, relative to the plain network, and "
            "test AUC; dots are rounds, or seeds, diamonds their median": plot(found)
        },
        notes=notes(setting, runs, len(images)) + xrays.notes(setting, runs, usual=False)[:-1],
    )


def measure_focus(setting: Setting, runs: Mapping[Key, Run]) -> dict[Key, float]:
    """How focused the spectra of each run's network are."""

    def look(_: Key, run: Run) -> float:
        return focus(explain(rivals.settle_(run.model("best")).eval()))

    return setting.measure(runs, EXPERIMENT.name, look)


def measure(
    first: Run, images: Tensor, seconds: list[float], runs: list[Run], focused: list[float]
) -> Measured:
    """One approach, from its first network and a batch, and from all its runs."""
    model = first.model("best")
    parameters = list(model.parameters())
    kept = kept_for_backward(model.train(), images)
    applied, compatible = apply_explainfix(rivals.settle_(model).eval(), images[:4])
    return Measured(
        focus=focused,
        auc=[xrays.final(run) for run in runs],
        seconds=seconds,
        kept=kept,
        parameters=sum(p.numel() for p in parameters),
        learned=sum(p.numel() for p in parameters if p.requires_grad),
        applied=applied,
        compatible=compatible,
    )


def apply_explainfix(model: nn.Module, images: Tensor) -> tuple[str, bool]:
    """Explain a network, fix it, zero half of its kernels and cut; what came of it."""
    model = copy.deepcopy(model)
    try:
        layers = len(explain(model))
        fix_(model, "ghaar")
        zero_(model, saliency(model, [images]), HALF)
        with torch.no_grad():
            report = prune_(model, images[:1])
        check_fixed(model)
    except (ValueError, TypeError, RuntimeError) as error:
        return f"fails: {str(error).partition(chr(10))[0]}", False
    gone = 1 - report.params_kept
    return f"{layers} layers explained and fixed, {gone:.0%} pruned", report.difference < LESS


def as_scores(found: Mapping[str, Measured]) -> dict[str, Scores]:
    """What the rules judge."""
    return {
        "focus": samples({name: one.focus for name, one in found.items()}),
        "AUC": samples({name: one.auc for name, one in found.items()}),
        "seconds": samples({name: one.seconds for name, one in found.items()}),
        "bytes": samples({name: [one.kept] for name, one in found.items()}),
        "compatible": samples({name: [one.compatible] for name, one in found.items()}),
    }


def table(found: Mapping[str, Measured]) -> Rows:
    """The paper's table in numbers."""
    return [
        {
            "approach": TITLES[name],
            "focus of its spectra": statistics.fmean(one.focus),
            "seconds a step": statistics.median(one.seconds),
            "MB kept for backward": one.kept / 1e6,
            "parameters": one.parameters,
            "learned": one.learned,
            "test AUC": statistics.fmean(one.auc),
        }
        for name, one in found.items()
    ]


def ticks(found: Mapping[str, Measured]) -> Rows:
    """What the paper says, and what came of ExplainFix here."""
    columns = ("interpretable", "faster", "less memory", "no loss")
    return [
        {
            "approach": TITLES[name],
            **dict(zip(columns, row, strict=True)),
            "ExplainFix applied here": found[name].applied,
        }
        for name, row in TICKS.items()
    ]


def plot(found: Mapping[str, Measured]) -> Figure:
    """Three panels with a row for each approach."""
    figure = new_figure(7.0, 2.9)
    panels = figure.subplots(1, 3, sharey=True)
    unit, kept = statistics.median(found[PLAIN].seconds), found[PLAIN].kept
    columns = {
        "time of a step": {n: [s / unit for s in one.seconds] for n, one in found.items()},
        "memory kept": {n: [one.kept / kept] for n, one in found.items()},
        "test AUC": {n: one.auc for n, one in found.items()},
    }
    for axes, (label, values) in zip(panels, columns.items(), strict=True):
        axes.axvline(
            statistics.median(values[PLAIN]), color=COLOURS[PLAIN], linestyle="--", linewidth=1
        )
        for place, (name, mine) in enumerate(values.items()):
            axes.plot(mine, [place] * len(mine), "o", color=COLOURS[name], markersize=4, alpha=0.3)
            axes.plot(statistics.median(mine), place, "D", color=COLOURS[name], markersize=6)
        if label != "test AUC":
            axes.set_xlim(left=0)
        tidy(axes, x=label)
    panels[0].set_yticks(range(len(found)), [TITLES[name] for name in found])
    panels[0].invert_yaxis()
    return figure


def notes(setting: Setting, runs: Mapping[Key, Run], batch: int) -> list[str]:
    """What differs from the paper, but for what all experiments on x-rays say."""
    base = xrays.NETWORKS[setting.scale]["resnet"].title
    most, least = (len(pick(runs, approach=name)) for name in (PLAIN, "gabor"))
    fewer = f" ({least} of those whose scores no claim is about)" if least < most else ""
    return [
        f"The paper ticks boxes; here {most} networks of each kind{fewer} are trained and "
        f"measured. All but scattering are a {base}: its first {rivals.GABOR_LAYERS} spatial "
        "layers as Gabor functions of learned parameters; "
        f"{rivals.PRUNED:.0%} of the weights of its convolutions gone by magnitude half-way "
        f"through training; fixed; fixed with {ZERO:.0%} of the kernels zeroed and "
        "pruned before the first step, and trained at twice the rate.",
        "Scattering is of second order with Morlet wavelets in plain PyTorch, with a learned "
        "classifier of 1x1 convolutions: a much smaller network.",
        f"Time and memory are those of a batch of {batch} on the CPU. Weights pruned by magnitude "
        "are stored and multiplied as zeros.",
        "ExplainFix is applied to the kernels as they are after training: Gabor functions and "
        "masks are made plain first.",
    ]


EXPERIMENT = Experiment(
    name="landscape",
    title="Five approaches, measured",
    reference="Table 1",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "15 s",
        "cpu": "about an hour after classification",
        "paper": "about 8 GPU-days after classification",
    },
    train=train,
    judge=judge,
    measure=measure_focus,
)
