"""Words from intervals, against SciPy's paired t test."""

import numpy as np
import pytest
from scipy import stats

from explainfix.lab.measure.statistics import Interval
from explainfix.paper.verdicts import above, compare_paired, every, within


def interval(low, high):
    return Interval("t", 3, (low + high) / 2, low, high)


def test_the_difference_is_scipys_paired_interval():
    rng = np.random.default_rng(0)
    ours, base = rng.normal(0.8, 0.05, 6), rng.normal(0.78, 0.05, 6)
    found = compare_paired(ours, base)
    expected = stats.ttest_rel(ours, base).confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(expected))
    assert found.wilcoxon.p == pytest.approx(stats.wilcoxon(ours, base).pvalue)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.01, 0.03, "agrees"), (-0.03, -0.01, "disagrees"), (-0.01, 0.02, "undecided")],
)
def test_above(low, high, word):
    assert above(interval(low, high)) == word
    assert above(interval(low - 0.02, high - 0.02), least=-0.02) == word


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.019, 0.019, "agrees"),
        (-0.021, 0.0, "undecided"),
        (0.021, 0.03, "disagrees"),
        (-0.5, -0.03, "disagrees"),
        (-0.5, 0.5, "undecided"),
    ],
)
def test_within(low, high, word):
    assert within(interval(low, high), 0.02) == word


def test_every():
    assert every(["agrees", "agrees"]) == "agrees"
    assert every(["undecided", "disagrees"]) == "disagrees"
