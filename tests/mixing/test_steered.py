"""A layer in two parts stands for the one that was there: its hooks, parameters and calls."""

import copy

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.mixing.steered import Steered

X = torch.randn(2, 3, 12, 12)


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()


def part(model, form):
    if form == "steered":
        xf.steer_(model)
    else:
        xf.fix_(model, "unchanged", mix=True)
    assert isinstance(model[0], Steered)


@pytest.mark.parametrize("form", ["steered", "mixed"])
def test_hooks_are_called_there_and_back_until_they_are_removed(form):
    model, called = network(), []
    kinds = ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook")
    handles = [
        getattr(model[0], f"register_{kind}")(lambda module, *_, kind=kind: called.append(kind))
        for kind in kinds
    ]
    handles.append(
        model[0].register_forward_hook(lambda module, args, kwargs, y: y * 2, with_kwargs=True)
    )
    before = model(X)
    for change in (lambda: part(model, form), lambda: xf.merge_(model)):
        change()
        called.clear()
        after = model(X.clone().requires_grad_())
        after.sum().backward()
        assert called == list(kinds)
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    for handle in handles:
        handle.remove()
    called.clear()
    assert not torch.allclose(model(X), before)
    assert called == []


def test_after_an_error_the_hooks_are_where_they_were():
    model, called = network(), []
    model[0].register_forward_hook(lambda *_: called.append(1))
    model[2].weight.register_hook(lambda grad: None)
    with pytest.raises(ValueError, match="its weight has hooks"):
        xf.steer_(model, layers=["0", "2"])
    assert list(xf.steer_(model).left) == ["2"]
    model[0].spatial.register_forward_hook(lambda *_: called.append(2))
    with pytest.raises(ValueError, match="hooks that no merged layer could call"):
        xf.merge_(model)
    model(X)
    assert called == [2, 1]


def test_a_forward_of_one_layers_own_is_kept():
    model = network()
    model[0].forward = lambda x: nn.Conv2d.forward(model[0], x) * 2
    before = model(X)
    assert "computes more" in xf.steer_(model).left["0"]
    torch.testing.assert_close(model(X), before, rtol=1e-4, atol=1e-5)


def learned(model):
    return [name for name, each in model.named_parameters() if each.requires_grad]


def test_what_was_frozen_does_not_begin_to_learn():
    model = network()
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    before, biases = learned(model), [id(model[0].bias), id(model[2].bias)]
    xf.steer_(model)
    assert learned(model) == ["0.steering.bias", "2.steering.weight"]
    xf.merge_(model)
    assert learned(model) == before
    assert [id(model[0].bias), id(model[2].bias)] == biases  # an optimizer may hold them
    xf.fix_(model, "ghaar")
    xf.steer_(model)
    assert "0.steering.weight" in learned(model)  # what is fixed is there to be steered


class Upward(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.down(input=x), output_size=x.shape[2:])


@pytest.mark.parametrize("form", ["steered", "mixed"])
def test_arguments_by_name(form):
    model = Upward()
    before = model(X)
    xf.steer_(model) if form == "steered" else xf.fix_(model, "unchanged", mix=True)
    torch.testing.assert_close(model(X), before, rtol=1e-4, atol=1e-5)


def test_channels_last_comes_back():
    model = network().to(memory_format=torch.channels_last)
    before = model[2].weight.stride()
    xf.steer_(model)
    xf.merge_(model)
    assert model[2].weight.stride() == before


@pytest.mark.parametrize("made", [lambda m: torch.compile(m, backend="eager"), torch.jit.script])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_compiled_models_are_left_alone(made):
    model = network()
    xf.fix_(model, "ghaar", layers="0")
    other = made(copy.deepcopy(model))
    for change in (xf.steer_, xf.mix_, xf.merge_):
        with pytest.raises(ValueError, match=r"is (compiled|scripted).*original|no layer"):
            change(other)


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.autocast("cpu")])
def test_no_weights_are_made_that_cannot_be_trained_or_are_rounded(mode):
    model = network()
    xf.fix_(model, "ghaar", layers="0")
    for change in (xf.steer_, xf.mix_, xf.merge_):
        with mode(), pytest.raises(ValueError, match="call it outside"):
            change(model)
