"""baselines: U-NetD against DeepLabV3+ with two encoders, in parameters and in Dice."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from ...lab.run.config import RunConfig
from ...lab.run.folder import Run
from ..contrast import Measure, Scores, pick, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import plot_groups
from ..microscopy import SEEDS, compared_on, settled
from ..networks import count_parameters
from ..scores import LATE, MARGIN, late_means
from ..setting import Setting
from ..verdict import InWords, Verdict, decide

TITLES = {
    "unetd": "U-NetD",
    "deeplabv3plus:mobilenet_v2": "DeepLabV3+ MobileNetV2",
    "deeplabv3plus:resnet50": "DeepLabV3+ ResNet50",
}
UNETD, MOBILENET, RESNET = TITLES
PAPER = {  # Table B.1: parameters, and those in spatial layers
    UNETD: (116_695, 12_744),
    MOBILENET: (5_220_577, 2_977_344),
    RESNET: (39_756_705, 26_182_848),
}


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    network: str
    seed: int


def judge_counts(scores: Scores) -> Verdict:
    """All counts against the paper's."""
    counts = {name: tuple(map(int, pick(scores, name=name))) for name in PAPER}
    said = "; ".join(f"{total:,}" for total, _ in counts.values())
    return decide(said, agrees=counts == PAPER)


DICE = Measure(f"Dice over {LATE}", Key)
unetd, mobilenet, resnet = (DICE.mean(title, network=name) for name, title in TITLES.items())
CLAIMS = (
    Claim(
        "parameters",
        "U-NetD has one and two orders of magnitude fewer parameters than the two DeepLabV3+.",
        "; ".join(f"{total:,}" for total, _ in PAPER.values()),
        InWords(
            "Agrees if all six counts, in all and in spatial layers, are the paper's exactly; "
            "disagrees otherwise.",
            judge_counts,
        ),
        kind="construction",
        on="parameters",
    ),
    Claim(
        "mobilenet",
        "U-NetD does better than DeepLabV3+ with MobileNetV2.",
        "U-NetD > MobileNetV2",
        (unetd - mobilenet).exceeds(MARGIN),
        on="Dice",
    ),
    Claim(
        "resnet",
        "U-NetD reaches almost the same as DeepLabV3+ with ResNet50.",
        "almost the same median",
        (unetd - resnet).within(MARGIN),
        on="Dice",
    ),
)


def train(setting: Setting) -> dict[Key, Run]:
    """A few runs of each network, all learned; the largest at the paper's scale only."""
    shared = settled(setting)
    if setting.scale == "paper":
        shared["epochs"] = 150
    networks = [name for name in TITLES if setting.scale == "paper" or name != RESNET]
    seeds = range(setting.pick(smoke=2, cpu=SEEDS, paper=3))
    return setting.sweep(
        {
            Key(name, seed): RunConfig(**(shared | {"model": name}), seed=seed)
            for name in networks
            for seed in seeds
        }
    )


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Count parameters and compare scores."""
    split = compared_on(setting)
    counts = {name: count_parameters(name, num_classes=1, in_channels=3) for name in TITLES}
    scores = late_means(runs, f"{split} dice")
    trained = dict.fromkeys(key.network for key in runs)
    return Evidence(
        scores={"parameters": samples(counts), "Dice": scores},
        tables={"Parameters": parameter_table(counts, scores, runs)},
        figures={
            f"Dice on {split}: runs (dots), and means with 95% t intervals": plot_groups(
                {TITLES[name]: pick(scores, network=name) for name in trained},
                ylabel=f"Dice on {split}",
            )
        },
        notes=notes(setting, runs),
    )


def parameter_table(
    counts: Mapping[str, tuple[int, int]], scores: Scores, runs: Mapping[Key, Run]
) -> Rows:
    """The paper's table, with our scores and times beside it."""
    rows: Rows = []
    for name, (total, spatial) in counts.items():
        mine = pick(scores, network=name)
        seconds = [row["seconds"] for run in pick(runs, network=name) for row in run.history]
        rows.append(
            {
                "model": TITLES[name],
                "parameters": total,
                "paper": PAPER[name][0],
                "spatial": spatial,
                "paper, spatial": PAPER[name][1],
                "share": f"{spatial / total:.0%}",
                "Dice": sum(mine) / len(mine) if mine else None,
                "seconds an epoch": statistics.median(seconds) if mine else None,
            }
        )
    return rows


def notes(setting: Setting, runs: Mapping[Key, Run]) -> list[str]:
    """What differs from the paper."""
    run = next(iter(runs.values()))
    said = ["Encoders start from random weights; the paper does not say from which."]
    if setting.scale == "smoke":
        said.append("Drawn images, two epochs: the scores mean nothing, the counts are exact.")
    if setting.scale != "paper":
        seeds, epochs = len(pick(runs, network=UNETD)), run.config.epochs
        said.append(
            f"{seeds} runs of {epochs} epochs each, the paper's are 3 of 150. Scored on "
            f"{compared_on(setting)}, as in steering; the paper on stage2."
        )
        said.append(f"{TITLES[RESNET]} takes three minutes an epoch: it is not trained here.")
    return said


EXPERIMENT = Experiment(
    name="baselines",
    title="U-NetD against DeepLabV3+",
    reference="App. B, Table B.1",
    needs=("microscopy",),
    claims=CLAIMS,
    cost={
        "smoke": "10 s",
        "cpu": "about 35 min on 2 cores after steering",
        "paper": "about 8 GPU-hours",
    },
    train=train,
    judge=judge,
)
