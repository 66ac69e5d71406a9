"""Fixed filters, learned steering: the laws, on layers of every kind, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import explainfix as xf
from explainfix.mixing.steered import Steered, is_dense

BASES = ["dct2", "haar", "pca"]
LAYERS = [
    nn.Conv1d(4, 6, 5, padding=2, padding_mode="replicate"),
    nn.Conv2d(4, 6, 3, stride=2, padding=1),
    nn.Conv2d(1, 8, 7, dilation=2, bias=False),
    nn.Conv2d(4, 6, (3, 5), padding="same", padding_mode="reflect"),
    nn.Conv2d(4, 6, 3, groups=2),
    nn.Conv2d(6, 9, 2, groups=3, padding=1, padding_mode="circular"),
    nn.Conv3d(2, 3, (3, 3, 2)),
    nn.ConvTranspose1d(4, 6, 4, stride=2, padding=1),
    nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    nn.ConvTranspose3d(2, 3, (1, 3, 2), bias=False),
]
IDS = [f"{type(layer).__name__}{n}" for n, layer in enumerate(LAYERS)]


def case(layer):
    """A network of one such layer in double precision, and an input."""
    model = nn.Sequential(copy.deepcopy(layer), nn.Identity()).double().eval()
    return model, torch.randn(2, layer.in_channels, *[15] * len(layer.kernel_size)).double()


def differ(one, other):
    return float((one - other).detach().abs().max())


@pytest.mark.parametrize("method", BASES)
@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_a_whole_basis_computes_the_same_and_merges_back(layer, method):
    model, x = case(layer)
    before = model(x)
    report = xf.steer_(model, method)
    assert isinstance(model[0], Steered)
    assert differ(model(x), before) < 1e-10
    assert report.share_lost < 1e-25
    assert xf.merge_(model) == ["0"]
    assert type(model[0]) is type(layer)
    assert repr(model[0]) == repr(layer)
    assert differ(model[0].weight, layer.weight) < 1e-12
    assert differ(model(x), before) < 1e-10


@pytest.mark.parametrize("method", [*BASES, "ghaar", "psine"])
@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_what_is_lost_is_the_difference_of_the_kernels(layer, method):
    model, x = case(layer)
    report = xf.steer_(model, method, filters=2)
    steered = model[0]
    lost = (steered.weight - layer.double().weight).detach().square().sum()
    assert report.layers["0"].energy_lost == pytest.approx(float(lost), rel=1e-9, abs=1e-20)
    assert report.layers["0"].energy == pytest.approx(float(layer.weight.detach().square().sum()))
    # The layer computes what the convolution that it shows itself as would.
    merged = copy.deepcopy(model)
    xf.merge_(merged)
    assert differ(merged(x), model(x)) < 1e-10


@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_projections_are_the_best_steering(layer):
    """No other steering of the same filters comes nearer: NumPy's least squares is the oracle."""
    model, _ = case(layer)
    xf.steer_(model, "dct2", filters=2, order="frequency")
    filters = model[0].spatial.weight.detach().reshape(layer.in_channels, 2, -1)
    rows = layer.weight.detach().double()
    rows = rows.transpose(0, 1) if layer.transposed else rows
    kernels = rows.reshape(rows.shape[0], rows.shape[1], -1)  # (outputs, inputs of a group, taps)
    best = np.linalg.lstsq(filters[0].T.numpy(), kernels.reshape(-1, kernels.shape[-1]).T.numpy())
    found = model[0].weight.detach()
    found = found.transpose(0, 1) if layer.transposed else found
    np.testing.assert_allclose(
        found.reshape(-1, kernels.shape[-1]), (filters[0].T.numpy() @ best[0]).T, atol=1e-10
    )


def test_principal_axes_lose_least():
    """Of all banks of two filters a channel: the truncated SVD of each channel's kernels."""
    layer = nn.Conv2d(5, 20, 3).double()
    model = nn.Sequential(layer, nn.Identity())
    kernels = layer.weight.detach().reshape(20, 5, 9)
    svd = [np.linalg.svd(kernels[:, i].numpy(), compute_uv=False)[2:] for i in range(5)]
    lost = {}
    for method in BASES:
        lost[method] = (
            xf.steer_(copy.deepcopy(model), method, filters=2, order="energy")
            .layers["0"]
            .energy_lost
        )
    assert lost["pca"] == pytest.approx(sum((s**2).sum() for s in svd))
    assert lost["pca"] < min(lost["dct2"], lost["haar"])


