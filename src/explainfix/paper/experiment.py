"""What an experiment is: claims with rules, written down before any run, and how to test them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ..lab.run.folder import Run
from ..registry import unknown
from .contrast import Rule, Scores, Verdict
from .figures import Figure
from .setting import Kind, Scale, Setting

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
)


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, its number, and the rule by which ours is compared with it.

    A rule in words is followed by code of the experiment; a `Rule` gives its own verdict and words.
    """

    key: str
    text: str
    paper: str
    rule: Rule | str


@dataclass
class Evidence:
    """What an experiment found. Tables and figures go by their captions."""

    verdicts: dict[str, Verdict]
    tables: dict[str, Rows] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what differs from the paper's setting


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper. `train` does its runs, `judge` looks at them."""

    name: str
    title: str
    reference: str
    claims: tuple[Claim, ...]
    cost: Mapping[Scale, str]
    judge: Callable[[Setting, Any], Evidence]  # of the runs, by the experiment's own keys
    train: Callable[[Setting], dict[Any, Run]] = lambda _: {}
    needs: tuple[Kind, ...] = ()


def judge_claims(claims: tuple[Claim, ...], scores: Scores) -> dict[str, Verdict]:
    """The verdicts on the claims that are contrasts."""
    return {c.key: c.rule.judge(scores) for c in claims if isinstance(c.rule, Rule)}


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
