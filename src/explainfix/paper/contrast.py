"""Claims as contrasts: what is compared with what, and the bound that decides.

A `Measure` names scores and the type of their keys. Selections of it are subtracted from each other
and held against a bound; the `Rule` so made gives both the verdict on scores and its own sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

import numpy as np

from ..lab.measure.statistics import Interval, mean_interval
from .figures import LABELS
from .verdict import Verdict, every, signed, untested, word_of

T = TypeVar("T")
Scores = Mapping[Any, float]  # by key: a frozen dataclass that tells one score from another
Unit = tuple[tuple[str, Any], ...]  # the fields of a key that were not selected by
Values = dict[Unit, float]
Intervals = Mapping[tuple[Any, ...], Interval]  # by the values of the fields of `for_every`

ABSENT = "not trained at this scale"
SINGLE = "one run, of which no interval can be made"
ANY = object()  # every value of a field: what is left of the others is averaged over it
_AT = {
    "rate": "at a rate of {}",
    "share": "with {} share of the images",
    "images": "on {} images",
    "size": "on {} network",
    "network": "on {} network",
}
_FIELDS = {  # others as they are
    "images": "kind of images",
    "zeroed": "share zeroed",
    "family": "network",
    "begin": "start",
}
_EXTREMES: dict[Any, str] = {max: "the largest", min: "the smallest"}


def pick(found: Mapping[Any, T], **where: Any) -> list[T]:
    """The runs or scores whose keys have these values, in their order."""
    return [
        value
        for key, value in found.items()
        if all(getattr(key, field) in _allowed(wanted) for field, wanted in where.items())
    ]


def mean_of(scores: Scores, **where: Any) -> float:
    """The mean of the scores whose keys have these values."""
    return float(np.mean(pick(scores, **where)))


@dataclass(frozen=True)
class Sample:
    """The key of a measurement that was done several times."""

    name: str
    number: int


def samples(found: Mapping[str, Iterable[float]]) -> Scores:
    """Measurements by name as scores."""
    return {Sample(k, i): float(v) for k, values in found.items() for i, v in enumerate(values)}


@dataclass(frozen=True)
class Measure:
    """What is scored, the type of the keys that its scores have, and words for their fields."""

    name: str
    key: type = Sample
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """Those of its keys."""
        return tuple(field.name for field in dataclasses.fields(self.key))

    def listed(self, fields: Sequence[str]) -> str:
        """Fields as a list in a sentence."""
        *most, last = (self.words.get(f, _FIELDS.get(f, f)) for f in fields)
        return " and ".join(filter(None, [", ".join(most), last]))

    def mean(self, phrase: str, /, **where: Any) -> Quantity:
        """The scores whose keys have these values; the mean of those that are then alike."""
        several = any(len(_allowed(wanted)) > 1 for wanted in where.values())
        return Quantity(
            self,
            f"the mean of {phrase}" if several else phrase,
            tuple(field for field in self.fields if field not in where),
            lambda scores: _select(self._units(scores), where),
        )

    def each(self, phrase: str = "", /, **where: Any) -> Quantity:
        """The scores whose keys have these values, each for itself."""
        return Quantity(
            self,
            phrase,
            self.fields,
            lambda scores: _select(self._units(scores), where, apart=True),
        )

    def _units(self, scores: Scores) -> Values:
        wrong = [key for key in scores if tuple(vars(key)) != self.fields]
        if wrong:
            raise TypeError(f"{self.name!r} is scored by {self.key.__name__}, not by {wrong[0]!r}")
        return {tuple(vars(key).items()): score for key, score in scores.items()}


@dataclass(frozen=True)
class Quantity:
    """A number for each seed, or for whatever else is left of the keys."""

    measure: Measure
    phrase: str
    fields: tuple[str, ...]  # what is left of the keys
    values: Callable[[Scores], Values]

    def __sub__(self, other: Quantity) -> Quantity:
        """The difference for each unit of the finer of the two, if both have it."""
        finer, coarser = (self, other) if len(self.fields) >= len(other.fields) else (other, self)
        if not set(coarser.fields) <= set(finer.fields):
            raise TypeError(f"{coarser.phrase!r} is not for each {list(finer.fields)}")

        def values(scores: Scores) -> Values:
            fine, coarse = finer.values(scores), coarser.values(scores)
            sign = 1 if finer is self else -1
            wholes = {
                unit: tuple(pair for pair in unit if pair[0] in coarser.fields) for unit in fine
            }
            return {
                unit: sign * (fine[unit] - coarse[whole])
                for unit, whole in wholes.items()
                if whole in coarse
            }

        phrase = f"{self.phrase} less {other.phrase}"
        return Quantity(self.measure, phrase, finer.fields, values)

    def __gt__(self, low: float) -> Rule:
        return Rule(self, low)

    def __lt__(self, high: float) -> Rule:
        return Rule(self, -inf, high)

    def exceeds(self, margin: float) -> Rule:
        """Whether it is above zero. If it cannot reach the margin it is nothing that counts.

        Two that are about equal would else be held against zero for ever and never be told apart.
        """
        return Rule(self, 0.0, counts=margin)

    def within(self, margin: float, *, of: float = 0.0) -> Rule:
        """Whether it is as near to `of` as that."""
        return Rule(self, of - margin, of + margin)

    def at(self, **where: Any) -> Quantity:
        """The same of the scores with these values only; `max` is the largest there is."""
        inner = f"({self.phrase})" if " less " in self.phrase else self.phrase
        words = [_AT[field].format(_EXTREMES.get(value, value)) for field, value in where.items()]
        return Quantity(
            self.measure,
            " ".join([inner, *words]),
            tuple(field for field in self.fields if field not in where),
            lambda scores: _select(self.values(scores), where),
        )


@dataclass(frozen=True)
class Rule:
    """A quantity whose 95% t interval must lie between two bounds, for every one of some groups."""

    quantity: Quantity
    low: float
    high: float = inf
    groups: tuple[str, ...] = ()
    say: Callable[[Intervals], str] | None = None
    alone: bool = False  # whether a single value is judged by itself
    counts: float | None = None  # what is not reached disagrees, `low` unless given

    def for_every(self, *fields: str, alone: bool = False) -> Rule:
        """An interval for each value of these fields, all of which must agree."""
        return dataclasses.replace(self, groups=fields, alone=alone)

    def said(self, say: Callable[[Intervals], str]) -> Rule:
        """With other words for what was measured."""
        return dataclasses.replace(self, say=say)

    def in_full(self) -> Rule:
        """What was measured is said with what it is."""
        return self.said(lambda found: f"{self.quantity.phrase} {signed(found[()])}")

    def judge(self, scores: Scores) -> Verdict:
        """The word and what was measured; not tested without scores, or with one run alone."""
        found: dict[tuple[Any, ...], list[float]] = {}
        for unit, value in self.quantity.values(scores).items():
            fields = dict(unit)
            found.setdefault(tuple(fields[group] for group in self.groups), []).append(value)
        if not found:
            return untested(ABSENT)
        if not self.alone and any(len(values) == 1 for values in found.values()):
            return untested(SINGLE)
        intervals = {
            group: Interval("alone", 1, *values * 3)
            if self.alone and len(values) == 1
            else mean_interval(values)
            for group, values in found.items()
        }
        words = [
            word_of(one, self.low, self.high, counts=self.counts) for one in intervals.values()
        ]
        return Verdict(every(words), (self.say or say_lowest)(intervals))

    def __str__(self) -> str:
        """The rule as a sentence."""
        units = [name for name in self.quantity.fields if name not in self.groups]
        measure = self.quantity.measure
        phrase = self.quantity.phrase and f": {self.quantity.phrase}"
        head = f"{measure.name[0].upper()}{measure.name[1:]}, for each {measure.listed(units)}"
        each = ", or a single value," if self.alone else ""
        if self.low == -inf:
            agrees, disagrees = f"below {self.high:g}", "above"
        elif self.high < inf:
            middle = (self.low + self.high) / 2
            agrees = f"within {self.high - middle:g} of {middle:g}"
            disagrees = "wholly outside"
        else:
            agrees, disagrees = f"above {self.low:g}", "below"
        little = ""
        if self.counts is not None:
            disagrees, little = f"below {self.counts:g}", ", which is nothing that counts"
        all_, one = (
            (f" for every {measure.listed(self.groups)}", " for one") if self.groups else ("", "")
        )
        return (
            f"{head}{phrase}. Agrees if the 95% t interval{each} lies {agrees}{all_}, disagrees "
            f"if it lies {disagrees}{one}{little}, else undecided."
        )


def say_lowest(found: Intervals) -> str:
    """The one interval; or the group whose interval reaches lowest."""
    group = min(found, key=lambda group: found[group].low)
    name = f"lowest: {LABELS.get(group[-1], group[-1])} " if group else ""
    return name + signed(found[group])


def say_all(found: Intervals, digits: int = 3) -> str:
    """Every group with its interval."""
    return ", ".join(f"{group[-1]} {signed(one, digits)}" for group, one in found.items())


def _select(values: Values, where: Mapping[str, Any], *, apart: bool = False) -> Values:
    """Those with the wanted fields; unless kept apart they lose these, and equals are averaged."""
    for name, wanted in where.items():
        if wanted in (max, min):
            where = {**where, name: wanted(dict(unit)[name] for unit in values)}
    groups: dict[Unit, list[float]] = {}
    for unit, value in values.items():
        fields = dict(unit)
        if all(wanted is ANY or fields[name] in _allowed(wanted) for name, wanted in where.items()):
            rest = unit if apart else tuple(pair for pair in unit if pair[0] not in where)
            groups.setdefault(rest, []).append(value)
    return {unit: float(np.mean(alike)) for unit, alike in groups.items()}


def _allowed(wanted: Any) -> Sequence[Any]:
    return wanted if isinstance(wanted, tuple | list | range) else (wanted,)
