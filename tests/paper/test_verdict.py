"""How an interval, and several of them, decide."""

import pytest

from explainfix.lab.measure.statistics import Interval
from explainfix.paper.verdict import every, word_of


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.01, 0.03, "agrees"), (-0.03, -0.01, "disagrees"), (-0.01, 0.02, "undecided")],
)
def test_word_of(low, high, word):
    assert word_of(Interval("t", 3, (low + high) / 2, low, high)) == word
    moved = Interval("t", 3, (low + high) / 2 - 0.02, low - 0.02, high - 0.02)
    assert word_of(moved, -0.02) == word


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.001, 0.01, "agrees"),  # above zero is better, however little
        (-0.01, 0.019, "disagrees"),
        (-0.01, 0.021, "undecided"),
        (-0.05, -0.03, "disagrees"),
    ],
)
def test_a_lead_that_cannot_count_disagrees(low, high, word):
    assert word_of(Interval("t", 3, (low + high) / 2, low, high), counts=0.02) == word


def test_every():
    assert every(["agrees", "agrees"]) == "agrees"
    assert every(["undecided", "disagrees"]) == "disagrees"
    assert every(["not tested", "agrees"]) == "not tested"
    assert every(["not tested", "undecided"]) == "undecided"
