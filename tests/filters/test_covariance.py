import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from explainfix.filters.covariance import VARIANCES, axis_covariance, cholesky, covariance
from explainfix.filters.exact import Draw


def by_hand(sides, variance):
    """Σ(p, q) of all pairs of weights, by the formula."""
    places = np.stack(np.meshgrid(*[np.arange(m) for m in sides], indexing="ij"), -1)
    places = places.reshape(-1, len(sides)) - (np.array(sides) - 1) / 2
    places /= np.sqrt(2 * variance * np.array(sides))
    p, q = places[:, None], places[None, :]
    found = np.exp(-(p**2 + q**2 + (p - q) ** 2).sum(-1))
    return found / np.trace(found)


@pytest.mark.parametrize("depth", ["early", "middle", "late"])
@pytest.mark.parametrize("sides", [(3, 3), (1, 7), (4, 2), (5,), (2, 3, 3)])
def test_kernels_have_the_covariance_and_no_mean(sides, depth):
    kernels = covariance((400, 250, *sides), Draw(0, "a"), depth=depth).reshape(100_000, -1)
    wanted = by_hand(sides, VARIANCES[depth])
    error = np.sqrt(np.diag(wanted))
    assert np.abs(kernels.mean(0) / error).max() < 0.02
    found = np.cov(kernels.T)
    np.testing.assert_allclose(
        found / np.outer(error, error), wanted / np.outer(error, error), atol=0.03
    )


def test_weights_and_their_sums_are_normal():
    kernels = covariance((100, 100, 3, 3), Draw(1, "a")).reshape(-1, 9)
    for values in (kernels[:, 0], kernels[:, 4], kernels.sum(1)):
        assert stats.kstest(values / values.std(), stats.norm.cdf).pvalue > 1e-3


@given(st.integers(1, 31), st.sampled_from(sorted(VARIANCES.values())))
def test_the_root_is_that_of_the_covariance_for_any_side(side, variance):
    matrix = axis_covariance(side, variance)
    root = cholesky(matrix)
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-14)


def test_the_root_is_lapacks_of_the_weights_in_falling_order():
    random = np.random.default_rng(0).normal(size=(20, 6))
    matrix = random.T @ random
    root = cholesky(matrix)
    expected, order, *_ = scipy.linalg.lapack.dpstrf(matrix, lower=1)
    np.testing.assert_allclose(root[order - 1], np.tril(expected), atol=1e-12)


def test_deeper_is_wider():
    found = [by_hand((3, 3), VARIANCES[depth]) for depth in ("early", "middle", "late")]
    centres = [matrix[4, 4] for matrix in found]
    alike = [matrix[4, 5] / np.sqrt(matrix[4, 4] * matrix[5, 5]) for matrix in found]
    assert centres == sorted(centres, reverse=True)
    assert alike == sorted(alike)
