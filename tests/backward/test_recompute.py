"""A frugal network computes what the ordinary one does, and keeps less."""

import copy
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import explainfix as xf
from explainfix.backward import recompute, rows
from explainfix.backward.frozen import is_lean, make_ordinary
from explainfix.backward.recompute import make_frugal_, undo_frugal_
from explainfix.backward.saved import kept_for_backward
from gradients import passes, widening
from networks import SPECS, first, image_shape, without_chance

ACTIVATIONS = {
    "ReLU": nn.ReLU, "ReLU6": nn.ReLU6, "Hardtanh": lambda: nn.Hardtanh(-0.5, 1), "CELU": nn.CELU,
    "SiLU": nn.SiLU, "ELU": nn.ELU, "GELU": nn.GELU, "Hardswish": nn.Hardswish, "Mish": nn.Mish,
    "LeakyReLU": nn.LeakyReLU, "a V": lambda: nn.LeakyReLU(-0.5),
    "ReLU in place": lambda: nn.ReLU(inplace=True),
    "ReLU6 in place": lambda: nn.ReLU6(inplace=True),
    "SiLU in place": lambda: nn.SiLU(inplace=True),
}  # fmt: skip
TENSOR = 2 * 16 * 16 * 4  # bytes of a channel
PRECISIONS = [{}, {"dtype": torch.bfloat16}]


