import itertools

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from explainfix.filters.exact import Draw
from explainfix.filters.ghaar import ghaar


def residual(frequency, kernel):
    """How far a kernel is from the span of the paper's three products at that frequency."""
    wave = [np.cos(frequency * np.linspace(0, np.pi, m)) for m in kernel.shape]
    one = [np.ones(m) for m in kernel.shape]
    products = [np.outer(wave[0], one[1]), np.outer(one[0], wave[1]), np.outer(*wave)]
    design = np.stack([product.ravel() for product in products], axis=1)
    weights = np.linalg.lstsq(design, kernel.ravel(), rcond=None)[0]
    return float(np.sum((design @ weights - kernel.ravel()) ** 2))


def best_frequency(kernel):
    grid = np.linspace(0.01, kernel.shape[0] - 1, 160)  # the waves repeat mirrored above m - 1
    start = grid[np.argmin([residual(f, kernel) for f in grid])]
    bounds = (max(start - 0.05, 0), start + 0.05)
    found = minimize_scalar(residual, args=(kernel,), bounds=bounds, options={"xatol": 1e-10})
    return found.x, found.fun


@pytest.mark.parametrize("size", [3, 5])
def test_kernels_lie_in_the_papers_span_and_frequencies_cover_the_range(size):
    kernels = ghaar((40, 3, size, size), Draw(0, "")).reshape(-1, size, size)
    found = np.array([best_frequency(kernel) for kernel in kernels])
    assert (found[:, 1] < 1e-8).all()
    if size == 5:  # a 3x3 kernel leaves the frequency open now and then: nine numbers, four unknown
        quartiles = np.quantile(found[:, 0], [0.25, 0.5, 0.75])
        np.testing.assert_allclose(quartiles, [1, 2, 3], atol=0.5)
        assert found[:, 0].min() < 0.2
        assert found[:, 0].max() > 3.8


def test_the_moments_are_those_of_the_formula():
    """E‖K‖² = (2·3·E|b|² + E|b|⁴)/3 with |b|² = 3/2 + x/2 + x², x = cos 2θ: 65/12 for 3x3."""
    kernels = ghaar((512, 256, 3, 3), Draw(0, "")).reshape(-1, 9)
    squares = (kernels**2).sum(1)
    assert abs(squares.mean() - 65 / 12) < 0.05
    constant = kernels.sum(1) ** 2 / 9
    assert abs((constant / squares).mean() - 0.25) < 0.01  # a quarter of a kernel's energy is DC


def by_hand(shape, draw, products, shared):
    """The definition with a plain loop over kernels, from the same random numbers."""
    count, kernel = shape[0] * shape[1], shape[2:]
    weights = draw.uniform(len(products), count, low=-1)
    turns = draw.uniform(1 if shared else len(products), count)
    made = np.zeros((count, *kernel))
    for i in range(count):
        for p, axes in enumerate(products):
            term = np.array(weights[p, i])
            for axis, m in enumerate(kernel):
                f = 2 * (m - 1) * turns[0 if shared else p, i]
                factor = np.cos(f * np.linspace(0, np.pi, m)) if axis in axes else np.ones(m)
                term = np.multiply.outer(term, factor)
            made[i] += term
    return made.reshape(shape)


@pytest.mark.parametrize("frequencies", ["shared", "independent"])
@pytest.mark.parametrize("shape", [(3, 4, 7), (3, 4, 3, 5), (3, 4, 1, 7), (2, 3, 3, 2, 4)])
def test_any_shape_equals_the_definition(shape, frequencies):
    axes = [axis for axis, m in enumerate(shape[2:]) if m > 1]
    products = [s for r in range(len(axes)) for s in itertools.combinations(axes, r + 1)]
    expected = by_hand(shape, Draw(5, "x"), products, frequencies == "shared")
    np.testing.assert_allclose(
        ghaar(shape, Draw(5, "x"), frequencies=frequencies), expected, atol=1e-12
    )
