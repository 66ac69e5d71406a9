import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import explainfix as xf
from explainfix.filters.gain import _after_relu, _neighbour_correlation, _relu_moments, kaiming_gain


def activations(model, image, size=torch.std):
    """The size of every convolution's output."""
    sizes = []
    with torch.no_grad():
        for module in model:
            image = module(image)
            if isinstance(module, nn.Conv2d):
                sizes.append(size(image).item())
    return torch.tensor(sizes)


def root_mean_square(x):
    return x.square().mean().sqrt()


@pytest.fixture(scope="module")
def vgg():
    torch.manual_seed(0)
    model = xf.create_model("torchvision:vgg16").features.eval()
    for layer in xf.spatial_layers(model).values():
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(1)
    smooth = nn.functional.interpolate(torch.randn(1, 3, 12, 12), size=(64, 64), mode="bicubic")
    return {"noise": torch.randn(1, 3, 64, 64), "smooth": smooth, "positive": smooth.sigmoid()}


@pytest.mark.parametrize("method", xf.list_filters())
def test_vgg_without_batchnorm_keeps_its_activations(vgg, images, method):
    """Near Kaiming's at each of the 13 layers, whatever the image; a factor 10 for GHaar."""
    twin = copy.deepcopy(vgg)
    xf.fix_(twin, method, scale="fan_in")
    # Ones, and DCT2 which has them, leave a large mean and little deviation: that is what they do.
    size = root_mean_square if method in ("ones", "dct2") else torch.std
    factor = {"ones": 200, "dct2": 200, "psine": 20}.get(method, 10)  # not billions
    for kind, image in images.items():
        ratios = activations(twin, image, size) / activations(vgg, image, size)
        assert len(ratios) == 13
        assert ((ratios > 1 / factor) & (ratios < factor)).all(), (kind, ratios)


def test_kaimings_number_or_the_methods_own_norm_would_not(vgg, images):
    kaiming = activations(vgg, images["noise"])[-1]
    twin = copy.deepcopy(vgg)
    xf.fix_(twin, "ghaar", scale="paper")
    assert activations(twin, images["noise"])[-1] / kaiming > 1e6
    for layer in xf.spatial_layers(twin).values():
        layer.weight *= (2 / layer.weight[0].numel() / layer.weight.square().mean()).sqrt()
    assert activations(twin, images["noise"])[-1] / kaiming > 100


@pytest.mark.parametrize("shape", [(64, 64, 3, 3), (256, 3, 7, 7), (32, 16, 5), (64, 8, 3, 3, 3)])
def test_independent_weights_get_kaimings_number(shape):
    kernels = np.random.default_rng(0).normal(size=shape)
    assert kaiming_gain(kernels) == pytest.approx(math.sqrt(2 / np.prod(shape[1:])), rel=0.15)


def test_equal_weights_get_a_mean():
    # Behind a few layers of ones everything is positive and equal: a mean keeps it.
    assert kaiming_gain(np.ones((4, 8, 3, 3))) == pytest.approx(1 / 72, rel=1e-3)


def test_zeros_stay_zeros():
    assert kaiming_gain(np.zeros((4, 8, 3, 3))) == 1.0


@pytest.mark.parametrize("mean", [-1.0, 0.0, 0.3, 5.0])
def test_moments_of_a_rectified_normal(mean):
    normal = stats.norm(mean, 2.0)
    first, second = _relu_moments(mean, 2.0)
    assert first == pytest.approx(normal.expect(lambda z: z, lb=0), abs=1e-8)
    assert second == pytest.approx(normal.expect(lambda z: z * z, lb=0), abs=1e-8)


@pytest.mark.parametrize("correlation", [-0.9, -0.2, 0.0, 0.5, 0.95])
def test_correlation_behind_a_relu(correlation):
    random = np.random.default_rng(0)
    z = random.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=400_000)
    x = np.maximum(z, 0)
    share = (x[:, 0] * x[:, 1]).mean() / (x**2).mean()
    assert _after_relu(correlation) == pytest.approx(
        (share - 1 / np.pi) / (1 - 1 / np.pi), abs=0.01
    )


def test_correlation_of_neighbouring_outputs():
    """Measured on noise: all pairs of outputs within a window, for one smooth kernel."""
    kernel = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0]])
    torch.manual_seed(0)
    outputs = nn.functional.conv2d(torch.randn(64, 1, 40, 40), kernel[None, None])
    windows = nn.functional.unfold(outputs, (2, 3)).transpose(1, 2).reshape(-1, 6)
    correlations = torch.corrcoef(windows.T)
    measured = float(correlations.sum() - 6) / 30
    assert _neighbour_correlation(kernel.numpy()[None, None]) == pytest.approx(measured, abs=0.01)
