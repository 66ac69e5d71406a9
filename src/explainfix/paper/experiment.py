"""What an experiment is: claims with rules, written down before any run, and how to test them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from ..registry import experiments
from .setting import Kind, Scale, Setting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ..lab.run.folder import Run

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
Word = Literal["agrees", "disagrees", "undecided"]


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, its number, and the rule by which ours is compared with it."""

    key: str
    text: str
    paper: str
    rule: str


@dataclass(frozen=True)
class Verdict:
    """What came out for a claim: one word, and what was measured."""

    word: Word
    ours: str


@dataclass
class Outcome:
    """What an experiment found. Tables and figures go by their captions."""

    verdicts: dict[str, Verdict]
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
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
    train: Callable[[Setting], dict[str, Run]]
    judge: Callable[[Setting, dict[str, Run]], Outcome]
    needs: tuple[Kind, ...] = ()


def register(experiment: Experiment) -> Experiment:
    """Add an experiment under its name."""
    added: Experiment = experiments.register(experiment.name)(experiment)
    return added


def list_experiments() -> list[str]:
    """The names that `reproduce` takes, in the order of the paper.

    >>> list_experiments()[0]
    'steering'
    """
    for name in NAMES:
        import_module(f"{__package__}.experiments.{name.replace('-', '_')}")  # registers it
    return list(NAMES)
