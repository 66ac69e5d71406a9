"""Tests of significance against exact enumeration and simulation."""

import itertools

import numpy as np
import pytest
from scipy.stats import rankdata

from explainfix.lab.measure.statistics import (
    Significance,
    compare_methods,
    epoch_bands,
    holm,
    mean_interval,
    paired_wilcoxon,
)


def exact(differences, alternative):
    """All 2^n signs of the ranks are equally likely if there is no difference."""
    ranks = rankdata(np.abs(differences))  # equal ones share theirs
    signs = np.array(list(itertools.product([0, 1], repeat=len(ranks))))
    sums, seen = signs @ ranks, ranks[differences > 0].sum()
    greater, less = (sums >= seen).mean(), (sums <= seen).mean()
    return {"greater": greater, "less": less, "two-sided": min(1.0, 2 * min(greater, less))}[
        alternative
    ]


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([0.81, 0.84, 0.79, 0.88, 0.83, 0.90], [0.80, 0.81, 0.805, 0.83, 0.81, 0.82]),
        ([3, 5, 2, 1, 6, 4], [4, 4, 3, 3, 5, 5]),  # differences that are equal
    ],
)
def test_wilcoxon_is_exact_for_few_pairs(a, b, alternative):
    a, b = np.array(a), np.array(b)
    got = paired_wilcoxon(a, b, alternative=alternative)
    assert got.p == pytest.approx(exact(a - b, alternative))
    assert got.pairs == 6
    assert got.name == f"paired Wilcoxon signed-rank, {alternative}"


def test_equal_scores_are_no_evidence():
    assert paired_wilcoxon([1, 2, 3], [1, 2, 3]).p == 1.0
    with_ties = paired_wilcoxon([1, 2, 3, 9], [1, 1, 1, 1], alternative="greater")
    assert (with_ties.pairs, with_ties.p) == (4, 1 / 8)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [([1, 2], [1], "one length"), ([1, np.nan], [1, 2], "finite")],
)
def test_bad_pairs(a, b, message):
    with pytest.raises(ValueError, match=message):
        paired_wilcoxon(a, b)


def test_bands_pool_neighbouring_epochs():
    random = np.random.default_rng(0)
    baseline = random.normal(size=(6, 40))
    better = baseline + np.where(np.arange(40) < 20, 1.0, -1.0) + random.normal(size=(6, 40)) / 4
    bands = epoch_bands(better, baseline, width=10)
    assert bands.pairs[[0, 20, 39]].tolist() == [6 * 11, 6 * 21, 6 * 11]
    assert bands.higher[5] < 0.001 < bands.higher[35]
    assert bands.lower[35] < 0.001 < bands.lower[5]
    window = (better - baseline)[:, 0:11].ravel()
    assert bands.higher[0] == paired_wilcoxon(window, 0 * window, alternative="greater").p
    assert "one-sided" in bands.name
    assert bands.table().loc[1, "pairs"] == 66
    with pytest.raises(ValueError, match=r"\(runs, epochs\)"):
        epoch_bands(better, baseline[:, 1:])


def test_holm_is_bonferroni_for_the_smallest_and_keeps_the_order():
    p = {"a": 0.03, "b": 0.005, "c": 0.04, "d": 0.5}
    tests = {name: Significance("t", 6, value, 0.0) for name, value in p.items()}
    got = holm(tests)
    assert [got[name].p for name in "abcd"] == pytest.approx([0.09, 0.02, 0.09, 0.5])
    assert got["a"].name == "t, Holm over 4 tests"


def test_methods_against_a_baseline():
    scores = {"learned": [0.1, 0.2, 0.3], "ghaar": [0.2, 0.4, 0.6], "ones": [0.1, 0.2, 0.3]}
    got = compare_methods(scores, "learned", alternative="greater")
    assert got["ghaar"].p == pytest.approx(2 / 8)
    assert got["ones"].p == 1.0
    with pytest.raises(ValueError, match="'base'"):
        compare_methods(scores, "base")


def test_mean_interval_covers():
    random = np.random.default_rng(0)
    intervals = [mean_interval(random.normal(3, 2, size=6)) for _ in range(400)]
    assert 0.92 <= np.mean([i.low <= 3 <= i.high for i in intervals]) <= 0.98
    with pytest.raises(ValueError, match="two values"):
        mean_interval([1.0])
