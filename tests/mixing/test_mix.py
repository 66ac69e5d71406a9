"""A learned 1x1 behind fixed convolutions: where it is needed, that nothing changes, and back."""

import copy

import pytest
import torch
from timm.layers import ScaledStdConv2d, StdConv2d
from torch import nn
from torch.nn import functional as F
from torchvision.models import densenet121, mobilenet_v2, resnet18, resnet50, vgg11_bn
from torchvision.ops import DeformConv2d

import explainfix as xf
from explainfix.mixing.mix import unmixed_layers
from explainfix.mixing.steered import Steered, steered_layers


def plain():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 4, 3),
    ).eval()  # fmt: skip


@pytest.mark.parametrize(
    ("build", "total", "unmixed"),
    [(resnet18, 17, 16), (vgg11_bn, 8, 7), (resnet50, 17, 0), (densenet121, 59, 0),
     (mobilenet_v2, 18, 1)],
)  # fmt: skip
def test_which_networks_need_it(build, total, unmixed):
    model = build()
    layers = xf.spatial_layers(model)
    found = unmixed_layers(model, suppose_fixed=layers)
    assert (len(layers), len(found)) == (total, unmixed)
    assert unmixed_layers(model) == []  # as they are, they learn


def test_the_last_layer_of_a_resnet_is_mixed_by_its_classifier():
    model = resnet18()
    found = unmixed_layers(model, suppose_fixed=xf.spatial_layers(model))
    assert set(xf.spatial_layers(model)) - set(found) == {"layer4.1.conv2"}


class Gated(nn.Module):
    """A learned gate looks at the channels, and what passes it is not mixed."""

    def __init__(self):
        super().__init__()
        self.see, self.gate, self.next = nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Conv2d(4, 2, 3)

    def forward(self, x):
        x = self.see(x)
        return self.next(x * self.gate(x.mean((2, 3)))[..., None, None])


class Functional(nn.Module):
    """Mixed by a product with a weight that no layer has."""

    def __init__(self, learned):
        super().__init__()
        self.see, self.next = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)
        self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=learned)

    def forward(self, x):
        return self.next(torch.einsum("nchw,cd->ndhw", self.see(x), self.weight))


class Head(nn.Module):
    """A head that only runs in training."""

    def __init__(self):
        super().__init__()
        self.see, self.mix, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 3)

    def forward(self, x):
        x = self.see(x)
        return (self.mix(x), self.head(x)) if self.training else self.mix(x)


@pytest.mark.parametrize(
    ("model", "unmixed"),
    [
        (Gated(), ["see", "next"]),
        (Functional(True), ["next"]),
        (Functional(False), ["see", "next"]),
        (Head(), ["see", "head"]),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)), []),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 62 * 62, 2)), []),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1, groups=4)), ["0"]),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.ConvTranspose1d(4, 2, 3)), ["0", "1"]),
        (nn.Sequential(nn.Conv3d(1, 2, 3), nn.Conv3d(2, 2, 1), nn.Conv3d(2, 2, 3)), ["2"]),
    ],
)
def test_what_mixes(model, unmixed):
    assert unmixed_layers(model, suppose_fixed=xf.spatial_layers(model)) == unmixed


def test_a_learned_spatial_layer_mixes_too():
    model = plain()
    assert unmixed_layers(model, suppose_fixed=["0"]) == []


def test_outputs_stay_bit_for_bit(tmp_path):
    model, x = plain(), torch.randn(2, 3, 16, 16)
    xf.fix_(model, "ghaar", scale="fan_in")
    before, learned = model(x), sum(p.numel() for p in model.parameters() if p.requires_grad)
    random = torch.get_rng_state()
    assert xf.mix_(model) == ["0", "3", "5"]
    assert torch.equal(random, torch.get_rng_state())
    assert torch.equal(model(x), before)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == learned + 64 + 64 + 16
    xf.check_fixed(model)
    xf.save(model, tmp_path / "m.safetensors")
    again = xf.load(tmp_path / "m.safetensors", plain()).eval()
    assert torch.equal(again(x), before)
    xf.check_fixed(again)


def test_merged_after_it_has_learned():
    model, x = plain().double(), torch.randn(2, 3, 16, 16).double()
    xf.fix_(model, "ghaar", scale="fan_in", mix=True)
    for layer in steered_layers(model).values():
        nn.init.normal_(layer.steering.weight)
    before = model(x)
    assert xf.merge_(model) == ["0", "3", "5"]
    torch.testing.assert_close(model(x), before, rtol=1e-10, atol=1e-10)
    assert model[3].groups == 1  # what was mixed is in no groups any more
    assert all(p.requires_grad for p in model.parameters())


def test_fix_mixes_at_once():
    one, two = plain(), plain()
    xf.fix_(one, "ghaar", seed=3, mix=True)
    xf.fix_(two, "ghaar", seed=3)
    xf.mix_(two)
    assert torch.equal(one[0].spatial.weight, two[0].spatial.weight)
    assert list(steered_layers(one)) == list(steered_layers(two)) == ["0", "3", "5"]
    mixed = resnet50()
    xf.fix_(mixed, "ghaar", mix=True)
    assert steered_layers(mixed) == {}