@pytest.mark.parametrize("method", BASES)
def test_the_means_of_kernels_stay_by_default(method):
    """So that a constant image, and nearly a smooth one, gives what it gave."""
    layer = nn.Conv2d(5, 3, 4).double()
    model = nn.Sequential(layer, nn.Identity())
    before = layer.weight.detach().sum((2, 3))
    steered = copy.deepcopy(model)
    xf.steer_(steered, method, filters=3)
    torch.testing.assert_close(steered[0].weight.detach().sum((2, 3)), before)
    bank = steered[0].spatial.weight.detach().reshape(5, 3, 16)
    torch.testing.assert_close(bank @ bank.mT, torch.eye(3).double().expand(5, 3, 3))


def test_most_energy_or_lowest_frequency():
    layer = nn.Conv2d(4, 8, 3)
    with torch.no_grad():  # nothing but the highest frequency
        wave = torch.tensor([1.0, -2.0, 1.0])
        layer.weight.copy_(wave[:, None] * wave * torch.rand(8, 4, 1, 1))
    model = nn.Sequential(layer)
    assert xf.steer_(copy.deepcopy(model), filters=1, order="energy").share_lost < 1e-12
    assert xf.steer_(copy.deepcopy(model), filters=1).share_lost > 0.999
    assert xf.steer_(copy.deepcopy(model), filters=2).share_lost < 1e-12
    assert xf.steer_(copy.deepcopy(model), filters=4, order="frequency").share_lost > 0.999
    assert xf.steer_(copy.deepcopy(model), energy=0.9, order="energy").layers["0"].filters == 1


@pytest.mark.parametrize(
    ("method", "order"),
    [
        (m, o)
        for m in BASES
        for o in ("mean", "energy", "frequency")
        if (m, o) != ("pca", "frequency")
    ],
)
def test_the_fewest_filters_that_hold_the_energy(method, order):
    def lost(**wanted):
        model = nn.Sequential(copy.deepcopy(layer), nn.Identity())
        return xf.steer_(model, method, order=order, **wanted).layers["0"]

    layer = nn.Conv2d(6, 8, 4)
    layer.weight.data *= torch.linspace(1, 4, 16).reshape(4, 4)
    for share in (0.3, 0.75, 0.99):
        enough = lost(energy=share)
        assert enough.share_lost <= 1 - share
        if enough.filters > 1:
            assert lost(filters=enough.filters - 1).share_lost > 1 - share
    assert lost(energy=1).filters == (
        16 if method != "pca" else 8 + (order == "mean")
    )  # no more than outputs


def test_saliency_decides_what_counts():
    layer = nn.Conv2d(2, 4, 3, bias=False)
    flat, wave = torch.ones(3, 3), torch.tensor([[1.0, -2, 1]] * 3)
    with torch.no_grad():
        layer.weight[:, 0], layer.weight[:, 1] = flat, 3 * wave
    model = nn.Sequential(layer, nn.Identity())
    first = {"0": torch.tensor([[1.0, 0.0]] * 4)}
    chosen = copy.deepcopy(model)
    xf.steer_(chosen, filters=1, saliency=first, order="energy")
    assert differ(chosen[0].weight[:, 0], layer.weight[:, 0]) < 1e-6  # what is salient is kept
    assert chosen[0].weight[:, 1].abs().max() < 1e-6
    xf.steer_(model, filters=1, order="energy")
    assert differ(model[0].weight[:, 1], 3 * wave) < 1e-6  # else what is large


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e6])
def test_the_size_of_saliency_does_not_matter(scale):
    layer, scores = nn.Conv2d(4, 16, 3), torch.rand(16, 4).double()
    lost = [
        xf.steer_(nn.Sequential(copy.deepcopy(layer)), "pca", filters=4, saliency={"0": each})
        for each in (scores, scores * scale)
    ]
    assert lost[0].share_lost == pytest.approx(lost[1].share_lost)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8, bias=False),
        nn.Conv2d(8, 16, 3, bias=False), nn.ReLU(),
        nn.ConvTranspose2d(16, 4, 2, stride=2),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("method", [*BASES, "ghaar", "psine", "dct2", "unchanged", "guidedsteer"])
