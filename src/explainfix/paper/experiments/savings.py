"""savings: how much sooner an epoch is over with fixed and pruned filters, and why."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from ...explanation.saliency import saliency
from ...fix import fix_
from ...lab.data.dataset import collate
from ...lab.measure.statistics import mean_interval
from ...lab.measure.timing import time_training
from ...lab.run.folder import Run
from ...prune import channel_prune_
from ..contrast import Measure, Scores, pick, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import Figure, new_figure, tidy
from ..networks import count_parameters, create_seeded, factory
from ..scores import curve
from ..setting import Setting
from ..verdict import InWords, Verdict, decide, untested
from ..xrays import NETWORKS, Network, configure, model_name, rate, starts
from ..xrays import notes as shared_notes
from ..zeroing import ROUNDS, ZeroedKey, shares_saved, zeroed_options

ZEROED = {"resnet": 0.99, "densenet": 0.90}  # before pruning; EfficientNet is fixed only
PAPER = {  # Table 3: spatial parameters in millions, their share, time saved
    "resnet": (11.3, 48, 0.17),
    "densenet": (2.1, 31, 0.09),
    "efficientnet": (0.2, 5, 0.03),
}
SAVED = [f"{saved:.0%} for {NETWORKS['paper'][f].title}" for f, (*_, saved) in PAPER.items()]
NEAR = 0.05  # of a step's time: what is nearer to the paper's share is the same
LEARNED, FIXED, PRUNED = KINDS = ("learned", "fixed", "fixed, pruned")
Times = dict[str, list[float]]  # by kind: seconds, round by round


def say_shares(scores: Scores) -> str:
    """The mean share saved of every network."""
    names = dict.fromkeys(key.name for key in scores)
    return ", ".join(f"{name} {np.mean(pick(scores, name=name)):.0%}" for name in names)


def judge_counts(scores: Scores) -> Verdict:
    """Against the paper's table, rounded as it is."""
    counts = {f: [int(n) for n in pick(scores, name=f)] for f in PAPER}  # all, spatial
    rounded = {f: (round(s / 1e6, 1), round(100 * s / all_)) for f, (all_, s) in counts.items()}
    return decide(
        ", ".join(f"{millions}e6 ({share}%)" for millions, share in rounded.values()),
        agrees=all(rounded[family] == PAPER[family][:2] for family in PAPER),
    )


def judge_amount(scores: Scores) -> Verdict:
    """What is saved less the paper's number, for every network."""
    titles = {NETWORKS["paper"][f].title: saved for f, (*_, saved) in PAPER.items()}
    off = {key: value - titles.get(key.name, np.nan) for key, value in scores.items()}
    if not all(map(np.isfinite, off.values())):
        return untested("timed on tiny networks, not on the paper's")
    return Verdict(AS_MUCH.judge(off).word, say_shares(scores))


_WORDS = {"name": "network", "number": "round"}
_STEP = Measure("the share of a learned step's time that is saved", words=_WORDS)
FASTER = (_STEP.each() > 0).for_every("name")
AS_MUCH = (
    Measure("that share, less the paper's number", words=_WORDS)
    .each()
    .within(NEAR)
    .for_every("name")
)
CLAIMS = (
    Claim(
        "parameters",
        "Spatial filters are half, a third and a twentieth of the three networks' parameters.",
        ", ".join(f"{millions}e6 ({share}%)" for millions, share, _ in PAPER.values()),
        InWords(
            "Agrees if our counts, for one grey channel and five findings, round to all six of "
            "these numbers; disagrees otherwise.",
            judge_counts,
        ),
        kind="construction",
        on="parameters",
    ),
    Claim(
        "faster",
        "A fixed network (pruned too, but for EfficientNet) always trains faster than a learned.",
        "always faster",
        InWords(str(FASTER), lambda scores: Verdict(FASTER.judge(scores).word, say_shares(scores))),
        on="time saved",
    ),
    Claim(
        "saved",
        f"The time saved is {', '.join(SAVED)}.",
        ", ".join(f"{saved:.0%}" for *_, saved in PAPER.values()),
        InWords(str(AS_MUCH), judge_amount),
        on="time saved",
    ),
)