def test_a_mixed_network_is_explained_scored_pruned_and_trained():
    model, x = plain(), torch.randn(2, 3, 16, 16)
    xf.fix_(model, "ghaar", scale="fan_in", mix=True)
    scores = xf.saliency(model, [x])
    assert len(xf.explain(model, saliency=scores)) == 3
    xf.zero_(model, scores, 0.6)
    before = model(x)
    xf.prune_(model, x)
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    F.mse_loss(model.train()(x), torch.zeros_like(before)).backward()
    optimizer.step()
    xf.check_fixed(model)
    assert not torch.equal(model[0].steering.weight, torch.eye(len(model[0].steering.weight)))


def test_named_layers_are_mixed_needed_or_not():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1))
    xf.fix_(model, "ghaar")
    assert xf.mix_(model) == []
    assert xf.mix_(model, layers="0") == ["0"]
    assert isinstance(model[0], Steered)
    with pytest.raises(ValueError, match="no dense convolution"):
        xf.mix_(model, layers="0")  # it is mixed already


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        if x.shape[-1] != 100:
            raise RuntimeError("images must be of 100 pixels")
        return self.conv(x)


def test_a_model_that_does_not_run_on_noise_asks_for_an_example():
    model = Picky()
    xf.fix_(model, "ghaar")
    with pytest.raises(ValueError, match=r"images must be of 100 pixels.*pass example_inputs"):
        xf.mix_(model)
    assert xf.mix_(model, example_inputs=torch.randn(1, 3, 100, 100)) == ["conv"]


def test_on_an_error_nothing_is_fixed_either():
    model = Picky()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="images must be of 100 pixels"):
        xf.fix_(model, "ghaar", mix=True)
    assert torch.equal(model.conv.weight, before["conv.weight"])
    assert model.conv.weight.requires_grad
    with pytest.raises(ValueError, match="call fix_ first"):
        xf.mix_(model)


def test_a_layer_that_computes_more_is_mixed_and_not_merged():
    class Own(nn.Conv2d):
        def forward(self, x):
            return super().forward(F.pad(x, (1, 1, 1, 1)))

    model = nn.Sequential(Own(3, 4, 3), nn.ReLU())
    xf.fix_(model, "ghaar")
    x = torch.randn(1, 3, 8, 8)
    before = model(x)
    assert xf.mix_(model) == ["0"]
    assert torch.equal(model(x), before)
    with pytest.raises(ValueError, match="a Own computes more than a convolution"):
        xf.merge_(model)
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("kind", [StdConv2d, ScaledStdConv2d])
def test_a_fixed_layer_that_standardises_its_weight_mixes_nothing(kind):
    model = nn.Sequential(kind(3, 4, 3), nn.ReLU(), kind(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    assert unmixed_layers(model, suppose_fixed=["0", "2"]) == ["0"]
    assert unmixed_layers(model, suppose_fixed=["0"]) == []


class Combined(nn.Module):
    """Fixed kernels that a learned matrix combines before they are used."""

    def __init__(self):
        super().__init__()
        self.see, self.matrix = nn.Conv2d(3, 4, 3), nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return F.conv2d(x, torch.einsum("oc,cihw->oihw", self.matrix, self.see.weight))


def test_kernels_that_are_combined_are_mixed():
    assert unmixed_layers(Combined(), suppose_fixed=["see"]) == []


class Deformed(nn.Module):
    def __init__(self):
        super().__init__()
        self.see, self.shift = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 18, 1)
        self.bend = DeformConv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = self.see(x)
        return self.bend(x, self.shift(x))


def test_fix_mixes_what_can_be_mixed_and_leaves_the_rest():
    deformed = Deformed()
    xf.fix_(deformed, "ghaar", mix=True)
    assert list(steered_layers(deformed)) == ["see"]
    frozen = plain()
    frozen[5].weight.requires_grad_(False)  # by somebody else: it has no recipe
    xf.fix_(frozen, "ghaar", layers=["0", "3"], mix=True)
    assert list(steered_layers(frozen)) == ["0", "3"]


def test_a_model_that_is_a_convolution_is_not_fixed_either():
    model = nn.Conv2d(3, 4, 3)
    before = model.weight.detach().clone()
    with pytest.raises(ValueError, match=r"put it into an nn\.Sequential"):
        xf.fix_(model, "ghaar", mix=True)
    assert torch.equal(model.weight, before)
    assert model.weight.requires_grad


def test_where_nothing_is_left_to_mix_nothing_happens():
    model = plain()
    xf.fix_(model, "ghaar", mix=True)
    assert xf.mix_(model) == []
    depthwise = xf.create_model("unetd")
    xf.fix_(depthwise, "ghaar")
    assert xf.mix_(depthwise) == []
