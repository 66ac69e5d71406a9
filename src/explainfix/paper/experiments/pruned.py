"""pruned: accuracy and time of fixed and learned networks against the share that is pruned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...lab.data.dataset import collate
from ...lab.measure.timing import time_training
from ...lab.run.folder import Run, open_data
from ..contrast import ANY, Measure, Scores, pick, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, Figure, new_figure, tidy
from ..scores import MARGIN, Array, curve
from ..setting import Setting
from ..verdict import InWords, Verdict, difference, signed
from ..xrays import Start, best_starts, configure, final, finals, rate, seeds
from ..xrays import notes as shared_notes
from ..zeroing import make_pruned, pruned_file, shares_saved, zeroed_options

Shares = dict[str, tuple[float, ...]]
SHARES: Shares = {"resnet": (0.9, 0.99, 0.999), "densenet": (0.8, 0.9)}  # zeroed before pruning
FEWER: Shares = {"resnet": (0.99, 0.999), "densenet": (0.9,)}
TINY: Shares = {"resnet": (0.5, 0.9)}
KINDS = {"unchanged": "fixed", "learned": "learned"}  # what was pruned, by its method
USUAL, TWICE = "usual", "twice"  # the rate that a network learns at
ROUNDS = 300  # of training steps: 30 tell what was pruned alike apart to 1.6%, and no better


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    family: str
    method: str
    zeroed: float  # the share of its kernels
    rate: str
    seed: int


Point = tuple[Start, float]  # a network, and the share of its kernels that is zeroed
Pair = tuple[str, float]  # of a network: what its filters are, and that share
Times = dict[Pair, list[float]]  # seconds, round by round
UNPRUNED: Pair = ("learned", 0.0)


def at_the_usual_rate(shares: Sequence[float]) -> float:
    """The share at which a fixed pruned network is trained at the usual rate too."""
    return shares[-2] if len(shares) > 1 else shares[-1]


AUC = Measure("test AUC", Key)
fixed = AUC.mean("fixed and pruned, at twice the rate", method="unchanged", rate=TWICE)
learned = {
    speed: AUC.mean(
        f"the mean of its learned baselines at {word} rate",
        method="learned", zeroed=0.0, rate=speed, seed=ANY,
    )
    for speed, word in ((USUAL, "the usual"), (TWICE, "twice the"))
}  # fmt: skip
alike = AUC.mean("learned and pruned alike", method="learned", rate=TWICE)
slow = AUC.mean("fixed and pruned, at the usual rate", method="unchanged", rate=USUAL)
EQUAL, FAIR = (fixed - learned[speed] > -MARGIN for speed in (USUAL, TWICE))


def _but_the_smallest(scores: Scores) -> Scores:
    largest = ("resnet", max((k.zeroed for k in scores if k.family == "resnet"), default=0.0))
    return {k: v for k, v in scores.items() if (k.family, k.zeroed) != largest}


def judge_smallest(scores: Scores) -> Verdict:
    """ResNet with the largest share, fixed, against its learned baselines."""
    mine = {key: score for key, score in scores.items() if key.family == "resnet"}
    largest = max((key.zeroed for key in mine), default=0.0)
    smallest = AUC.mean("smallest", method="unchanged", zeroed=largest, rate=TWICE)
    return (learned[USUAL] - smallest).exceeds(MARGIN).judge(mine)


SAVED = Measure(
    "the share of time that fixed pruned networks save, against learned ones pruned alike and "
    "against unpruned ones",
    words={"name": "network, share and rival", "number": "round"},
)
FASTER = (SAVED.each() > 0).for_every("name")


def judge_times(scores: Scores) -> Verdict:
    """Is fixed faster than learned, pruned alike or not at all?"""
    names = dict.fromkeys(key.name for key in scores)
    means = {name: np.mean(pick(scores, name=name)) for name in names}
    groups = [
        [mean for name, mean in means.items() if name.endswith(ALIKE) == also]
        for also in (False, True)
    ]
    low, high, least, most = (f"{end(g):.0%}" for g in groups for end in (min, max))
    word = FASTER.judge(scores).word
    return Verdict(word, f"saves {low} to {high}; pruned alike, {least} to {most}")


ALIKE = ", alike"
CLAIMS = (
    Claim(
        "equal",
        "Fixed pruned networks nearly equal the unpruned learned baseline, but for the smallest.",
        "nearly equal, 52 to 79% pruned",
        InWords(
            f"{EQUAL} ResNet with the largest share is left out.",
            lambda scores: EQUAL.judge(_but_the_smallest(scores)),
        ),
        on="AUC",
    ),
    Claim(
        "fair",
        "They do so too if the unpruned baseline learns at twice the rate, as they do.",
        "not said",
        InWords(
            f"{FAIR} ResNet with the largest share is left out.",
            lambda scores: FAIR.judge(_but_the_smallest(scores)),
        ),
        kind="beyond",
        on="AUC",
    ),
    Claim(
        "learned",
        "Fixed pruned networks about equal learned networks pruned alike.",
        "about equal",
        fixed - alike > -MARGIN,
        on="AUC",
    ),
    Claim(
        "twice",
        "Pruned networks need twice the learning rate.",
        "necessary to double",
        (fixed - slow).exceeds(MARGIN).in_full(),
        on="AUC",
    ),
    Claim(
        "smallest",
        "Zeroing too many kernels, 99.9% of ResNet50's, costs some accuracy.",
        "modest loss at 86% pruned",
        InWords(
            "Test AUC, for each seed: the mean of ResNet's learned baselines at the usual rate "
            "less ResNet, fixed and pruned with the largest share. Agrees if the 95% t interval "
            f"lies above 0, disagrees if it lies below {MARGIN}, which is nothing that counts, "
            "else undecided.",
            judge_smallest,
        ),
        on="AUC",
    ),
    Claim(
        "faster",
        "Fixed networks are always faster than learned ones, even if those are pruned alike.",
        "always faster",
        InWords(str(FASTER), judge_times),
        on="time saved",
    ),
)


def points(setting: Setting) -> list[Point]:
    """All networks with all their shares."""
    shares = setting.pick(smoke=TINY, cpu=FEWER, paper=SHARES)
    return [
        (start, share) for start in best_starts(setting) for share in shares.get(start.family, ())
    ]


def train(setting: Setting) -> dict[Key, Run]:
    """Learned networks at both rates; fixed pruned ones; the same pruned networks, learned."""
    rates = {USUAL: {}, TWICE: {"lr": 2 * rate(setting)}}
    configs = {
        Key(start.family, "learned", 0.0, speed, seed): configure(
            setting, start, "learned", seed, **changes
        )
        for start, _ in by_network(points(setting))
        for speed, changes in rates.items()
        for seed in seeds(setting, start, paper=5)
    }
    for start, shares in by_network(points(setting)):
        for share in shares:
            both = (USUAL, TWICE) if share == at_the_usual_rate(shares) else (TWICE,)
            for speed in both:
                changes = zeroed_options(setting, share) | {"prune": True} | rates[speed]
                for seed in seeds(setting, start, paper=1):
                    key = Key(start.family, "unchanged", share, speed, seed)
                    configs[key] = configure(setting, start, "unchanged", seed, **changes)
    runs = setting.sweep(configs)
    begins = {start.family: start for start, _ in points(setting)}
    fixed = {k: r for k, r in runs.items() if k.method == "unchanged" and k.rate == TWICE}
    alike, after = {}, {}
    for key, run in fixed.items():
        whole = {"model": str(pruned_file(setting, run)), "weights": None} | rates[TWICE]
        key, start = replace(key, method="learned"), begins[key.family]
        alike[key] = configure(setting, start, "learned", key.seed, **whole)
        after[key] = run
    return runs | setting.sweep(alike, after=after, make=lambda some: make_pruned(setting, some))


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare accuracy and time."""
    chosen = points(setting)
    families = dict.fromkeys(start.family for start, _ in chosen)
    times = {family: time_of(setting, runs, family) for family in families}
    return Evidence(
        scores={"AUC": finals(runs), "time saved": samples(savings(times))},
        tables={
            "Accuracy, size and time": table(chosen, runs, times),
            "At the usual rate and at twice": rate_table(chosen, runs),
        },
        figures={
            "Test AUC (left) and time against unpruned learned (right) by the share of the "
            "parameters that is pruned; dashed is the unpruned baseline": plot(chosen, runs, times)
        },
        notes=notes(setting, runs),
    )


