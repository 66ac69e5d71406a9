"""A frugal network computes what the ordinary one does, and keeps less."""

import copy

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.backward.frozen import is_lean, make_ordinary
from explainfix.backward.recompute import make_frugal_, undo_frugal_
from explainfix.backward.saved import kept_for_backward
from gradients import passes, widening
from networks import SPECS, first, image_shape, without_chance


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.CELU, lambda: nn.ReLU(inplace=True),
                                        lambda: nn.ReLU6(inplace=True)])  # fmt: skip
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_frugal_networks_compute_the_same_and_keep_less(activation, layout):
    model = widening(activation).to(memory_format=layout)
    xf.fix_(model, "ghaar")
    frugal = copy.deepcopy(model)
    make_frugal_(frugal)
    x = (3 * torch.randn(2, 8, 16, 16)).to(memory_format=layout)
    results = passes(model, x), passes(frugal, x)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    kept = [kept_for_backward(network, x) for network in (model, frugal)]
    pixels = 2 * 16 * 16
    assert kept[0] - kept[1] >= 32 * pixels * 4  # the wide tensor
    if not isinstance(model[2], nn.CELU):
        assert kept[0] - kept[1] >= 32 * pixels * 4 + 4 * pixels * 3  # and masks
    undo_frugal_(frugal)
    assert kept_for_backward(frugal, x) == kept[0]
    assert not any(layer._forward_hooks for layer in frugal if not is_lean(layer))


def test_a_frugal_network_is_twice_differentiable():
    model = widening(nn.CELU).double()
    frugal = copy.deepcopy(model)
    make_frugal_(frugal)
    x = torch.randn(1, 8, 4, 4).double()

    def penalty(network):
        """The gradient of a gradient's norm, as in gradient penalties."""
        y = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(network(y).square().sum(), y, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), list(network.parameters())[:-1])

    for one, other in zip(penalty(model), penalty(frugal), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.zoo
@pytest.mark.parametrize("spec", SPECS)
def test_gradients_are_those_of_the_ordinary_frozen_network(spec):
    model = without_chance(xf.create_model(spec))
    xf.fix_(model, "unchanged")
    ordinary = copy.deepcopy(model)
    for layer in xf.spatial_layers(ordinary).values():
        make_ordinary(layer)
    make_frugal_(model)
    x = torch.randn(2, *image_shape(spec, 96))
    gradients = []
    for network in (ordinary, model):
        output = first(network(x))
        (output * torch.cos(torch.arange(output.numel())).reshape(output.shape)).sum().backward()
        gradients.append({n: p.grad for n, p in network.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-5, atol=1e-6)
