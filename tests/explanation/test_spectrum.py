import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explainfix.explanation.basis import make_basis
from explainfix.explanation.spectrum import chance, low_frequencies, spectrum

SHAPES = [(3, 3), (5, 5), (2, 2), (7,), (3, 3, 3), (1, 7), (3, 5)]


def basis_of(shape):
    return make_basis("dct2", shape, lambda: torch.empty(0))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_basis_filter_is_one_spike(shape):
    basis = basis_of(shape)
    for index, filt in enumerate(basis.filters):
        energies = spectrum(filt[None], basis)
        expected = torch.zeros(len(basis.filters), dtype=torch.float64)
        expected[index] = 1
        torch.testing.assert_close(energies.ed, expected, atol=1e-9, rtol=0)
        for axis, e1 in enumerate(energies.e1):
            assert e1.argmax() == basis.frequencies[index][axis]
            assert e1.shape == (shape[axis],)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_e0_is_there_where_all_sides_are_equal(shape):
    energies = spectrum(torch.randn(10, *shape), basis_of(shape))
    if len(set(shape)) == 1:
        torch.testing.assert_close(energies.e0, torch.stack(energies.e1).mean(0))
    else:
        assert energies.e0 is None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_order_of_kernels_does_not_matter_and_weights_scale(shape):
    torch.manual_seed(0)
    kernels, weights = torch.randn(50, *shape).double(), torch.rand(50).double()
    order = torch.randperm(50)
    basis = basis_of(shape)
    one, other = spectrum(kernels, basis, weights), spectrum(kernels[order], basis, weights[order])
    torch.testing.assert_close(one.ed, other.ed)
    torch.testing.assert_close(spectrum(3 * kernels, basis, weights).ed, 3 * one.ed)
    torch.testing.assert_close(spectrum(kernels, basis, 5 * weights).ed, 5 * one.ed)
    plain = spectrum(kernels, basis)
    torch.testing.assert_close(plain.ed, spectrum(kernels, basis, torch.full((50,), 1 / 50)).ed)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 1000))
def test_parseval(sides, seed):
    kernel = torch.randn(
        1, *sides, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    energies = spectrum(kernel, basis_of(tuple(sides)))
    torch.testing.assert_close(energies.ed.square().sum(), kernel.square().sum())


def test_a_2x2_example_by_hand():
    """[[4, 2], [2, 0]]: mean 8/2, horizontal 4/2, vertical 4/2, diagonal 0."""
    energies = spectrum(torch.tensor([[[4.0, 2.0], [2.0, 0.0]]]).double(), basis_of((2, 2)))
    expected = torch.tensor([4.0, 2.0, 2.0, 0.0]).double()
    torch.testing.assert_close(energies.ed, expected)
    low, high = 4**0.5 + 2**0.5, 2**0.5  # rows: frequency 0 has the mean and the horizontal one
    for e1 in energies.e1:
        torch.testing.assert_close(e1, torch.tensor([low, high]).double())
    torch.testing.assert_close(energies.e0, torch.tensor([low, high]).double())


def test_horizontal_and_vertical_are_told_apart():
    stripes = torch.tensor([1.0, 0.0, -1.0]).expand(1, 3, 3).double()  # varies along a row
    vertical, horizontal = spectrum(stripes, basis_of((3, 3))).e1
    assert vertical.argmax() == 0
    assert horizontal.argmax() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    torch.manual_seed(0)
    kernels = torch.randn(200, 3, 3)
    exact, ours = (spectrum(k, basis_of((3, 3))).ed for k in (kernels, kernels.to(dtype)))
    torch.testing.assert_close(ours, exact, rtol=0.02, atol=0)


def test_low_frequencies_of_common_shapes():
    assert low_frequencies(basis_of((3, 3))).nonzero().flatten().tolist() == [0, 1, 2]
    assert low_frequencies(basis_of((5, 5))).sum() == 10


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (5, 5)])
def test_chance_holds_95_percent_of_random_directions(shape, weighted):
    """Kernels of fixed norms and weights, turned at random 2,000 times."""
    torch.manual_seed(0)
    basis, size = basis_of(shape), shape[0] * shape[1]
    norms, weights = torch.rand(60) + 0.5, torch.rand(60) if weighted else None
    kernels = torch.randn(2000, 60, size)
    kernels *= (norms / kernels.norm(dim=2)).unsqueeze(2)
    band = chance(kernels[0].reshape(60, *shape), basis, weights)
    energies = torch.stack([spectrum(k.reshape(60, *shape), basis, weights).ed for k in kernels])
    inside = (energies >= band.energy[0]) & (energies <= band.energy[1])
    assert 0.93 < inside.double().mean() < 0.97
    shares = energies[:, low_frequencies(basis)].sum(1) / energies.sum(1)
    inside = (shares >= band.low_share[0]) & (shares <= band.low_share[1])
    assert 0.92 < inside.double().mean() < 0.98


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (7, 7)])
def test_chance_holds_for_layers_of_many_kernels_too(shape):
    """Where the band is narrow, its middle has to be right."""
    torch.manual_seed(0)
    basis = basis_of(shape)
    kernels = torch.randn(40, 20_000, *shape)
    bands = [chance(each, basis) for each in kernels]
    energies = torch.stack([spectrum(each, basis).ed for each in kernels])
    shares = energies[:, low_frequencies(basis)].sum(1) / energies.sum(1)
    low, high = (torch.tensor([band.low_share[i] for band in bands]) for i in (0, 1))
    assert ((shares >= low) & (shares <= high)).double().mean() > 0.85
    # Norms of normal kernels vary a little as well, and carry all energies along.
    kernels /= torch.linalg.vector_norm(kernels.flatten(2), dim=2)[..., None, None]
    energies = torch.stack([spectrum(each, basis).ed for each in kernels])
    low, high = (torch.tensor([chance(kernels[0], basis).energy[i]]) for i in (0, 1))
    assert 0.9 < ((energies >= low) & (energies <= high)).double().mean() < 0.99
