import numpy as np
import pytest

from explainfix.filters.dct2 import dct_basis, frequency_order
from explainfix.filters.exact import Draw
from explainfix.filters.psine import draw_lengths, draw_powers, psine


@pytest.mark.parametrize(
    "shape", [(50, 40, 3, 3), (9, 5, 7), (9, 5, 1, 7), (9, 5, 3, 3, 3), (99, 99, 2)]
)
def test_kernels_have_zero_mean_and_unit_norm(shape):
    kernels = psine(shape, Draw(0, ""), centre="mean").reshape(shape[0] * shape[1], -1)
    np.testing.assert_allclose(kernels.mean(1), 0, atol=1e-9)
    np.testing.assert_allclose((kernels**2).sum(1), 1, atol=1e-9)


def test_the_full_space_is_steered():
    draw = Draw(0, "")
    lengths = draw_lengths(draw, 5000)
    assert lengths.min() == 5
    assert lengths.max() > 60
    assert abs(np.median(lengths) - (4 + 2**3)) < 2  # log-uniform: half are below 4 + 2^(6/2)
    powers = np.stack([draw_powers(draw, term, lengths) for term in range(lengths.max())])
    powers = np.where(np.arange(len(powers))[:, None] < lengths, powers, 0)
    assert (lengths >= 2 * powers.max(0) + 1).all()
    assert (powers == 1).any(0).all()  # an odd power
    assert (powers == 2).any(0).all()  # and an even one
    assert (powers.max(0)[lengths > 40] > 10).all()


def by_hand(shape, draw, centre):
    """The definition with a plain loop over kernels and terms, from the same random numbers."""
    count, kernel = shape[0] * shape[1], shape[2:]
    lengths = draw_lengths(draw, count)
    order = sorted(range(count), key=lambda i: -lengths[i])
    highest = draw.uniform(count, low=1, high=5)
    made = np.zeros((count, *kernel))
    for term in range(max(lengths)):
        active = [i for i in order if lengths[i] > term]
        powers = draw_powers(draw, term, lengths[active])
        weights = draw.uniform(len(active), low=-1)
        waves = []
        for m in kernel:
            if m > 1:
                frequency = draw.uniform(len(active)) * highest[: len(active)]
                phase = draw.uniform(len(active), high=2) * np.pi
                x = np.linspace(0, np.pi, m)
                waves.append([np.cos(f * x + p) for f, p in zip(frequency, phase, strict=True)])
            else:
                waves.append([np.ones(1)] * len(active))
        for place, i in enumerate(active):
            product = np.array(1.0)
            for axis in range(len(kernel)):
                product = np.multiply.outer(product, waves[axis][place])
            made[i] += weights[place] * product ** powers[place]
    for kernel in made:
        if centre == "range":
            kernel -= (kernel.max() + kernel.min()) / 2
        elif centre == "mean":
            kernel -= kernel.mean()
    norms = np.sqrt((made.reshape(count, -1) ** 2).sum(1))
    return (made.reshape(count, -1) / norms[:, None]).reshape(shape)


@pytest.mark.parametrize("centre", ["range", "mean", "none"])
@pytest.mark.parametrize("shape", [(6, 5, 3, 3), (6, 5, 9), (6, 5, 1, 7), (3, 4, 2, 3, 4)])
def test_any_shape_equals_the_definition(shape, centre):
    expected = by_hand(shape, Draw(3, "x"), centre)
    found = psine(shape, Draw(3, "x"), centre=centre)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(("size", "share"), [(3, 0.071), (5, 0.076), (7, 0.078)])
def test_as_much_of_the_energy_is_constant_as_in_the_original(size, share):
    kernels = psine((200, 200, size, size), Draw(0, "")).reshape(-1, size * size)
    constant = kernels.sum(1) ** 2 / size**2  # of kernels of unit norm
    assert constant.mean() == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize("size", [3, 5, 7])
def test_low_frequencies_are_favoured(size):
    kernels = psine((100, 100, size, size), Draw(0, "")).reshape(-1, size * size)
    energy = np.abs(kernels @ dct_basis((size, size)).reshape(size * size, -1).T).mean(0)
    total = np.array([sum(k) for k in frequency_order((size, size))])
    by_total = [energy[total == t].mean() for t in range(1, 2 * size - 1)]
    assert (np.diff(by_total) < 0).all()


def test_more_kernels_than_fit_one_block():
    kernels = psine((200, 200, 3), Draw(0, "")).reshape(-1, 3)
    assert len(np.unique(kernels.round(9), axis=0)) == len(kernels)