@pytest.mark.parametrize("precision", PRECISIONS, ids=["float32", "bf16"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_frugal_networks_compute_the_same(activation, layout, precision):
    model = widening(activation).to(memory_format=layout)
    for norm in (model[1], model[4], model[7]):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    xf.fix_(model, "ghaar")
    frugal = copy.deepcopy(model)
    make_frugal_(frugal)
    x = (3 * torch.randn(2, 8, 16, 16)).to(memory_format=layout)
    results = passes(model, x, **precision), passes(frugal, x, **precision)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    for one, other in zip(model.buffers(), frugal.buffers(), strict=True):
        assert torch.equal(one, other)  # the running statistics, once a step


@pytest.mark.parametrize("precision", PRECISIONS, ids=["float32", "bf16"])
@pytest.mark.parametrize("kind", ["ReLU", "ReLU6", "CELU", "SiLU", "SiLU in place"])
def test_batchnorm_on_rows_of_pixels_is_computed_again_too(kind, precision, monkeypatch):
    monkeypatch.setattr(rows, "ENOUGH", 64)
    monkeypatch.setattr(rows, "LANES", 7)  # so that 32 channels, made anew, are no multiple either
    model = widening(ACTIVATIONS[kind]).to(memory_format=torch.channels_last)
    for norm in (model[1], model[4], model[7]):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    xf.fix_(model, "ghaar")
    x = (3 * torch.randn(2, 8, 16, 16)).contiguous(memory_format=torch.channels_last)
    before = kept_for_backward(copy.deepcopy(model), x)
    ordinary = copy.deepcopy(model)
    make_frugal_(ordinary)
    plain, frugal = copy.deepcopy(model), copy.deepcopy(model)
    for network in (plain, frugal):
        rows.normalise_in_rows_(network)
    make_frugal_(frugal)
    assert plain[1](plain[0](x)).grad_fn.name().startswith("_BatchNormInRows")
    results = passes(plain, x, **precision), passes(frugal, x, **precision)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    with_rows, without = kept_for_backward(frugal, x), kept_for_backward(ordinary, x)
    assert with_rows < before
    assert with_rows == pytest.approx(without, abs=200)  # but for statistics of a few channels


# The channels that the three activations of the network keep and a frugal one does not. The wide
# input of its last BatchNorm, of 32 channels, goes with any of them.
KEPT = {
    "ReLU": 4,  # before the fixed layer; before a learned one it keeps what that keeps
    "ReLU6": 4 + 4 + 32,
    "Hardtanh": 4 + 4 + 32,
    "LeakyReLU": 4 + 4 + 32,
    "SiLU": 4 + 4 + 32,
    "CELU": 4 + 4 + 32,
}


@pytest.mark.parametrize("kind", KEPT)
def test_frugal_networks_keep_less(kind):
    model = widening(ACTIVATIONS[kind])
    xf.fix_(model, "ghaar")
    x = torch.randn(2, 8, 16, 16)
    before = kept_for_backward(model, x)
    make_frugal_(model)
    assert before - kept_for_backward(model, x) == (32 + KEPT[kind]) * TENSOR
    undo_frugal_(model)
    assert kept_for_backward(model, x) == before
    assert not any(layer._forward_hooks for layer in model if not is_lean(layer))


def operations(model, x, backward):
    """The ATen operations of a forward, or a backward pass, in order."""
    model.zero_grad()
    with recorded() as forward:
        y = model(x)
    with recorded() as back:
        y.sum().backward()
    return back if backward else forward


@contextmanager
def recorded():
    names = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            names.append(op.overloadpacket.__name__)
            return op(*args, **(kwargs or {}))

    with Recorder():
        yield names


def counted(names):
    """How often each occurs, without those that do nothing to what is in a tensor."""
    return Counter(name for name in names if name not in ("detach", "ones_like", "empty"))


@pytest.mark.parametrize("free", [False, True])
def test_what_is_shared_costs_no_operation(free):
    model = nn.Sequential(
        nn.Conv2d(2, 4, 1), nn.ReLU6(), nn.Conv2d(4, 4, 3), nn.LeakyReLU(), nn.Conv2d(4, 2, 1)
    )
    x = torch.randn(2, 2, 8, 8)
    before = [counted(operations(model, x, backward)) for backward in (False, True)]
    kept = kept_for_backward(model, x)
    make_frugal_(model, free=free)
    assert [counted(operations(model, x, backward)) for backward in (False, True)] == before
    assert kept - kept_for_backward(model, x) == 2 * 4 * (8 * 8 + 6 * 6) * 4


@pytest.mark.parametrize("kind", ["ReLU", "ReLU6", "SiLU"])
def test_what_is_free_is_the_same_and_costs_no_operation(kind):
    model = widening(ACTIVATIONS[kind])
    xf.fix_(model, "ghaar")
    free, x = copy.deepcopy(model), torch.randn(2, 8, 16, 16)
    make_frugal_(free, free=True)
    assert all(torch.equal(a, b) for a, b in zip(passes(model, x), passes(free, x), strict=True))
    for backward in (False, True):
        both = (counted(operations(each, x, backward)) for each in (model, free))
        assert next(both) == next(both)
    less = kept_for_backward(model, x) - kept_for_backward(free, x)
    assert less == (TENSOR * (4 + 32) if kind == "ReLU6" else 0)  # before learned layers
    undo_frugal_(free)
    assert kept_for_backward(free, x) == kept_for_backward(model, x)


def test_what_is_normalised_again_costs_one_operation_and_the_wide_tensor_is_made_once():
    model = widening(nn.SiLU)
    xf.fix_(model, "ghaar")
    x = torch.randn(2, 8, 16, 16)
    before = counted(operations(model, x, True))
    forward = counted(operations(model, x, False))
    make_frugal_(model)
    assert counted(operations(model, x, False)) == forward
    more = counted(operations(model, x, True)) - before
    assert more == {"native_batch_norm": 3, "convolution": 1, "mul": 3}  # of channels, the mul


def test_gradients_are_those_of_the_formula():
    """Numerical derivatives in float64 know nothing of what is kept."""
    model = widening(lambda: nn.SiLU(inplace=True)).double()
    xf.fix_(model, "ghaar")
    make_frugal_(model)
    x = torch.randn(2, 8, 2, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(model, (x,))


def test_what_changed_in_place_since_is_an_error_not_a_wrong_gradient():
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.SiLU())
    make_frugal_(model)
    output = model(torch.randn(2, 2, 4, 4))
    with torch.no_grad():
        model[1].bias.add_(1)
    with pytest.raises(RuntimeError, match="changed in place since: train without frugal"):
        output.sum().backward()


def test_other_normalisations_stay_as_they_are():
    """A BatchNorm that is not training, one without weights, and none at all."""
    x = torch.randn(2, 2, 4, 4)
    for norm, saved in (
        (nn.BatchNorm2d(2).eval(), 0), (nn.BatchNorm2d(2, affine=False), 1),
        (nn.BatchNorm2d(2, track_running_stats=False), 1), (nn.GroupNorm(1, 2), 0),
    ):  # fmt: skip
        model = nn.Sequential(nn.Conv2d(2, 2, 1), norm, nn.SiLU())
        frugal = copy.deepcopy(model)
        make_frugal_(frugal)
        results = passes(model, x), passes(frugal, x)
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        less = kept_for_backward(model, x) - kept_for_backward(frugal, x)
        assert less == saved * x.numel() * 4


def test_a_graph_may_be_used_twice():
    model = widening(nn.SiLU)
    xf.fix_(model, "ghaar")
    make_frugal_(model)
    x = torch.randn(2, 8, 16, 16, requires_grad=True)
    loss = model(x).square().mean()
    gradients = [torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2)]
    assert torch.equal(*gradients)


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
    """In float64: before a BatchNorm the gradient of a bias is 0, but for rounding."""
    model = without_chance(xf.create_model(spec)).double()
    xf.fix_(model, "unchanged")
    ordinary = copy.deepcopy(model)
    for layer in xf.spatial_layers(ordinary).values():
        make_ordinary(layer)
    make_frugal_(model)
    x = torch.randn(2, *image_shape(spec, 64)).double()
    gradients = []
    for network in (ordinary, model):
        output = first(network(x))
        (output * torch.cos(torch.arange(output.numel())).reshape(output.shape)).sum().backward()
        gradients.append({n: p.grad for n, p in network.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-9, atol=1e-9)


class Standardised(nn.Conv2d):
    """Convolves with another weight than its own."""

    def forward(self, input):
        return self._conv_forward(input, self.weight - self.weight.mean(), self.bias)


def large(monkeypatch, kind=nn.Conv2d, *, fixed=True):
    """A network with a layer that counts as large, and its frugal copy, for free."""
    monkeypatch.setattr(recompute, "LARGE", 8 * 8 * 9)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), kind(8, 8, 3, bias=False), nn.Conv2d(8, 2, 1))
    if fixed:
        xf.fix_(model, "ghaar")
    frugal = copy.deepcopy(model)
    make_frugal_(frugal, free=True)
    return model, frugal