def train(setting: Setting) -> dict[ZeroedKey, Run]:
    """At paper scale whole epochs are timed; else steps, when judging."""
    if setting.scale != "paper":
        return {}
    shared: dict[str, Any] = {"epochs": 20, "evaluate_every": 20}
    twice = {"prune": True, "lr": 2 * rate(setting)}
    configs = {}
    for start in starts(setting, "pretrained"):
        for method in ("learned", "unchanged"):
            key = ZeroedKey(start.family, method, 0.0, 0)
            configs[key] = configure(setting, start, method, 0, **shared)
        if share := ZEROED.get(start.family):
            pruned = shared | twice | zeroed_options(setting, share)
            key = ZeroedKey(start.family, "unchanged", share, 0)
            configs[key] = configure(setting, start, "unchanged", 0, **pruned)
    return setting.sweep(configs)


def judge(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> Evidence:
    """Count parameters, and compare times."""
    counts = {  # for one grey channel and five findings
        family: count_parameters(model_name(setting, network), num_classes=5, in_channels=1)
        for family, network in NETWORKS["paper"].items()
    }
    times = time_epochs(runs) if runs else time_networks(setting)
    titles = {family: network.title for family, network in timed(setting).items()}
    saved = {titles[f]: shares_saved(one[ours(one)], one[LEARNED]) for f, one in times.items()}
    return Evidence(
        scores={
            "parameters": samples(counts),
            "time saved": samples(saved),
        },
        tables={
            "Parameters, and those in spatial filters": parameter_table(counts),
            "Seconds, and the share saved against learned": time_table(times, titles),
        },
        figures={
            "Time against that of a learned network: rounds (dots) and their median": plot(
                times, titles
            )
        },
        notes=notes(setting, runs),
    )


def timed(setting: Setting) -> Mapping[str, Network]:
    """The networks whose times are measured; at cpu scale too they are the paper's."""
    return NETWORKS["smoke" if setting.scale == "smoke" else "paper"]


def ours(times: Mapping[str, Any]) -> str:
    """What the paper calls ExplainFix: fixed and pruned, or fixed where nothing is pruned."""
    return PRUNED if PRUNED in times else FIXED


def time_epochs(runs: Mapping[ZeroedKey, Run]) -> dict[str, Times]:
    """Seconds of each epoch of the runs."""
    found: dict[str, Times] = {}
    for key, run in runs.items():
        kind = LEARNED if key.method == "learned" else PRUNED if key.zeroed else FIXED
        found.setdefault(key.family, {})[kind] = curve(run, "seconds")[1].tolist()
    return found


def time_networks(setting: Setting) -> dict[str, Times]:
    """Seconds of training steps on real x-rays; the networks of a family take turns."""
    chosen = timed(setting)
    rounds = setting.pick(smoke=3, cpu=ROUNDS, paper=0)
    batches = x_ray_batches(setting)
    found = {}
    for family in setting.tracked(list(chosen), "Timing"):
        networks = contestants(chosen[family], ZEROED.get(family), batches)
        found[family] = time_training(networks, batches[0][0], rounds=rounds, narrow=0).times
    return found


def x_ray_batches(setting: Setting) -> list[tuple[Tensor, Tensor]]:
    """Three batches of four training images, as large as the data has them."""
    data = setting.open_data("xrays")
    images = data.split("train")
    samples = [data.prepare(images[i]) for i in range(12)]
    return [collate(samples[i : i + 4]) for i in range(0, 12, 4)]


def contestants(
    network: Network, zeroed: float | None, batches: list[tuple[Tensor, Tensor]]
) -> dict[str, nn.Module]:
    """A network learned, fixed, and fixed and pruned."""
    name = network.model if ":" in network.model else factory(network.model)
    learned = create_seeded(name, num_classes=batches[0][1].shape[1], in_channels=1)
    fixed = copy.deepcopy(learned)
    fix_(fixed, "unchanged")
    found = {LEARNED: learned, FIXED: fixed}
    if zeroed is not None:
        pruned = copy.deepcopy(fixed)
        known = [(x, y.nan_to_num()) for x, y in batches]
        channel_prune_(pruned, batches[0][0][:1], saliency(pruned, known), zero=zeroed)
        found[PRUNED] = pruned
    return found


def parameter_table(counts: Mapping[str, tuple[int, int]]) -> Rows:
    """A row per network."""
    return [
        {
            "network": NETWORKS["paper"][family].title,
            "parameters": total,
            "spatial": spatial,
            "share": f"{spatial / total:.0%}",
            "paper": f"{PAPER[family][0]}e6 ({PAPER[family][1]}%)",
        }
        for family, (total, spatial) in counts.items()
    ]


def time_table(times: Mapping[str, Times], titles: Mapping[str, str]) -> Rows:
    """A row per network and what was done to it."""
    rows: Rows = []
    for family, found in times.items():
        for name, seconds in found.items():
            row: dict[str, Any] = {
                "network": titles[family],
                "filters": name,
                "seconds": statistics.median(seconds),
            }
            if name != LEARNED:
                saved = mean_interval(shares_saved(seconds, found[LEARNED]))
                row["saved"] = f"{saved.mean:.1%}"
                row["95% t interval"] = f"{saved.low:.1%} to {saved.high:.1%}"
            if name == ours(found):
                row["paper"] = f"{PAPER[family][2]:.0%}"
            rows.append(row)
    return rows


def plot(times: Mapping[str, Times], titles: Mapping[str, str]) -> Figure:
    """Ratios to learned."""
    figure = new_figure(6.0, 3.0)
    axes = figure.subplots()
    names, place = [], 0
    for family, found in times.items():
        for name, seconds in found.items():
            if name == LEARNED:
                continue
            ratios = np.array(seconds) / np.array(found[LEARNED])
            axes.plot([place] * len(ratios), ratios, "o", color="#3b6fc4", alpha=0.3, markersize=4)
            axes.plot([place - 0.2, place + 0.2], [np.median(ratios)] * 2, color="#3b6fc4")
            names.append(f"{titles[family]}\n{name}")
            place += 1
    axes.axhline(1.0, color="#7c8594", linewidth=1, linestyle="--")
    axes.set_xticks(range(place), names)
    axes.set_ylim(bottom=0)
    tidy(axes, y="time / learned")
    return figure


def notes(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> list[str]:
    """What differs from the paper."""
    if runs:
        return [
            *shared_notes(setting, runs),
            "Seconds of whole epochs on this machine; the paper's are of an RTX 2080 Ti.",
        ]
    said = [
        "Single steps of training with batches of four, learned, fixed and pruned taking turns in "
        "one process on this machine's CPU, instead of 20 epochs each on an RTX 2080 Ti. Times "
        "mean little if the machine is busy.",
        "The networks have random weights, and so other kernels are pruned than in the paper.",
        "What a step on a CPU saves need not be what an epoch on a GPU does: a verdict on the "
        "amount is one on this machine.",
    ]
    if setting.scale == "smoke":
        said.append("Tiny networks are timed; parameters are those of the paper's networks.")
    else:
        size = x_ray_batches(setting)[0][0].shape[-1]
        said.append(f"X-rays of {size} pixels, the paper's are crops of 320.")
    return said


EXPERIMENT = Experiment(
    name="savings",
    title="What fixed and pruned filters save",
    reference="Table 3, Fig. 11, Sec. 4.2",
    needs=("xrays",),
    claims=CLAIMS,
    cost={"smoke": "5 s", "cpu": "about 1 min on 2 cores", "paper": "about 14 GPU-hours"},
    train=train,
    judge=judge,
)