def time_of(setting: Setting, runs: Mapping[Key, Run], family: str) -> Times:
    """Seconds of a network, unpruned and pruned: epochs, or steps that take turns."""
    first = {
        (key.method, key.zeroed): run
        for key, run in runs.items()
        if key.family == family and key.seed == 0 and key.rate == (TWICE if key.zeroed else USUAL)
    }
    if setting.scale == "paper":
        return {pair: curve(run, "seconds")[1].tolist() for pair, run in first.items()}
    config = first[UNPRUNED].config
    data = open_data(config)
    images = data.split(config.train_split)
    x, _ = collate([data.prepare(images[i]) for i in range(config.batch_size)])
    networks = {str(pair): run.model("last") for pair, run in setting.with_weights(first).items()}
    rounds = setting.pick(smoke=3, cpu=ROUNDS, paper=0)
    seconds = time_training(networks, x, rounds=rounds, narrow=0).times
    return {pair: seconds[str(pair)] for pair in first}


def savings(times: Mapping[str, Times]) -> dict[str, Array]:
    """The share of time that fixed pruned networks save, by network, share and rival."""
    found = {}
    for family, one in times.items():
        for (method, share), seconds in one.items():
            if method == "unchanged":
                found[f"{family} {share}{ALIKE}"] = shares_saved(seconds, one["learned", share])
                found[f"{family} {share}"] = shares_saved(seconds, one[UNPRUNED])
    return found