def kept_in_bf16(model, x):
    with torch.autocast("cpu", torch.bfloat16):
        return kept_for_backward(model, x)


def test_a_large_fixed_weight_is_cast_again(monkeypatch):
    model, frugal = large(monkeypatch)
    x = torch.randn(2, 3, 8, 8)
    results = passes(model, x, dtype=torch.bfloat16), passes(frugal, x, dtype=torch.bfloat16)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert kept_in_bf16(model, x) - kept_in_bf16(frugal, x) == 2 * 8 * 8 * 9
    assert kept_for_backward(model, x) == kept_for_backward(frugal, x)


@pytest.mark.parametrize("why", ["learned", "another weight", "small"])
def test_other_weights_are_kept_as_they_were(why, monkeypatch):
    kind = Standardised if why == "another weight" else nn.Conv2d
    model, frugal = large(monkeypatch, kind, fixed=why != "learned")
    if why == "small":
        monkeypatch.setattr(recompute, "LARGE", 8 * 8 * 9 + 1)
        make_frugal_(frugal, free=True)
    x = torch.randn(2, 3, 8, 8)
    assert kept_in_bf16(model, x) == kept_in_bf16(frugal, x)
    results = passes(model, x, dtype=torch.bfloat16), passes(frugal, x, dtype=torch.bfloat16)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_fixed_weight_that_changes_before_the_backward_pass_is_an_error(monkeypatch):
    _, frugal = large(monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        y = frugal(torch.randn(2, 3, 8, 8))
    with torch.no_grad():
        frugal[1].weight.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_a_layer_without_weights_yet_can_be_frugal():
    model = nn.Sequential(nn.LazyConv2d(4, 3))
    make_frugal_(model)
    assert model(torch.randn(1, 3, 8, 8)).shape == (1, 4, 6, 6)
