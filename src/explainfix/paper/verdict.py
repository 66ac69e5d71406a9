"""The word on a claim, what was measured for it, and how an interval decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..lab.measure.statistics import Interval, mean_interval

Word = Literal["agrees", "disagrees", "undecided", "not tested"]


@dataclass(frozen=True)
class Verdict:
    """What came out for a claim: one word, and what was measured."""

    word: Word
    ours: str


def decide(ours: str, *, agrees: bool, disagrees: bool | None = None) -> Verdict:
    """By a rule in words. Without `disagrees` it is one or the other.

    >>> decide("-0.1", agrees=False, disagrees=False).word, decide("-0.1", agrees=False).word
    ('undecided', 'disagrees')
    """
    if agrees:
        return Verdict("agrees", ours)
    return Verdict("disagrees" if disagrees is None or disagrees else "undecided", ours)


@dataclass(frozen=True)
class InWords:
    """A rule that is no contrast: its sentence, and the function that follows it."""

    text: str
    judge: Callable[[Mapping[Any, float]], Verdict]

    def __str__(self) -> str:
        return self.text


def untested(why: str) -> Verdict:
    """Of a claim about which the runs or the data at hand say nothing."""
    return Verdict("not tested", why)


def signed(found: Interval, digits: int = 3) -> str:
    """A difference with its interval.

    >>> signed(mean_interval([0.03, 0.02, 0.04]))
    '+0.030 (+0.005 to +0.055)'
    """
    mean, low, high = (f"{value:+.{digits}f}" for value in (found.mean, found.low, found.high))
    return f"{mean} ({low} to {high})"


def difference(ours: ArrayLike, base: ArrayLike) -> Interval:
    """Ours less the baseline's, pair by pair: their mean with Student's t interval."""
    return mean_interval(np.asarray(ours, float) - np.asarray(base, float))


def word_of(
    found: Interval, low: float = 0.0, high: float = inf, *, counts: float | None = None
) -> Word:
    """Agrees if the whole interval lies between the bounds, disagrees if all of it lies outside.

    Not to reach what `counts`, if that is given, is as bad as to lie below.
    """
    if low < found.low and found.high < high:
        return "agrees"
    enough = low if counts is None else counts
    return "disagrees" if found.high < enough or found.low > high else "undecided"


def every(words: Iterable[Word]) -> Word:
    """Agrees if all do; disagrees if any does; then undecided, or not tested, if any is.

    >>> every(["agrees", "undecided"]), every(["agrees", "disagrees"])
    ('undecided', 'disagrees')
    """
    words = set(words)
    strongest: tuple[Word, ...] = ("disagrees", "undecided", "not tested")
    return next((word for word in strongest if word in words), "agrees")
