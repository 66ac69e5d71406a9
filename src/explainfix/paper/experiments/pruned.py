"""pruned: accuracy and time of fixed and learned networks against the share that is pruned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...fix import unfix_
from ...lab.data.dataset import collate
from ...lab.measure.timing import time_training
from ...lab.run.config import RunConfig
from ...lab.run.folder import Run, build_model, open_data
from ...store import save
from ..contrast import ANY, Measure, Scores, Verdict, decide, mean_of, pick, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, Figure, new_figure, tidy
from ..scores import MARGIN, curve
from ..setting import Setting
from ..xrays import Start, best_starts, final, finals, options, rate, train_methods
from ..xrays import notes as shared_notes
from ..zeroing import AUC, ROUNDS, ZeroedKey, shares_saved, train_zeroed, with_none_zeroed

Shares = dict[str, tuple[float, ...]]
SHARES: Shares = {"resnet": (0.9, 0.99, 0.999), "densenet": (0.8, 0.9)}  # zeroed before pruning
FEWER: Shares = {"resnet": (0.9, 0.99, 0.999), "densenet": (0.9,)}
TINY: Shares = {"resnet": (0.5, 0.9)}
KINDS = {"unchanged": "fixed", "learned": "learned"}  # what was pruned, by its method

Point = tuple[Start, float]  # a network, and the share of its kernels that is zeroed
Pair = tuple[str, float]  # of a network: what its filters are, and that share
Times = dict[Pair, list[float]]  # seconds, round by round
UNPRUNED: Pair = ("learned", 0.0)

fixed = AUC.mean("fixed and pruned", method="unchanged")
EQUAL = (
    fixed - AUC.mean("the mean of its learned baselines", method="learned", zeroed=0.0, seed=ANY)
    > -MARGIN
)
ALIKE = fixed - AUC.mean("learned and pruned alike", method="learned") > -MARGIN
SAVED = Measure(
    "the share of time that fixed pruned networks save, against learned ones pruned alike and "
    "against unpruned ones",
    words={"name": "network, share and rival", "number": "round"},
)
FASTER = (SAVED.each() > 0).for_every("name")
CLAIMS = (
    Claim(
        "equal",
        "Fixed pruned networks nearly equal the unpruned learned baseline, but for the smallest.",
        "nearly equal, 52 to 79% pruned",
        f"{EQUAL} ResNet with the largest share is left out.",
    ),
    Claim(
        "learned",
        "Fixed pruned networks about equal learned networks pruned alike.",
        "about equal",
        ALIKE,
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
        FASTER,
    ),
)


def points(setting: Setting) -> list[Point]:
    """All networks with all their shares."""
    shares = setting.pick(smoke=TINY, cpu=FEWER, paper=SHARES)
    return [
        (start, share) for start in best_starts(setting) for share in shares.get(start.family, ())
    ]


def train(setting: Setting) -> dict[ZeroedKey, Run]:
    """Learned baselines; fixed pruned networks; and the same pruned networks, learned."""
    networks = {start.family: start for start, _ in points(setting)}
    baselines = range(setting.pick(smoke=2, cpu=2, paper=5))
    seeds = range(setting.pick(smoke=2, cpu=2, paper=1))
    runs = with_none_zeroed(train_methods(setting, networks.values(), ["learned"], baselines))
    twice = {"lr": 2 * rate(setting)}
    fixed: dict[ZeroedKey, Run] = {}
    for start, share in points(setting):
        fixed |= train_zeroed(setting, start, share, seeds, prune=True, **twice)
    learned = {
        replace(key, method="learned"): RunConfig(
            model=str(pruned_file(setting, run)), seed=key.seed, **(options(setting) | twice)
        )
        for key, run in setting.tracked(list(fixed.items()), "Pruning")
    }
    return runs | fixed | setting.sweep(learned)


def pruned_file(setting: Setting, run: Run) -> Path:
    """The network that a fixed pruned run began with, its filters learnable, in a file."""
    file = setting.folder / "weights" / f"pruned-{run.folder.name}.safetensors"
    if not setting.dry and not file.is_file():
        model = build_model(run.config, open_data(run.config))
        unfix_(model)
        file.parent.mkdir(parents=True, exist_ok=True)
        save(model, file)
    return file


def judge(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> Evidence:
    """Compare accuracy and time."""
    scores, chosen = finals(runs), points(setting)
    families = dict.fromkeys(start.family for start, _ in chosen)
    times = {family: time_of(setting, runs, family) for family in families}
    return Evidence(
        verdicts=verdicts(scores) | {"faster": judge_times(times)},
        tables={"Accuracy, size and time": table(chosen, runs, times)},
        figures={
            "Test AUC (left) and time against unpruned learned (right) by the share of the "
            "parameters that is pruned; dashed is the unpruned baseline": plot(chosen, runs, times)
        },
        notes=notes(setting, runs),
    )


def verdicts(scores: Scores) -> dict[str, Verdict]:
    """The claims on accuracy, by their rules."""
    largest = ("resnet", max(key.zeroed for key in scores if key.family == "resnet"))
    others = {k: v for k, v in scores.items() if (k.family, k.zeroed) != largest}
    smallest = mean_of(scores, family="resnet", method="unchanged", zeroed=largest[1])
    theirs = pick(scores, family="resnet", method="learned", zeroed=0.0)
    mean = float(np.mean(theirs))
    return {
        "equal": EQUAL.judge(others),
        "learned": ALIKE.judge(scores),
        "smallest": decide(
            f"{smallest:.3f}, learned {mean:.3f}",
            agrees=smallest < min(theirs),
            disagrees=smallest > mean,
        ),
    }


def time_of(setting: Setting, runs: Mapping[ZeroedKey, Run], family: str) -> Times:
    """Seconds of a network, unpruned and pruned: epochs, or steps that take turns."""
    first = {
        (key.method, key.zeroed): run
        for key, run in runs.items()
        if key.family == family and key.seed == 0
    }
    if setting.scale == "paper":
        return {pair: curve(run, "seconds")[1].tolist() for pair, run in first.items()}
    config = first[UNPRUNED].config
    data = open_data(config)
    images = data.split(config.train_split)
    x, _ = collate([data.prepare(images[i]) for i in range(config.batch_size)])
    networks = {str(pair): run.model("last") for pair, run in first.items()}
    rounds = setting.pick(smoke=3, cpu=ROUNDS, paper=0)
    seconds = time_training(networks, x, rounds=rounds, narrow=0).times
    return {pair: seconds[str(pair)] for pair in first}


def judge_times(times: Mapping[str, Times]) -> Verdict:
    """Is fixed faster than learned, pruned alike or not at all?"""
    alike, whole = {}, {}
    for family, found in times.items():
        for (method, share), seconds in found.items():
            if method == "unchanged":
                alike[f"{family} {share}, alike"] = shares_saved(seconds, found["learned", share])
                whole[f"{family} {share}"] = shares_saved(seconds, found[UNPRUNED])
    low, high, least, most = (
        f"{end(saved.mean() for saved in group.values()):.0%}"
        for group in (whole, alike)
        for end in (min, max)
    )
    word = FASTER.judge(samples(alike | whole)).word
    return Verdict(word, f"saves {low} to {high}; pruned alike, {least} to {most}")


def table(
    chosen: Sequence[Point], runs: Mapping[ZeroedKey, Run], times: Mapping[str, Times]
) -> Rows:
    """A row per network, share and kind; the unpruned network first."""
    rows: Rows = []
    for start, shares in by_network(chosen):
        found, base = times[start.family], unpruned(runs, start)
        for method, share in [UNPRUNED, *((m, share) for share in shares for m in KINDS)]:
            mine = pick(runs, family=start.family, method=method, zeroed=share)
            row: dict[str, Any] = {"network": start.title, "filters": "learned"}
            row |= dict.fromkeys(("zeroed", "pruned"))
            row |= {"runs": len(mine), "AUC": _auc(mine), "less learned": None}
            row["seconds"] = float(np.median(found[method, share]))
            if share:
                saved = shares_saved(found[method, share], found[UNPRUNED])
                row |= {
                    "filters": f"{KINDS[method]}, pruned",
                    "zeroed": f"{100 * share:g}%",
                    "pruned": f"{pruned_share(mine, base):.0%}",
                    "less learned": row["AUC"] - _auc(base),
                    "time saved": f"{saved.mean():.0%}",
                }
            rows.append(row)
    return rows


def by_network(chosen: Sequence[Point]) -> list[tuple[Start, list[float]]]:
    """Each network with its shares."""
    starts = {start.family: start for start, _ in chosen}
    return [(s, [share for other, share in chosen if other == s]) for s in starts.values()]


def unpruned(runs: Mapping[ZeroedKey, Run], start: Start) -> list[Run]:
    """The learned baselines of a network."""
    return pick(runs, family=start.family, method="learned", zeroed=0.0)


def pruned_share(mine: Sequence[Run], base: Sequence[Run]) -> float:
    """The share of the parameters that is gone, mean over runs."""
    left = np.mean([run.result["parameters"] for run in mine])
    return float(1 - left / base[0].result["parameters"])


def _auc(runs: Sequence[Run]) -> float:
    return float(np.mean([final(run) for run in runs]))


def plot(
    chosen: Sequence[Point], runs: Mapping[ZeroedKey, Run], times: Mapping[str, Times]
) -> Figure:
    """Accuracy and time, a line per network and kind."""
    figure = new_figure(7.0, 3.0)
    left, right = figure.subplots(1, 2)
    networks = by_network(chosen)
    for (start, shares), (style, marker) in zip(networks, (("-", "o"), (":", "s")), strict=False):
        base, found = unpruned(runs, start), times[start.family]
        name = start.title.partition(",")[0]
        left.axhline(_auc(base), color="#7c8594", linewidth=0.8, linestyle="--")
        for method, kind in KINDS.items():
            mine = [pick(runs, family=start.family, method=method, zeroed=s) for s in shares]
            x = [100 * pruned_share(group, base) for group in mine]
            ratio = [1 - shares_saved(found[method, s], found[UNPRUNED]).mean() for s in shares]
            look = {"color": COLOURS[method], "linestyle": style, "marker": marker, "markersize": 4}
            left.plot(x, [_auc(group) for group in mine], label=f"{name}, {kind}", **look)
            right.plot(x, ratio, **look)
    right.axhline(1.0, color="#7c8594", linewidth=0.8, linestyle="--")
    right.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2 * len(networks), frameon=False, fontsize=8)
    for axes, what in ((left, "test AUC"), (right, "time / unpruned learned")):
        tidy(axes, x="% of the parameters pruned", y=what)
    return figure


def notes(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> list[str]:
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


EXPERIMENT = Experiment(
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
