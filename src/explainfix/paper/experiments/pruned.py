"""pruned: accuracy and time of fixed and learned networks against the share that is pruned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...fix import unfix_
from ...lab.data.dataset import collate
from ...lab.measure.statistics import mean_interval
from ...lab.measure.timing import time_training
from ...lab.run.config import RunConfig
from ...lab.run.folder import Run, build_model, open_data
from ...store import save
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import COLOURS, new_figure, tidy
from ..scores import curve, runs_of
from ..setting import Setting
from ..verdicts import above, compare_paired, every
from ..xrays import MARGIN, Start, finals, options, rate, train_methods
from ..xrays import notes as shared_notes
from .inference import begins
from .savings import ROUNDS, Times, share_saved

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Shares = dict[str, tuple[float, ...]]
SHARES: Shares = {"resnet": (0.9, 0.99, 0.999), "densenet": (0.8, 0.9)}  # zeroed before pruning
FEWER: Shares = {"resnet": (0.9, 0.99, 0.999), "densenet": (0.9,)}
TINY: Shares = {"resnet": (0.5, 0.9)}
KINDS = ("fixed", "learned")
INK = {"fixed": COLOURS["unchanged"], "learned": COLOURS["learned"]}

CLAIMS = (
    Claim(
        "equal",
        "Fixed pruned networks nearly equal the unpruned learned baseline, but for the smallest.",
        "nearly equal, 52 to 79% pruned",
        "Each fixed pruned run, but those of ResNet with the largest share, less the mean of its "
        f"network's learned baselines. Agrees if the 95% t interval of the test AUC lies above "
        f"-{MARGIN}, disagrees if it lies below -{MARGIN}, else undecided.",
    ),
    Claim(
        "learned",
        "Fixed pruned networks about equal learned networks pruned alike.",
        "about equal",
        "Fixed less learned for each network, share and seed, by the same rule.",
    ),
    Claim(
        "smallest",
        "Zeroing too many kernels, 99.9% of ResNet50's, costs some accuracy.",
        "modest loss at 86% pruned",
        "ResNet, fixed, with the largest share: agrees if its mean test AUC is below that of every "
        "learned baseline, disagrees if it is above their mean, else undecided.",
    ),
    Claim(
        "faster",
        "Fixed networks are always faster than learned ones, even if those are pruned alike.",
        "always faster",
        "The share of time that fixed pruned saves, round by round, against learned pruned and "
        "against unpruned: agrees if the 95% t interval lies above 0 for all networks and shares, "
        "disagrees if it lies below 0 for one, else undecided.",
    ),
)


@dataclass(frozen=True)
class Point:
    """A network with a share of its kernels zeroed, what that leaves dead pruned."""

    start: Start
    share: float

    def label(self, kind: str) -> str:
        """The runs of this point, to which the seed is added."""
        return self.start.label(f"{kind} {self.share}")


def points(setting: Setting) -> list[Point]:
    """All networks with all their shares."""
    shares = setting.pick(smoke=TINY, cpu=FEWER, paper=SHARES)
    found = [(start, shares[start.family]) for start in begins(setting) if start.family in shares]
    return [Point(start, share) for start, each in found for share in each]


def train(setting: Setting) -> dict[str, Run]:
    """Learned baselines; fixed pruned networks; and the same pruned networks, learned."""
    every_point = points(setting)
    used = list(dict.fromkeys(point.start.family for point in every_point))
    networks = [start for start in begins(setting) if start.family in used]
    baselines = range(setting.pick(smoke=2, cpu=2, paper=5))
    seeds = range(setting.pick(smoke=2, cpu=2, paper=1))
    runs = train_methods(setting, networks, ["learned"], baselines)
    twice = 2 * rate(setting)
    for point in every_point:
        found = train_methods(
            setting, [point.start], ["unchanged"], seeds, zero=point.share, prune=True, lr=twice
        )
        for s in seeds:
            runs[f"{point.label('fixed')} {s}"] = found[f"{point.start.label('unchanged')} {s}"]
    fixed = [(point, s) for point in every_point for s in seeds]
    learned = {}
    for point, s in setting.tracked(fixed, "Pruning"):
        file = pruned_file(setting, runs[f"{point.label('fixed')} {s}"])
        shared = options(setting) | {"lr": twice}
        learned[f"{point.label('learned')} {s}"] = RunConfig(model=str(file), seed=s, **shared)
    return runs | setting.sweep(learned)


def pruned_file(setting: Setting, run: Run) -> Path:
    """The network that a fixed pruned run began with, its filters learnable, in a file."""
    file = setting.folder / "weights" / f"pruned-{run.folder.name}.safetensors"
    if not setting.dry and not file.is_file():
        model = build_model(run.config, open_data(run.config))
        unfix_(model)
        file.parent.mkdir(parents=True, exist_ok=True)
        save(model, file)
    return file


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare accuracy and time."""
    every_point = points(setting)
    families = dict.fromkeys(point.start.family for point in every_point)
    times = {
        family: time_of(setting, runs, [p for p in every_point if p.start.family == family])
        for family in families
    }
    return Outcome(
        verdicts=verdicts(every_point, runs) | {"faster": judge_times(every_point, times)},
        tables={"Accuracy, size and time": table(every_point, runs, times)},
        figures={
            "Test AUC (left) and time against unpruned learned (right) by the share of the "
            "parameters that is pruned; dashed is the unpruned baseline": plot(
                every_point, runs, times
            )
        },
        notes=notes(setting, runs),
    )


