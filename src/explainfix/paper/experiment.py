"""What an experiment is: claims with rules, written down before any run, and how to test them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from ..lab.run.folder import Run
from ..registry import unknown
from .contrast import Rule, Scores
from .figures import Figure
from .setting import Kind, Scale, Setting
from .verdict import InWords, Verdict, untested

Rows = list[dict[str, Any]]  # of a table: cells by column; one that is missing is empty

NAMES = (  # in the order of the paper
    "steering",
    "distribution",
    "learning-rate",
    "classification",
    "capacity",
    "savings",
    "spectra",
    "saliency-check",
    "inference",
    "training",
    "pruned",
    "zeroed-vs-pruned",
    "winning-ticket",
    "baselines",
    "filters",
    "activations",
    "landscape",
    "guides",
    # beyond the paper
    "forms",
    "methods",
    "few-images",
    "robustness",
)

# A claim that runs or data may refute; one that holds by how things are made, which is a check of
# the software; and one that is ours.
ClaimKind = Literal["finding", "construction", "beyond"]


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, its number, and the rule by which ours is compared with it.

    The rule judges one of the experiment's sets of scores: that named `on`, or its only one.
    """

    key: str
    text: str
    paper: str
    rule: Rule | InWords
    kind: ClaimKind = "finding"
    on: str = ""


@dataclass
class Evidence:
    """What an experiment found. Tables and figures go by their captions.

    `scores` are what the rules judge, by name; they are kept, so that anybody can judge again.
    `untested` claims have a reason, whatever the scores are.
    """

    scores: dict[str, Scores]
    tables: dict[str, Rows] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what differs from the paper's setting
    untested: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper. `train` does its runs, `judge` looks at them.

    `measure` is what `judge` measures of weights, of some of the runs: it is kept (`Setting`).
    """

    name: str
    title: str
    reference: str
    claims: tuple[Claim, ...]
    cost: Mapping[Scale, str]
    judge: Callable[[Setting, Any], Evidence]  # of the runs, by the experiment's own keys
    train: Callable[[Setting], dict[Any, Run]] = lambda _: {}
    needs: tuple[Kind, ...] = ()
    measure: Callable[[Setting, Any], Mapping[Any, Any]] | None = None


def judge_claims(
    claims: tuple[Claim, ...],
    scores: Mapping[str, Scores],
    without: Mapping[str, str] | None = None,
) -> dict[str, Verdict]:
    """The verdict on every claim, by its rule; those `without` a test have the reason."""
    without = without or {}
    strange = sorted(set(without) - {claim.key for claim in claims})
    if strange:
        raise ValueError(f"there is no claim {strange[0]!r} to leave untested")
    return {
        c.key: untested(without[c.key]) if c.key in without else _judge(c, scores) for c in claims
    }


def _judge(claim: Claim, scores: Mapping[str, Scores]) -> Verdict:
    if claim.on not in scores and (claim.on or len(scores) != 1):
        raise ValueError(f"the claim {claim.key!r} is judged on one of {list(scores)}: say which")
    return claim.rule.judge(scores[claim.on] if claim.on else next(iter(scores.values())))


def list_experiments() -> list[str]:
    """The names that `reproduce` takes, in the order of the paper.

    >>> list_experiments()[0]
    'steering'
    """
    return list(NAMES)


def find_experiment(name: str) -> Experiment:
    """The experiment of that name, or an error with near misses."""
    if name not in NAMES:
        raise unknown("experiment", name, NAMES, "explainfix reproduce --list")
    module = import_module(f"{__package__}.experiments.{name.replace('-', '_')}")
    found: Experiment = module.EXPERIMENT
    return found