@pytest.mark.parametrize("start", ["fitted", "fresh"])
def test_a_steered_network_is_fixed_saved_and_loaded(method, start, tmp_path):
    model, x = network(), torch.randn(2, 3, 12, 12)
    before = torch.get_rng_state()
    report = xf.steer_(model, method, filters=3, start=start, seed=4)
    assert torch.equal(before, torch.get_rng_state())
    assert list(report.layers) == ["0", "4", "6"]
    assert "depthwise" in report.left["3"]
    xf.check_fixed(model)
    assert set(xf.recipes(model)) == {"0.spatial", "4.spatial", "6.spatial"}
    fixed = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert fixed == {"0.spatial.weight", "4.spatial.weight", "6.spatial.weight"}
    xf.save(model, tmp_path / "m.safetensors")
    again = xf.load(tmp_path / "m.safetensors", network()).eval()
    assert torch.equal(again(x), model(x))
    xf.check_fixed(again)
    other = network()
    xf.steer_(other, method, filters=3, start=start, seed=4)
    if method != "unchanged" and start == "fresh":
        assert torch.equal(other[0].steering.weight, model[0].steering.weight)


def test_the_same_seed_the_same_filters_another_others():
    one, same, other = (copy.deepcopy(network()) for _ in range(3))
    for model, seed in ((one, 1), (same, 1), (other, 2)):
        xf.steer_(model, "ghaar", seed=seed)
    assert torch.equal(one[0].spatial.weight, same[0].spatial.weight)
    assert not torch.equal(one[0].spatial.weight, other[0].spatial.weight)


