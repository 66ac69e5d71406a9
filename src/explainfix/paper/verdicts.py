"""Rules that turn paired measurements into one word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..lab.measure.statistics import Interval, Significance, mean_interval, paired_wilcoxon
from .experiment import Word


@dataclass(frozen=True)
class Paired:
    """The differences of two methods over the same seeds: Student's t interval, and Wilcoxon."""

    interval: Interval
    wilcoxon: Significance

    def __str__(self) -> str:
        i = self.interval
        return f"{i.mean:+.3f} ({i.low:+.3f} to {i.high:+.3f})"


def compare_paired(ours: ArrayLike, base: ArrayLike) -> Paired:
    """Ours less the baseline's, seed by seed.

    >>> print(compare_paired([0.83, 0.84, 0.85], [0.80, 0.82, 0.81]))
    +0.030 (+0.005 to +0.055)
    """
    differences = np.asarray(ours, float) - np.asarray(base, float)
    return Paired(mean_interval(differences), paired_wilcoxon(ours, base))


def above(found: Interval, least: float = 0.0) -> Word:
    """Agrees if the whole interval is above `least`, disagrees if it is all below."""
    if found.low > least:
        return "agrees"
    return "disagrees" if found.high < least else "undecided"


def within(found: Interval, margin: float) -> Word:
    """Agrees if the whole interval is within the margin of nought, disagrees if all is without."""
    if -margin < found.low and found.high < margin:
        return "agrees"
    return "disagrees" if found.low > margin or found.high < -margin else "undecided"


def every(words: Sequence[Word]) -> Word:
    """Agrees if all do; disagrees if any does; undecided otherwise.

    >>> every(["agrees", "undecided"]), every(["agrees", "disagrees"])
    ('undecided', 'disagrees')
    """
    if "disagrees" in words:
        return "disagrees"
    return "undecided" if "undecided" in words else "agrees"
