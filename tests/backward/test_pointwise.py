"""A pointwise convolution as a product of matrices is that convolution: by float64."""

import copy

import pytest
import torch
from torch import nn

from explainfix.backward import pointwise
from explainfix.backward.pointwise import multiply_pointwise_

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
IMAGES, VOLUMES = (2, 12, 5, 7), (2, 12, 3, 4, 5)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pointwise, "LARGE", 12 * 20)


def both(shape, **options):
    """The same convolution, PyTorch's and as it is after `multiply_pointwise_`."""
    kind = nn.Conv2d if len(shape) == 4 else nn.Conv3d
    layer = kind(shape[1], 20, options.pop("kernel_size", 1), **options)
    other = copy.deepcopy(layer)
    multiply_pointwise_(nn.Sequential(other))
    return layer, other


def images(shape):
    return torch.randn(shape).contiguous(memory_format=LAST[len(shape)])


def passes(layer, x, *, low=True):
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        y = layer(x)
    y.backward(torch.cos(torch.arange(y.numel())).reshape(y.shape).to(y.dtype))
    return [y, x.grad, *(p.grad for p in layer.parameters())]


def is_product(output):
    return "Convolution" not in output.grad_fn.name()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [IMAGES, VOLUMES, (1, 12, 1, 1)])
def test_as_near_to_the_formula_as_pytorch(shape, bias):
    layer, ours = both(shape, bias=bias)
    x = images(shape)
    right = passes(copy.deepcopy(layer).double(), x.double(), low=False)
    theirs, mine = passes(layer, x), passes(ours, x)
    assert is_product(mine[0])
    assert not is_product(theirs[0])
    assert all(t.is_contiguous(memory_format=LAST[t.dim()]) for t in mine[:2])
    for known, one, other in zip(right, theirs, mine, strict=True):
        assert other.dtype == one.dtype
        assert (other - known).norm() <= 1.2 * (one - known).norm() + 2e-3 * known.norm()


def test_a_network_of_low_precision_has_it_too():
    layer, ours = both(IMAGES)
    x = images(IMAGES).bfloat16()
    y = ours.bfloat16()(x)
    assert is_product(y)
    torch.testing.assert_close(y, layer.bfloat16()(x))


def test_a_frozen_layer_keeps_no_input():
    _, ours = both(IMAGES)
    ours.requires_grad_(False)
    x = images(IMAGES).requires_grad_()
    kept = []
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t),
        torch.autocast("cpu", torch.bfloat16),
    ):
        ours(x).sum().backward()
    assert x.grad is not None
    assert kept == [torch.Size([12, 20])]


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3},
        {"stride": 2},
        {"padding": 1},
        {"padding": "same"},
        {"groups": 2},
        {"padding_mode": "reflect", "padding": 1},
    ],
    ids=str,
)
def test_others_stay_as_they_are(options):
    layer, other = both(IMAGES, **options)
    assert type(other) is nn.Conv2d
    assert (layer.weight == other.weight).all()


def test_small_weights_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(pointwise, "LARGE", 12 * 20 + 1)
    assert type(both(IMAGES)[1]) is nn.Conv2d


@pytest.mark.parametrize("why", ["float32", "usual layout", "many pixels", "float16"])
def test_elsewhere_it_convolves(why, monkeypatch):
    layer, ours = both(IMAGES)
    x, dtype = images(IMAGES), torch.bfloat16
    if why == "usual layout":
        x = x.contiguous()
    if why == "many pixels":
        monkeypatch.setattr(pointwise, "FEW", 2 * 5 * 7 - 1)
    if why == "float16":
        dtype = torch.float16
    with torch.autocast("cpu", dtype, enabled=why != "float32"):
        y = ours(x)
        assert not is_product(y)
        assert torch.equal(y, layer(x))


def test_the_layer_is_pytorchs_to_the_outside():
    layer, ours = both(IMAGES)
    assert isinstance(ours, nn.Conv2d)
    assert list(ours.state_dict()) == list(layer.state_dict())
    assert isinstance(copy.deepcopy(ours), type(ours))
    with pytest.raises(RuntimeError, match="expected input"):
        ours(torch.randn(2, 11, 5, 7))
