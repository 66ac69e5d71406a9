import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explainfix.explanation.basis import make_basis
from explainfix.registry import bases

SHAPES = [(2,), (4,), (8,), (2, 2), (4, 2), (8, 8), (1, 4), (2, 4, 2)]


def make(name, shape, count=500):
    size = int(torch.tensor(shape).prod())
    torch.manual_seed(0)
    return make_basis(name, shape, lambda: torch.randn(count, size) * torch.arange(1, size + 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", list(bases))
def test_every_basis_is_orthonormal(name, shape):
    rows = make(name, shape).rows
    torch.testing.assert_close(
        rows @ rows.T, torch.eye(len(rows), dtype=rows.dtype), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["dct2", "haar"])
def test_filters_are_products_of_the_1d_vectors_they_say(name, shape):
    basis = make(name, shape)
    axes = [make(name, (side,)) for side in shape]
    for filt, frequency in zip(basis.filters, basis.frequencies, strict=True):
        product = torch.ones((), dtype=torch.float64)
        for axis, index in zip(axes, frequency, strict=True):
            row = axis.frequencies.index((index,))
            product = product.unsqueeze(-1) * axis.filters[row]
        torch.testing.assert_close(filt, product)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_the_dct_has_any_shape_and_is_ordered_low_to_high(sides):
    basis = make("dct2", tuple(sides))
    totals = [sum(frequency) for frequency in basis.frequencies]
    assert totals == sorted(totals)
    assert (basis.filters[0] > 0).all()


def test_haar_by_hand():
    half = 2**-0.5
    rows = make("haar", (4,)).rows
    expected = [
        [0.5, 0.5, 0.5, 0.5],
        [0.5, 0.5, -0.5, -0.5],
        [half, -half, 0, 0],
        [0, 0, half, -half],
    ]
    torch.testing.assert_close(rows, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 3, 7), (1, 6)])
def test_haar_is_orthonormal_for_any_sides(shape):
    rows = make("haar", shape).rows
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows), dtype=torch.float64))
    assert (rows[0] == rows[0, 0]).all()  # the mean
    assert all(len(row.unique()) <= 2 ** len(shape) + 1 for row in rows)  # steps


def test_pca_diagonalises_the_kernels():
    torch.manual_seed(0)
    kernels = torch.randn(1000, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
    rows = make_basis("pca", (2, 3), lambda: kernels).rows
    scatter = (kernels @ rows.T).T @ (kernels @ rows.T)
    strengths = scatter.diagonal()
    assert (strengths.diff() <= 0).all()
    assert (scatter - strengths.diag()).abs().max() < 1e-8 * strengths[0]


def test_an_unknown_basis_is_answered_with_near_misses():
    with pytest.raises(ValueError, match="'dct': did you mean 'dct2'"):
        make("dct", (3, 3))