def verdicts(every_point: list[Point], runs: Mapping[str, Run]) -> dict[str, Verdict]:
    """The claims on accuracy, by their rules."""
    base = {p.start.family: finals(runs, p.start.label("learned")) for p in every_point}
    largest = max((p for p in every_point if p.start.family == "resnet"), key=lambda p: p.share)
    others = [point for point in every_point if point != largest]
    leads = [
        auc - float(np.mean(base[point.start.family]))
        for point in others
        for auc in finals(runs, point.label("fixed"))
    ]
    equal = compare_paired(leads, np.zeros(len(leads)))
    fixed, learned = (
        [auc for point in every_point for auc in finals(runs, point.label(kind))] for kind in KINDS
    )
    alike = compare_paired(fixed, learned)
    smallest = float(np.mean(finals(runs, largest.label("fixed"))))
    theirs = base["resnet"]
    word: Word = "undecided"
    if smallest < min(theirs):
        word = "agrees"
    elif smallest > np.mean(theirs):
        word = "disagrees"
    return {
        "equal": Verdict(above(equal.interval, -MARGIN), str(equal)),
        "learned": Verdict(above(alike.interval, -MARGIN), str(alike)),
        "smallest": Verdict(word, f"{smallest:.3f}, learned {np.mean(theirs):.3f}"),
    }


def time_of(setting: Setting, runs: Mapping[str, Run], mine: list[Point]) -> Times:
    """Seconds of a network, unpruned and at its points: epochs, or steps that take turns."""
    labels = {"learned": mine[0].start.label("learned")}
    labels |= {f"{kind} {p.share}": p.label(kind) for p in mine for kind in KINDS}
    first = {name: runs_of(runs, label)[0] for name, label in labels.items()}
    if setting.scale == "paper":
        return {name: curve(run, "seconds")[1].tolist() for name, run in first.items()}
    config = first["learned"].config
    data = open_data(config)
    images = data.split(config.train_split)
    x, _ = collate([data.prepare(images[i]) for i in range(config.batch_size)])
    networks = {name: run.model("last") for name, run in first.items()}
    rounds = setting.pick(smoke=3, cpu=ROUNDS, paper=0)
    return time_training(networks, x, rounds=rounds, narrow=0).times


def judge_times(every_point: list[Point], times: Mapping[str, Times]) -> Verdict:
    """Is fixed faster than learned, pruned alike or not at all?"""
    words: list[Word] = []
    alike, whole = [], []
    for point in every_point:
        found = times[point.start.family]
        fixed, learned = (np.array(found[f"{kind} {point.share}"]) for kind in KINDS)
        against = mean_interval(1 - fixed / learned)
        unpruned = share_saved(found, f"fixed {point.share}")
        words += [above(against), above(unpruned)]
        alike.append(against.mean)
        whole.append(unpruned.mean)
    said = f"saves {min(whole):.0%} to {max(whole):.0%}; pruned alike, {min(alike):.0%} to "
    return Verdict(every(words), f"{said}{max(alike):.0%}")


