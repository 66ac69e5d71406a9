"""guides: GuidedSteer as the paper samples it, by KDE or normal, centred or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...lab.run.folder import Run
from ..contrast import Measure, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import plot_groups
from ..scores import MARGIN, say_reach
from ..setting import Setting
from ..verdict import difference, signed
from ..xrays import BRIEF, MANY_SEEDS, Start, brief, configure, finals, seeds, starts
from ..xrays import notes as shared_notes

LEARNED, JOINT, KDE, NORMAL, CENTRED = VARIANTS = (
    "learned", "joint", "KDE", "normal", "KDE, centred",
)  # fmt: skip
# The paper's algorithm: one basis for all layers of a shape, coefficients drawn independently.
OPTIONS: dict[str, dict[str, Any]] = {
    JOINT: {},
    KDE: {"sampling": "kde", "basis": "family"},
    NORMAL: {"sampling": "normal", "basis": "family"},
    CENTRED: {"sampling": "kde", "basis": "family", "centred": True},
}


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    variant: str
    seed: int


AUC = Measure("test AUC", Key)
kde, normal, centred, joint = (
    AUC.mean(name, variant=name) for name in (KDE, NORMAL, CENTRED, JOINT)
)
CLAIMS = (
    Claim(
        "normal",
        "There is no clear winner between KDE and a normal distribution.",
        "no clear winner",
        (kde - normal).within(MARGIN),
    ),
    Claim(
        "centred",
        "Nor is there between centred and not.",
        "no clear winner",
        (centred - kde).within(MARGIN),
    ),
    Claim(
        "joint",
        "Sampling whole kernels, as this package does, is no worse than the paper's way.",
        "not said",
        joint - kde > -MARGIN,
        kind="beyond",
    ),
)


def network(setting: Setting) -> Start | None:
    """The network with ImageNet weights that is trained."""
    found = starts(setting, "pretrained")
    return brief(setting, found[0], MANY_SEEDS) if found else None


def train(setting: Setting) -> dict[Key, Run]:
    """Every variant, and learned filters."""
    start = network(setting)
    if start is None:
        return {}
    numbers = seeds(setting, start, paper=3)
    configs = {
        Key(LEARNED, seed): configure(setting, start, "learned", seed) for seed in numbers
    } | {
        Key(variant, seed): configure(setting, start, "guidedsteer", seed, fix_options=options)
        for variant, options in OPTIONS.items()
        for seed in numbers
    }
    return setting.sweep(configs)


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare the variants seed by seed."""
    if not runs:
        return Evidence(
            scores={"AUC": {}},
            untested={claim.key: "no ImageNet weights are at hand" for claim in CLAIMS},
            tables={"Variants": [{"variant": name} for name in VARIANTS]},
            notes=["Without ImageNet weights GuidedSteer has no guide but the one that ships."],
        )
    scores = finals(runs)
    return Evidence(
        scores={"AUC": scores},
        tables={"Test AUC": table(scores)},
        figures={
            "Every run (dots) and the mean of each variant with its 95% t interval": plot_groups(
                {name: pick(scores, variant=name) for name in VARIANTS}, ylabel="test AUC"
            )
        },
        notes=notes(setting, runs, scores),
    )


def table(scores: Scores) -> Rows:
    """A row per variant."""
    base = pick(scores, variant=LEARNED)
    return [
        {
            "variant": name,
            "runs": len(pick(scores, variant=name)),
            "AUC": mean_of(scores, variant=name),
            "less learned": (
                signed(difference(pick(scores, variant=name), base)) if name != LEARNED else None
            ),
        }
        for name in VARIANTS
    ]


def notes(setting: Setting, runs: Mapping[Key, Run], scores: Scores) -> list[str]:
    """What differs from the paper."""
    start = network(setting)
    said = shared_notes(setting, runs)
    said.append(
        f"On {start.title if start else 'none'}, guided by its own ImageNet weights; the paper "
        "does not say on which network, nor how often, it was tried."
    )
    if setting.scale == "cpu":
        said.append(
            f"After {BRIEF} epochs networks with other filters than ImageNet's are still learning "
            "(docs/reproduce.md, how long): all variants alike."
        )
    base = pick(scores, variant=KDE)
    others = (NORMAL, CENTRED, JOINT)
    said.append(say_reach({name: (pick(scores, variant=name), base) for name in others}))
    return said


EXPERIMENT = Experiment(
    name="guides",
    title="How GuidedSteer samples its guide",
    reference="Sec. 3.1, footnotes",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "10 s",
        "cpu": "about 45 min on 2 cores",
        "paper": "about 5 GPU-days after classification",
    },
    train=train,
    judge=judge,
)