def test_each_layer_is_guided_by_its_own_kernels():
    """By those of the network as it was, also beside a depthwise layer that stays."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 3))
    with torch.no_grad():
        model[0].weight.copy_(torch.rand(8, 3, 1, 1).expand(8, 3, 3, 3))
    for guide in (None, copy.deepcopy(model)):
        steered = copy.deepcopy(model)
        xf.steer_(steered, "guidedsteer", guide=guide)
        flat = steered[0].spatial.weight.detach().flatten(1)
        assert float((flat - flat.mean(1, keepdim=True)).abs().max()) < 1e-6


def test_filters_of_any_integer_type_are_saved(tmp_path):
    model = network()
    xf.steer_(model, "ghaar", filters=np.int64(2))
    xf.save(model, tmp_path / "m.safetensors")


def test_steered_then_pruned_then_merged_comes_back_from_a_file(tmp_path):
    model, x = network(), torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        model[0].weight[2:5] = 0
        model[0].bias[2:5] = 0
        model[1].bias[2:5] = 0
    before = model(x)
    xf.steer_(model)
    report = xf.prune_(model, x)
    assert report.params_kept < 0.9
    assert model[0].out_channels == 5
    xf.merge_(model, "0")
    assert differ(model(x), before) < 1e-5
    xf.save(model, tmp_path / "m.safetensors")
    again = xf.load(tmp_path / "m.safetensors", network()).eval()
    assert torch.equal(again(x), model(x))
    assert [type(layer) for layer in again] == [type(layer) for layer in model]


def test_explained_scored_and_trained():
    model, x = network(), torch.randn(4, 3, 12, 12)
    xf.steer_(model, filters=4)
    scores = xf.saliency(model, [x])
    assert set(scores) == {"0.spatial", "3", "4.spatial", "6.spatial"}
    assert len(xf.explain(model, saliency=scores)) == 4
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = model[0].spatial.weight.clone()
    model.train()(x).square().mean().backward()
    optimizer.step()
    assert torch.equal(model[0].spatial.weight, kept)
    xf.check_fixed(model)


def test_compiled_and_in_channels_last():
    model = network().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 12, 12).contiguous(memory_format=torch.channels_last)
    xf.steer_(model, filters=2)
    assert model(x).is_contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(model, backend="aot_eager")
    assert differ(compiled(x), model(x)) < 1e-5


def test_a_layer_shared_by_two_places_stays_shared():
    layer = nn.Conv2d(4, 4, 3, padding=1)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    x = torch.randn(1, 4, 8, 8)
    before = model(x)
    xf.steer_(model)
    assert model[0] is model[2]
    assert differ(model(x), before) < 1e-5


class Own(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) + 1


def tied():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    model[1].weight = model[0].weight
    return model


def broken():
    model = network()
    model[4].weight.data[0, 0] = torch.nan
    return model


@pytest.mark.parametrize(
    ("model", "wanted", "message"),
    [
        (nn.Sequential(nn.LazyConv2d(4, 3)), {}, "no weight yet"),
        (nn.Sequential(parametrizations.weight_norm(nn.Conv2d(2, 4, 3))), {}, "parametrization"),
        (nn.Sequential(nn.Conv2d(2, 4, 3, device="meta")), {}, "meta device"),
        (nn.Sequential(nn.Conv2d(2, 4, 3, dtype=torch.complex64)), {}, "not real numbers"),
        (nn.Sequential(nn.Linear(2, 4)), {}, "no spatial layer"),
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=4)), {}, "depthwise"),
        (nn.Sequential(Own(2, 4, 3)), {"layers": "0"}, "a Own computes more than a convolution"),
        (nn.Conv2d(2, 4, 3), {}, "put it into an nn.Sequential"),
        (tied(), {}, "'0' and '1' share their kernels"),
        (network(), {"filters": 10}, "filters=10, but 3x3 kernels have no more than 9"),
        (network(), {"filters": 0}, "at least 1"),
        (network(), {"energy": 0}, "above 0 and at most 1, not 0"),
        (network(), {"energy": 1.5}, "above 0 and at most 1, not 1.5"),
        (network(), {"energy": 0.5, "filters": 3}, "not both"),
        (network(), {"method": "ghaar", "energy": 0.5}, "energy needs a basis"),
        (network(), {"method": "gharr"}, "did you mean 'ghaar'"),
        (network(), {"method": "dct2", "frequencies": "shared"}, "'frequencies'"),
        (network(), {"method": "ghaar", "frequencies": "x"}, "frequencies"),
        (network(), {"order": "size"}, "order"),
        (network(), {"method": "pca", "order": "frequency"}, "principal axes have no frequency"),
        (network(), {"start": "anew"}, "start"),
        (network(), {"layers": "7"}, "spatial layer '7'"),
        (broken(), {}, "the kernels of '4' are not finite"),
        (network(), {"method": "ghaar", "saliency": {"0": torch.ones(8, 3)}}, "needs a basis"),
        (network(), {"saliency": {"0": torch.ones(9, 3)}}, "is it of another model"),
        (network(), {"saliency": {"stem": torch.ones(8, 3)}}, "'stem'"),
        (network(), {"saliency": {"0": torch.ones(8, 3)}}, "no scores for layer '4'"),
    ],
)
def test_what_cannot_be_steered_is_said_and_left_alone(model, wanted, message):
    wanted = dict(wanted)
    before, held = str(model), [id(module) for module in model.modules()]
    with pytest.raises((ValueError, TypeError), match=message):
        xf.steer_(model, wanted.pop("method", "dct2"), **wanted)
    assert str(model) == before
    assert [id(module) for module in model.modules()] == held
    assert not xf.spatial_layers(model) or all(
        p.requires_grad for p in model.parameters() if not isinstance(p, nn.UninitializedParameter)
    )


def test_twice_is_once():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU())
    xf.steer_(model)
    with pytest.raises(ValueError, match="part of a steered layer already"):
        xf.steer_(model)


def test_nothing_to_merge():
    with pytest.raises(ValueError, match="nothing to merge"):
        xf.merge_(network())


def test_the_report_counts():
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU())
    report = xf.steer_(model, filters=2)
    layer = report.layers["0"]
    assert (layer.params_before, layer.params_after, layer.learned_after) == (288, 72 + 64, 64)
    assert report.params_kept == pytest.approx(136 / 288)
    assert report.table().loc["0", "filters"] == 2
    assert "1 layers steered by dct2" in str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_stays(dtype):
    model = network().to(dtype)
    xf.steer_(model, "ghaar")
    assert {p.dtype for p in model.parameters()} == {dtype}


def test_every_dense_layer_of_a_network_is_steered():
    model = xf.create_model("torchvision:mobilenet_v2")
    report = xf.steer_(model)
    assert [p for p, layer in xf.spatial_layers(model).items() if is_dense(layer)] == []
    assert list(report.layers) == ["features.0.0"]
    assert len(report.left) == 17