def table(
    every_point: list[Point], runs: Mapping[str, Run], times: Mapping[str, Times]
) -> pd.DataFrame:
    """A row per network, share and kind."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for start in dict.fromkeys(point.start.title for point in every_point):
        mine = [point for point in every_point if point.start.title == start]
        base, seconds = mine[0].start.label("learned"), times[mine[0].start.family]
        rows.append(_row(start, "learned", None, runs, base, base) | _seconds(seconds, "learned"))
        for point in mine:
            for kind in KINDS:
                row = _row(start, f"{kind}, pruned", point.share, runs, point.label(kind), base)
                rows.append(row | _seconds(seconds, f"{kind} {point.share}"))
    return pd.DataFrame(rows).astype(object).where(lambda cells: cells.notna(), None)


def _row(
    network: str, filters: str, share: float | None, runs: Mapping[str, Run], mine: str, base: str
) -> dict[str, Any]:
    auc, theirs = finals(runs, mine), finals(runs, base)
    return {
        "network": network,
        "filters": filters,
        "zeroed": None if share is None else f"{100 * share:g}%",
        "pruned": None if share is None else f"{pruned_share(runs, mine, base):.0%}",
        "runs": len(auc),
        "AUC": float(np.mean(auc)),
        "less learned": None if share is None else float(np.mean(auc) - np.mean(theirs)),
    }


def _seconds(times: Times, name: str) -> dict[str, Any]:
    saved = None if name == "learned" else f"{share_saved(times, name).mean:.0%}"
    return {"seconds": float(np.median(times[name])), "time saved": saved}


def pruned_share(runs: Mapping[str, Run], mine: str, base: str) -> float:
    """The share of the parameters that is gone, mean over runs."""
    left = np.mean([run.result["parameters"] for run in runs_of(runs, mine)])
    return float(1 - left / runs_of(runs, base)[0].result["parameters"])


def plot(every_point: list[Point], runs: Mapping[str, Run], times: Mapping[str, Times]) -> Figure:
    """Accuracy and time, a line per network and kind."""
    figure = new_figure(7.0, 3.0)
    left, right = figure.subplots(1, 2)
    looks = dict(zip(times, (("-", "o"), (":", "s")), strict=False))
    for family, (style, marker) in looks.items():
        mine = [point for point in every_point if point.start.family == family]
        base = mine[0].start.label("learned")
        name = mine[0].start.title.partition(",")[0]
        left.axhline(np.mean(finals(runs, base)), color="#7c8594", linewidth=0.8, linestyle="--")
        for kind in KINDS:
            x = [100 * pruned_share(runs, point.label(kind), base) for point in mine]
            auc = [np.mean(finals(runs, point.label(kind))) for point in mine]
            ratio = [1 - share_saved(times[family], f"{kind} {p.share}").mean for p in mine]
            look = {"color": INK[kind], "linestyle": style, "marker": marker, "markersize": 4}
            left.plot(x, auc, label=f"{name}, {kind}", **look)
            right.plot(x, ratio, **look)
    right.axhline(1.0, color="#7c8594", linewidth=0.8, linestyle="--")
    right.set_ylim(bottom=0)
    left.set_ylabel("test AUC")
    right.set_ylabel("time / unpruned learned")
    figure.legend(loc="outside lower center", ncols=2 * len(looks), frameon=False, fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("% of the parameters pruned")
        tidy(axes)
    return figure


def notes(setting: Setting, runs: Mapping[str, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    said.append(
        f"Pruned networks learn at {2 * rate(setting):g}, twice the rate of unpruned ones: the "
        "paper says twice, and gives 0.16, which is twice neither of its rates."
    )
    if setting.scale != "paper":
        said.append(
            "Times are of single steps on this machine's CPU, all networks of a family taking "
            "turns, the paper's of epochs on an RTX 2080 Ti."
        )
    if setting.scale == "cpu":
        said.append(
            "Pruned from random weights, the paper's from ImageNet's, DenseNet121 with one share "
            "only. Two runs for each point and baseline, the paper has one and five."
        )
    if setting.scale == "smoke":
        said.append("One network, with smaller shares than the paper's.")
    return said


register(
    Experiment(
        name="pruned",
        title="Smaller, faster and as accurate: pruned networks",
        reference="Fig. L.1, Fig. 11, Sec. 4.5",
        needs=("xrays",),
        claims=CLAIMS,
        cost={
            "smoke": "10 s",
            "cpu": "about 12 min on 2 cores after classification",
            "paper": "about 6 GPU-days",
        },
        train=train,
        judge=judge,
    )
)
