"""Kinds of saliency, each against its formula; Eq. (7) and the gradient are in test_saliency.py."""

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.explanation.kind import by_model, kinds, list_saliencies


def network():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1),
        nn.Flatten(),
        nn.Linear(3 * 36, 2),
    )
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([0.5, -2.0, 0.0, 1.0]))
    return model.eval()


X = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", list_saliencies())
@pytest.mark.parametrize("pointwise", [False, True])
def test_every_kind_scores_every_kernel(kind, pointwise):
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = xf.saliency(model, [X], kind=kind, pointwise=pointwise)
    assert {p: tuple(s.shape) for p, s in found.items()} == (
        {"0": (4, 1), "3": (3, 4), "5": (2, 108)} if pointwise else {"0": (4, 1)}
    )
    assert all(bool((score >= 0).all()) for score in found.values())
    assert found.kind == kind
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    zeroed = xf.zero_(model, {"0": found["0"]}, 0.5)
    assert zeroed == {"0": 2}


@pytest.mark.parametrize("kind", ["magnitude", "batchnorm", "random"])
def test_some_kinds_need_no_data(kind):
    found = xf.saliency(nn.Sequential(*network()[:4]), kind=kind)
    assert found.batches == 0
    assert repr(found) == f"Saliency of 4 kernels in 1 layers, by {kind}"
    why = xf.explain(nn.Sequential(*network()[:4]), saliency=found)
    assert why.weighting == f"Weighted by {kind}"
    with pytest.raises(ValueError, match=f"'{kind}' sees none"):
        xf.saliency(network(), [X], kind=kind, error=True)


@pytest.mark.parametrize("kind", ["weight_gradient", "gradient"])
def test_the_others_say_that_there_is_none(kind):
    with pytest.raises(ValueError, match="there is no batch"):
        xf.saliency(network(), kind=kind)


def test_pointwise_layers_have_the_same_formula():
    model = network()
    found = xf.saliency(model, [(X, torch.tensor([0, 1]))], pointwise=True)
    alone = xf.saliency(model, [(X, torch.tensor([0, 1]))])
    torch.testing.assert_close(found["0"], alone["0"])
    output = model(X)
    value = (torch.eye(2)[[0, 1]] * output / output.detach()).sum()
    [gradient] = torch.autograd.grad(value, [model[5].weight])
    torch.testing.assert_close(found["5"], (gradient * model[5].weight).abs().detach().double())


def test_magnitude_is_the_sum_of_absolute_weights_as_a_share_of_the_layers_mean():
    model = network()
    found = xf.saliency(model, kind="magnitude")["0"]
    sums = model[0].weight.detach().double().abs().sum((2, 3))
    torch.testing.assert_close(found, sums / sums.mean())


def test_batchnorm_is_the_gain_behind_a_layer_or_before_it():
    model = network()
    found = xf.saliency(model, [X], kind="batchnorm", pointwise=True)
    gains = torch.tensor([0.5, 2.0, 0.0, 1.0], dtype=torch.float64)
    assert torch.equal(found["0"][:, 0], gains)
    assert torch.equal(found["3"], gains.expand(3, 4))  # it reads what was scaled
    usual = gains.mean()
    torch.testing.assert_close(found["5"], usual.expand(2, 108))


def test_without_batchnorm_there_is_no_gain():
    with pytest.raises(ValueError, match="no BatchNorm with a gain is beside a layer of this Seq"):
        xf.saliency(nn.Sequential(nn.Conv2d(1, 2, 3)), kind="batchnorm")


def test_random_is_drawn_from_the_seed_and_so_are_sums_over_a_channel():
    model = nn.Sequential(nn.Conv2d(64, 64, 3))
    one, again = (xf.saliency(model, kind="random", seed=1)["0"] for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, xf.saliency(model, kind="random", seed=2)["0"])
    sums = one.sum(1)
    assert sums.std() / sums.mean() > 0.4  # of independent kernels it would be 0.07


def test_a_kind_is_one_decorated_function():
    @by_model("test: all alike")
    def alike(layers, given):
        return {path: torch.ones(layer.weight.shape[:2]) for path, layer in layers.items()}

    try:
        assert xf.saliency(network(), kind="test: all alike")["0"].sum() == 4
        with pytest.raises(ValueError, match="registered already"):
            by_model("test: all alike")(alike)
    finally:
        del kinds["test: all alike"]
