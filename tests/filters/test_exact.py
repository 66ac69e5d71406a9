import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from explainfix.filters.exact import Draw, cos_pi, exp, log, ordered_sum


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_cos_pi_is_the_cosine(t):
    # Reduced with integers, which is exact, since numpy's π·t loses digits for large t.
    reduced = np.array([float(np.fmod(value, 2.0)) for value in t])
    np.testing.assert_allclose(cos_pi(np.array(t)), np.cos(np.pi * reduced), atol=2e-15)


def test_cos_pi_is_exact_at_multiples_of_one_half():
    np.testing.assert_array_equal(cos_pi(np.arange(0, 8) / 2), [1, 0, -1, 0, 1, 0, -1, 0])


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=50))
def test_log_is_the_logarithm(x):
    np.testing.assert_allclose(log(np.array(x)), np.log(x), rtol=4e-16, atol=4e-16)


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=50))
def test_exp_is_the_exponential(x):
    np.testing.assert_allclose(exp(np.array(x)), np.exp(x), rtol=1e-15)


def test_normal_numbers_are_normal_and_independent():
    sample = Draw(0, "layer").normal(100_000)
    assert stats.kstest(sample, stats.norm.cdf).pvalue > 1e-3
    halves = sample[:50_000], sample[50_000:]  # made from the same pairs of uniform numbers
    for first, second in (halves, np.square(halves), (sample[1:], sample[:-1])):
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.015
    assert Draw(0, "a").normal(3, 5).shape == (3, 5)
    assert Draw(0, "a").normal(0).shape == (0,)


def test_uniform_numbers_are_uniform():
    sample = Draw(0, "layer").uniform(100_000, low=-1, high=3)
    assert stats.kstest(sample, stats.uniform(-1, 4).cdf).pvalue > 1e-3
    assert sample.min() >= -1
    assert sample.max() < 3


@pytest.mark.parametrize("other", [Draw(1, "layer"), Draw(0, "layer2"), Draw(-1, "layer")])
def test_another_seed_or_layer_gives_other_numbers(other):
    mine = Draw(0, "layer").uniform(1000)
    assert abs(np.corrcoef(mine, other.uniform(1000))[0, 1]) < 0.15


def test_the_stream_is_the_one_it_always_was():
    # Recipes in files depend on these numbers: they must never change.
    assert Draw(0, "layer1.conv").uniform(3).tolist() == [
        0.7906703591152731,
        0.8056324925524032,
        0.9293367541071091,
    ]


def test_the_normal_numbers_are_those_they_always_were():
    assert Draw(0, "layer1.conv").normal(3).tolist() == [
        1.5970597983695416,
        -1.10152277483053,
        -0.7596644530833827,
    ]


def test_ordered_sum_adds_from_left_to_right():
    terms = [np.array([1e16]), np.array([1.0]), np.array([-1e16])]
    assert ordered_sum(terms).tolist() == [0.0]
