"""Whole channels that go: what is left is exactly the network without them."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.layers import as_found
from explainfix.prune.channels import ORDERS, Channels, TooSmallError, cut_channels_


class Residual(nn.Module):
    """Channels that are joined by a sum, read by two layers, and pooled into a classifier."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width))
        self.one = nn.Conv2d(width, width, 1)
        self.two = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x).relu()
        x = x + self.two(self.one(x).relu())
        return self.head(x.mean((2, 3)))


class Joined(nn.Module):
    """Skip connections by concatenation, a transposed layer and a depthwise one."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, 2, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 6, 2, 2)
        self.side = nn.Conv2d(1, 4, 1)
        self.end = nn.Conv2d(10, 2, 1)

    def forward(self, x):
        y = self.up(self.deep(self.down(x).relu()).relu())
        return self.end(torch.cat([self.side(x).relu(), y], 1))


def trained(model):
    """Statistics and gains that differ from channel to channel."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    return model.eval()


def scores_of(model, x):
    return xf.saliency(model, [x], pointwise=True)


X = torch.randn(4, 1, 12, 12, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("make", [Residual, Joined])
@pytest.mark.parametrize("of", ["parameters", "multiply_adds"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_share_is_met_and_foreseen(make, of, order):
    model = trained(make())
    report = cut_channels_(model, X[:1], scores_of(model, X), share=0.4, of=of, order=order)
    left = getattr(report.after, of) / getattr(report.before, of)
    assert 0.2 < left <= 0.4
    assert report.ghosts_dropped == 0
    assert model(X).shape == make()(X).shape


def test_a_sum_is_one_channel_wherever_it_is_read():
    """Without channels of the sum the network is the one whose sum has zeros there."""
    model = trained(Residual())
    found = Channels.of(model, X[:1])
    sizes = sorted(np.bincount(found.place).tolist())
    assert sizes == [16, 16]  # what the sum joins, and what lies between the two layers
    values = found.sums(scores_of(model, X))
    gone = found.choose(values, 12)
    joined = found.reads["head"].channels
    mask = torch.from_numpy(~gone[joined]).float()
    inner = torch.from_numpy(~gone[found.reads["two"].channels]).float()
    with torch.no_grad():
        x = model.stem(X).relu() * mask[:, None, None]
        hidden = model.one(x).relu() * inner[:, None, None]
        x = (x + model.two(hidden)) * mask[:, None, None]
        wanted = model.head(x.mean((2, 3)))
        found.zero_(gone)
        xf.prune_(model, X[:1])
        torch.testing.assert_close(model(X), wanted)
    assert model.one.in_channels == int(mask.sum())
    assert model.two.in_channels == int(inner.sum())


def test_a_channel_counts_all_kernels_that_write_or_read_it():
    model = trained(Residual(4))
    scores = scores_of(model, X)
    found = Channels.of(model, X[:1])
    sums = found.sums(scores)
    for number, channel in enumerate(found.reads["head"].channels):
        wanted = (
            scores["stem.0"][number].sum()
            + scores["one"][:, number].sum()
            + scores["two"][number].sum()
            + scores["head"][:, number].sum()
        )
        assert sums[channel] == pytest.approx(float(wanted))


def test_costs_are_those_of_the_weights_that_go():
    model = Residual(4)
    found = Channels.of(model, X[:1])
    inner = found.reads["two"].channels[0]
    assert found.costs("parameters")[inner] == 4 + 9 * 4
    assert found.costs("multiply_adds")[inner] == 144 * (4 + 9 * 4)


def test_even_takes_the_same_share_of_every_place():
    model = trained(Residual())
    found = Channels.of(model, X[:1])
    gone = found.choose(found.ordered(scores_of(model, X), "even", "parameters"), 16)
    assert np.bincount(found.place, gone).tolist() == [8, 8]


def test_some_channels_always_stay():
    model = trained(Residual())
    found = Channels.of(model, X[:1])
    assert np.bincount(found.place, ~found.choose(np.zeros(32), 32)).min() == 1
    with pytest.raises(TooSmallError, match=r"of the parameters stay, more than the 0.1%"):
        cut_channels_(model, X[:1], scores_of(model, X), share=0.001)


def test_without_is_for_a_moment_and_errors_leave_all_as_it_was(monkeypatch):
    model = trained(Residual())
    before = copy.deepcopy(model.state_dict())
    found = Channels.of(model, X[:1])
    with found.without(np.ones(32, dtype=bool)):
        assert not model.head.weight.any()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    monkeypatch.setattr("explainfix.prune.channels.prune_", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cut_channels_(model, X[:1], scores_of(model, X), share=0.5)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_layers_to_keep_stay_whole():
    model = trained(Joined())
    cut_channels_(model, X[:1], scores_of(model, X), share=0.97, keep="up")
    assert model.up.weight.shape == (8, 6, 2, 2)
    assert model.side.out_channels < 4


def test_if_every_channel_stays_the_reason_is_named():
    with pytest.raises(ValueError, match="every channel of this Sequential stays: each is an inp"):
        Channels.of(nn.Sequential(nn.Conv2d(1, 3, 3)), X[:1])

    class Normed(nn.Sequential):
        def forward(self, x):
            x = self[0](x)
            return self[1](torch.cumsum(x, 1))

    with pytest.raises(ValueError, match=r"stays, because of aten.cumsum"):
        Channels.of(Normed(nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 1)), X[:1])


def test_fixed_layers_stay_fixed():
    model = trained(Residual())
    xf.fix_(model, "ghaar")
    cut_channels_(model, X[:1], scores_of(model, X), share=0.5)
    xf.check_fixed(model)


@pytest.mark.parametrize(
    "name", ["unetd", "timm:resnet26", "torchvision:mobilenet_v2", "timm:resnext26ts"]
)
@pytest.mark.zoo
def test_real_networks_get_as_small_as_asked(name):
    model = trained(xf.create_model(name, num_classes=5, in_channels=1))
    x = torch.randn(2, 1, 64, 64)
    scores = xf.saliency(model, [x], pointwise=True, kind="magnitude")
    with as_found(model):
        report = cut_channels_(model, x[:1], scores, share=0.2, of="multiply_adds", order="even")
    assert 0.1 < report.after.multiply_adds / report.before.multiply_adds <= 0.2
    assert model(x).shape[:2] == (2, 5)