def rate_table(chosen: Sequence[Point], runs: Mapping[Key, Run]) -> Rows:
    """What twice the rate does to the same network."""
    rows: Rows = []
    for start, shares in by_network(chosen):
        for method, share in [UNPRUNED, *(("unchanged", share) for share in shares)]:
            usual, twice = (
                [final(run) for run in pick(
                    runs, family=start.family, method=method, zeroed=share, rate=speed
                )]
                for speed in (USUAL, TWICE)
            )  # fmt: skip
            if usual:
                lead = difference(twice, usual) if len(usual) == len(twice) > 1 else None
                rows.append(
                    {
                        "network": start.title,
                        "filters": f"{KINDS[method]}, pruned" if share else "learned",
                        "zeroed": f"{100 * share:g}%" if share else None,
                        "usual": float(np.mean(usual)),
                        "twice": float(np.mean(twice)),
                        "twice less usual": signed(lead) if lead else None,
                    }
                )
    return rows


def table(chosen: Sequence[Point], runs: Mapping[Key, Run], times: Mapping[str, Times]) -> Rows:
    """A row per network, share and kind; the unpruned network first."""
    rows: Rows = []
    for start, shares in by_network(chosen):
        found, base = times[start.family], unpruned(runs, start)
        for method, share in [UNPRUNED, *((m, share) for share in shares for m in KINDS)]:
            speed = TWICE if share else USUAL
            mine = pick(runs, family=start.family, method=method, zeroed=share, rate=speed)
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


def unpruned(runs: Mapping[Key, Run], start: Start) -> list[Run]:
    """The learned baselines of a network."""
    return pick(runs, family=start.family, method="learned", zeroed=0.0, rate=USUAL)


def pruned_share(mine: Sequence[Run], base: Sequence[Run]) -> float:
    """The share of the parameters that is gone, mean over runs."""
    left = np.mean([run.result["parameters"] for run in mine])
    return float(1 - left / base[0].result["parameters"])


def _auc(runs: Sequence[Run]) -> float:
    return float(np.mean([final(run) for run in runs]))


def plot(chosen: Sequence[Point], runs: Mapping[Key, Run], times: Mapping[str, Times]) -> Figure:
    """Accuracy and time, a line per network and kind."""
    figure = new_figure(7.0, 3.0)
    left, right = figure.subplots(1, 2)
    networks = by_network(chosen)
    for (start, shares), (style, marker) in zip(networks, (("-", "o"), (":", "s")), strict=False):
        base, found = unpruned(runs, start), times[start.family]
        name = start.title.partition(",")[0]
        left.axhline(_auc(base), color="#7c8594", linewidth=0.8, linestyle="--")
        for method, kind in KINDS.items():
            mine = [
                pick(runs, family=start.family, method=method, zeroed=s, rate=TWICE) for s in shares
            ]
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


def notes(setting: Setting, runs: Mapping[Key, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    said.append(
        f"Pruned networks learn at {2 * rate(setting):g}, twice the rate of unpruned ones: the "
        "paper says twice, and gives 0.16, which is twice neither of its rates. An unpruned "
        "network at twice the rate, and pruned ones at the usual, tell the two apart."
    )
    said.append("Kernels are zeroed by their absolute gradients, as in the authors' code.")
    if setting.scale != "paper":
        said.append(
            "Times are of single steps on this machine's CPU, all networks of a family taking "
            "turns, the paper's of epochs on an RTX 2080 Ti."
        )
    if setting.scale == "cpu":
        said.append(
            "Pruned from random weights, the paper's from ImageNet's, with the larger shares "
            "only. Three or five runs for each point and baseline, the paper has one and five."
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
        "cpu": "about 1.5 h on 2 cores after classification",
        "paper": "about 6 GPU-days",
    },
    train=train,
    judge=judge,
)
