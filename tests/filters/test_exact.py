import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from explainfix.filters.exact import Draw, cos_pi, ordered_sum


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_cos_pi_is_the_cosine(t):
    # Reduced with integers, which is exact, since numpy's π·t loses digits for large t.
    reduced = np.array([float(np.fmod(value, 2.0)) for value in t])
    np.testing.assert_allclose(cos_pi(np.array(t)), np.cos(np.pi * reduced), atol=2e-15)


def test_cos_pi_is_exact_at_multiples_of_one_half():
    np.testing.assert_array_equal(cos_pi(np.arange(0, 8) / 2), [1, 0, -1, 0, 1, 0, -1, 0])


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


def test_ordered_sum_adds_from_left_to_right():
    terms = [np.array([1e16]), np.array([1.0]), np.array([-1e16])]
    assert ordered_sum(terms).tolist() == [0.0]
