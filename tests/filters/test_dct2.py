import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st

from explainfix.filters.dct2 import dct2, dct_basis, frequency_order
from explainfix.filters.exact import Draw

shapes = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)


@given(shapes)
def test_projecting_on_the_basis_is_scipys_transform(shape):
    kernel = np.random.default_rng(0).normal(size=shape)
    ours = dct_basis(shape).reshape(kernel.size, -1) @ kernel.ravel()
    scipys = scipy.fft.dctn(kernel, norm="ortho")
    np.testing.assert_allclose(ours, [scipys[k] for k in frequency_order(shape)], atol=1e-12)


@given(shapes)
def test_the_basis_is_orthonormal(shape):
    basis = dct_basis(shape).reshape(np.prod(shape), -1)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-12)


@pytest.mark.parametrize(
    ("size", "order"),
    [
        (3, "0 1 3 2 6 4 5 7 8"),
        (5, "0 1 5 2 10 6 3 15 7 11 4 20 8 16 12 9 21 13 17 14 22 18 19 23 24"),
    ],
)
def test_the_order_is_the_papers(size, order):
    assert [size * i + j for i, j in frequency_order((size, size))] == [*map(int, order.split())]


@given(shapes)
def test_the_order_never_falls_in_total_frequency(shape):
    totals = [sum(k) for k in frequency_order(shape)]
    assert totals == sorted(totals)


@pytest.mark.parametrize(
    "shape",
    [(64, 3, 7, 7), (144, 1, 3, 3), (10, 1, 5, 5), (64, 64, 3, 3), (6, 5, 4), (4, 3, 2, 3, 2)],
    ids=["stem", "depthwise", "few", "dense", "1-D", "3-D"],
)
def test_every_basis_filter_is_used_equally_often(shape):
    m = int(np.prod(shape[2:]))
    projections = dct2(shape, Draw(0, "")).reshape(-1, m) @ dct_basis(shape[2:]).reshape(m, -1).T
    np.testing.assert_allclose(np.sort(projections, axis=1)[:, -1], 1, atol=1e-12)
    counts = np.bincount(projections.argmax(1), minlength=m)
    assert counts.max() - counts.min() <= 1


def test_each_output_of_a_dense_layer_sees_the_whole_basis():
    projections = (
        dct2((32, 27, 3, 3), Draw(0, "")).reshape(32, 27, 9) @ dct_basis((3, 3)).reshape(9, 9).T
    )
    assert (np.sort(projections.argmax(2), axis=1) == np.repeat(np.arange(9), 3)).all()
