import copy
import time
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explainfix as xf
from explainfix.recording.call import Call
from explainfix.recording.record import record
from explainfix.zoo.unetd import UNetD


def equal(one, other, x, tolerance=1e-9):
    with torch.no_grad():
        wanted, got = one.eval()(x), other.eval()(x)
    return float((wanted - got).abs().max()) <= tolerance * float(wanted.abs().max())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.one = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.two = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.two(F.relu(self.one(x)))
        return self.head(x.mean((2, 3)))


def zero_rows(layer, rows):
    with torch.no_grad():
        layer.weight[rows] = 0


class TestWhatGoes:
    def test_a_chain_loses_dead_outputs_and_their_readers_inputs(self):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 4, 3)
        ).double()
        zero_rows(model[0], [1, 5])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 12, 12).double())
        assert model[0].weight.shape == (6, 3, 3, 3)
        assert model[2].weight.shape == (4, 6, 3, 3)
        assert (model[0].out_channels, model[2].in_channels) == (6, 6)
        assert equal(twin, model, torch.randn(2, 3, 20, 20).double())

    def test_unread_channels_go_and_so_does_what_only_they_need(self):
        model = nn.Sequential(*[nn.Conv2d(6, 6, 3, bias=False) for _ in range(3)]).double()
        with torch.no_grad():
            model[2].weight[:, 2] = 0  # nobody reads channel 2 of the second layer
            model[1].weight[[0, 1, 3, 4, 5], 4] = 0  # which alone reads channel 4 of the first
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 6, 12, 12).double())
        assert [tuple(layer.weight.shape[:2]) for layer in model] == [(5, 6), (5, 5), (6, 5)]
        assert equal(twin, model, torch.randn(1, 6, 14, 14).double())

    def test_a_residual_channel_goes_only_if_dead_in_every_branch(self):
        model = Residual().double()
        zero_rows(model.two, [0, 1, 2])
        zero_rows(model.stem, [1, 2, 3])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert model.stem.out_channels == 6  # channels 1 and 2 are dead in both
        assert equal(twin, model, torch.randn(2, 3, 9, 9).double())

    def test_zero_means_every_weight_not_their_sum(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Conv2d(2, 1, 1)).double()
        with torch.no_grad():
            model[0].weight.copy_(torch.tensor([1.0, 0.0, -1.0]).expand(2, 1, 3, 3))
        report = xf.prune_(model, torch.randn(1, 1, 8, 8).double())
        assert report.params_kept == 1

    def test_depthwise_layers_lose_whole_channels(self):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 1, bias=False),
            nn.Conv2d(8, 8, 3, groups=8, bias=False),
            nn.Conv2d(8, 2, 1),
        ).double()
        zero_rows(model[1], [0, 3, 7])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert (model[0].out_channels, model[1].groups, model[2].in_channels) == (5, 5, 5)
        assert equal(twin, model, torch.randn(1, 3, 8, 8).double())

    def test_flattened_channels_take_their_features_along(self):
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
        ).double()
        zero_rows(model[0], [2])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 1, 8, 8).double())
        assert model[3].in_features == 3 * 36
        assert equal(twin, model, torch.randn(2, 1, 8, 8).double())

    def test_transposed_convolutions(self):
        model = nn.Sequential(
            nn.Conv2d(3, 6, 3, bias=False), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, 2, bias=False),
            nn.ReLU(), nn.Conv2d(4, 1, 1),
        ).double()  # fmt: skip
        zero_rows(model[0], [1])
        with torch.no_grad():
            model[2].weight[:, 3] = 0
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert tuple(model[2].weight.shape[:2]) == (5, 3)
        assert equal(twin, model, torch.randn(1, 3, 10, 10).double())

    def test_a_layer_that_dies_keeps_one_channel(self):
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 2, 3)
        ).double()
        zero_rows(model[0], slice(None))
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert model[0].out_channels == 1
        assert equal(twin, model, torch.randn(1, 3, 8, 8).double())

    def test_shared_modules(self):
        shared = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        model = nn.Sequential(shared, nn.ReLU(), shared, nn.Conv2d(4, 1, 1)).double()
        zero_rows(shared, [1])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 4, 8, 8).double())
        assert equal(twin, model, torch.randn(1, 4, 8, 8).double())


class TestGhosts:
    def ghost(self, consumer):
        model = nn.Sequential(
            nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), *consumer
        ).double()  # fmt: skip
        zero_rows(model[0], [0, 4])
        with torch.no_grad():
            model[1].bias.copy_(torch.tensor([0.7, 0.1, 0.2, 0.3, 0.9, 0.1]))
        return model.eval()

    def test_a_constant_is_folded_into_a_bias(self):
        model = self.ghost([nn.Conv2d(6, 2, 1)])
        twin = copy.deepcopy(model)
        report = xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert (report.folded, model[0].out_channels) == (2, 4)
        assert equal(twin, model, torch.randn(1, 3, 11, 11).double())

    def test_or_into_the_mean_of_a_batchnorm_which_absorbs_it_in_training_too(self):
        model = self.ghost([nn.Conv2d(6, 2, 1, bias=False), nn.BatchNorm2d(2)])
        twin = copy.deepcopy(model)
        report = xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert report.folded == 2
        x = torch.randn(4, 3, 11, 11).double()
        assert equal(twin, model, x)
        with torch.no_grad():
            torch.testing.assert_close(twin.train()(x), model.train()(x))

    def test_behind_padding_it_stays(self):
        model = self.ghost([nn.Conv2d(6, 2, 3, padding=1)])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert model[0].out_channels == 6
        assert equal(twin, model, torch.randn(1, 3, 8, 8).double())

    def test_or_goes_if_ghosts_are_dropped(self):
        model = self.ghost([nn.Conv2d(6, 2, 3, padding=1)])
        report = xf.prune_(model, torch.randn(1, 3, 8, 8).double(), ghosts="drop")
        assert (report.ghosts_dropped, model[0].out_channels) == (2, 4)
        assert report.difference > 0


class TestTheModelIsSacred:
    def test_settings_survive(self):
        model = UNetD().to(memory_format=torch.channels_last)
        model.encoder[0][0][1].eval()
        model.head.weight.requires_grad_(False)
        zero_rows(model.encoder[1][0][3], slice(0, 20))
        hook = model.register_forward_hook(lambda *_: None)
        modes = [m.training for m in model.modules()]
        grads = [p.requires_grad for p in model.parameters()]
        kinds = [type(m) for m in model.modules()]
        example = torch.randn(1, 3, 32, 32)
        generator = torch.get_rng_state()
        xf.prune_(model, example)
        assert [m.training for m in model.modules()] == modes
        assert [p.requires_grad for p in model.parameters()] == grads
        assert [type(m) for m in model.modules()] == kinds
        assert torch.equal(torch.get_rng_state(), generator)
        assert hook.id in model._forward_hooks
        weight = model.encoder[1][0][0].weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert type(model.encoder[1][0][3].groups) is int

    def test_on_errors_it_is_as_it_was(self):
        model = UNetD()
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(ValueError, match=r"does not run on the example \[\(1, 5, 32, 32\)\]"):
            xf.prune_(model, torch.randn(1, 5, 32, 32))
        with pytest.raises(ValueError, match="not 'fold'"):
            xf.prune_(model, torch.randn(1, 3, 32, 32), ghosts="fold")
        assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
        assert model.training

    def test_what_is_not_understood_is_a_barrier_and_named(self):
        class Odd(nn.Module):
            def forward(self, x):
                return torch.cumsum(x, 1)

        model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), Odd(), nn.Conv2d(4, 1, 1)).double()
        zero_rows(model[0], [0])
        report = xf.prune_(model, torch.randn(1, 1, 8, 8).double())
        assert report.params_kept == 1
        (barrier,) = report.barriers
        assert (barrier.operation, barrier.module, barrier.channels) == (
            "aten.cumsum.default",
            "1",
            4,
        )
        assert "4 channels stay because of aten.cumsum.default in 1" in str(report)


class Moody(nn.Module):
    """Goes one way at one call, another at the next."""

    def __init__(self):
        super().__init__()
        self.stem, self.one, self.two = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), nn.Conv2d(8, 4, 3)
        self.calls = 0
        with torch.no_grad():
            self.one.weight[:, :5] = 0
            self.two.weight[:, 4:] = 0

    def forward(self, x):
        self.calls += 1
        h = self.stem(x)
        return self.one(h) if self.calls % 2 else torch.tanh(self.two(h))


class TestUnfit:
    def refused(self, model, words):
        with pytest.raises(ValueError, match=words):
            xf.prune_(model, torch.randn(1, 3, 8, 8))

    def test_scripted_and_traced(self):
        conv = nn.Conv2d(3, 4, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch, which is leaving torch.jit behind
            traced = torch.jit.trace(conv, torch.randn(1, 3, 8, 8))
        self.refused(traced, "the model is scripted")

    def test_compiled(self):
        self.refused(torch.compile(nn.Conv2d(3, 4, 3)), r"keeps as \._orig_mod")
        model = nn.Sequential(nn.Conv2d(3, 4, 3))
        model[0].compile()
        self.refused(model, r"module '0' was compiled in place")

    def test_quantised(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch, which is leaving such tensors behind
            small = torch.quantize_per_tensor(torch.ones(3), 1, 0, torch.qint8)
        model[0].register_buffer("scales", small)
        self.refused(model, r"'0\.scales' is a Tensor of dtype torch\.qint8")

    def test_a_way_that_differs_between_calls(self):
        model = Moody().double()
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert model.calls == 0
        assert model.stem.out_channels == 7  # the fifth is read by neither
        for _ in range(2):
            x = torch.randn(2, 3, 9, 9).double()
            torch.testing.assert_close(model(x), twin(x))

    def test_a_way_that_differs_by_chance(self):
        class Whim(nn.Conv2d):
            def forward(self, x):
                return super().forward(x) * float(time.perf_counter_ns())

        self.refused(Whim(3, 4, 3), "not do the same on every call: operation 2 was aten.mul")

    def test_tied_parameters_are_cut_together(self):
        model = nn.Sequential(*(nn.Conv2d(6, 6, 3, bias=False) for _ in range(3))).double()
        model[1].weight = model[0].weight
        zero_rows(model[0], [1, 4])
        twin = copy.deepcopy(model)
        xf.prune_(model, torch.randn(1, 6, 12, 12).double())
        assert model[1].weight is model[0].weight
        assert equal(twin, model, torch.randn(1, 6, 14, 14).double())


def test_recording_leaves_no_hooks():
    model = UNetD().eval()
    graph = record(model, [(Call.of(torch.randn(1, 3, 32, 32)), False)])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert {node.module for node in graph.nodes} >= {"head", "encoder.0.0.3", "decoder.1"}


def test_heads_used_in_training_only_are_pruned_along():
    model = xf.create_model("torchvision:googlenet", num_classes=4).double()
    for layer in xf.spatial_layers(model).values():
        with torch.no_grad():
            layer.weight[:3] = 0
    twin = copy.deepcopy(model)
    report = xf.prune_(model, torch.randn(1, 3, 64, 64).double(), ghosts="drop")
    assert report.params_kept < 1
    outputs = model.train()(torch.randn(2, 3, 64, 64).double())
    assert outputs.aux_logits1.shape == (2, 4)
    assert twin.train() is not model


class TestZero:
    def scores(self, model):
        return {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(model).items()}

    def test_the_least_salient_over_the_whole_network(self):
        model = UNetD()
        scores = self.scores(model)
        gone = xf.zero_(model, scores, 0.4)
        assert sum(gone.values()) == int(0.4 * 1416)
        everything = torch.cat([s.flatten() for s in scores.values()])
        limit = everything.sort().values[int(0.4 * 1416)]
        for path, layer in xf.spatial_layers(model).items():
            dead = (layer.weight == 0).flatten(2).all(2)
            assert (scores[path][dead] <= limit).all()
            assert int(dead.sum()) == gone[path]

    def test_a_layer_keeps_its_best_kernel_unless_it_may_die(self):
        model = UNetD()
        scores = self.scores(model)
        scores["encoder.0.0.3"] *= 1e-9
        xf.zero_(copy.deepcopy(model), scores, 0.99)
        assert xf.zero_(copy.deepcopy(model), scores, 0.99)["encoder.0.0.3"] == 17
        dead = xf.zero_(model, scores, 0.99, allow_dead_layers=True)
        assert dead["encoder.0.0.3"] == 18

    def test_fixed_layers_stay_fixed(self):
        model = UNetD()
        xf.fix_(model, "ghaar")
        xf.zero_(model, self.scores(model), 0.5)
        xf.check_fixed(model)

    @pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan")])
    def test_shares_that_make_no_sense(self, fraction):
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            xf.zero_(UNetD(), {}, fraction)

    def test_saliency_of_another_model(self):
        with pytest.raises(ValueError, match="is it of another model"):
            xf.zero_(UNetD(), {"encoder.0.0.3": torch.ones(3, 3)}, 0.5)
        with pytest.raises(ValueError, match="'conv1'"):
            xf.zero_(UNetD(), {"conv1": torch.ones(3, 3)}, 0.5)


class TestFillZero:
    def test_empty_kernels_and_single_zeros(self):
        model = nn.Sequential(nn.Conv2d(64, 64, 3))
        with torch.no_grad():
            model[0].weight[:32] = 0
            model[0].weight[32:, :, 0, 0] = 0
        before = model[0].weight.detach().clone()
        xf.fill_zero_(model, seed=1)
        after = model[0].weight.detach()
        assert (after != 0).all()
        assert torch.equal(after[before != 0], before[before != 0])
        bound = (64 * 9) ** -0.5
        assert after[:32].abs().max() <= bound
        assert after[:32].std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
        kernels = before[32:].flatten(2)
        filled = (after[32:, :, 0, 0] - kernels.mean(2)) / kernels.std(2, correction=0)
        assert filled.mean().item() == pytest.approx(0, abs=0.1)
        assert filled.std().item() == pytest.approx(1, rel=0.1)

    def test_the_same_seed_fills_the_same(self):
        models = [UNetD() for _ in range(2)]
        for model in models:
            for layer in xf.spatial_layers(model).values():
                layer.weight.data.zero_()
            xf.fill_zero_(model, seed=3)
        one, other = (m.encoder[0][0][3].weight for m in models)
        assert torch.equal(one, other)


class TestChannelPrune:
    def prepared(self):
        model = xf.create_model("torchvision:resnet18", num_classes=4)
        xf.fix_(model, "ghaar")
        torch.manual_seed(1)
        scores = {
            p: torch.rand(w.weight.shape[:2]) * torch.rand(w.weight.shape[0], 1) ** 4
            for p, w in xf.spatial_layers(model).items()
        }
        return model, scores

    def test_five_steps_saved_loaded_and_pruned_again(self, tmp_path):
        model, scores = self.prepared()
        report = xf.channel_prune_(model, torch.randn(1, 3, 64, 64), scores, zero=0.9)
        assert report.params_kept < 0.99
        assert all((w.weight != 0).all() for w in xf.spatial_layers(model).values())
        xf.check_fixed(model)
        assert {"inputs_before", "outputs_after", "kernels_zeroed"} <= set(report.table().columns)
        xf.save(model, tmp_path / "small.safetensors")
        loaded = xf.load(tmp_path / "small.safetensors")
        xf.check_fixed(loaded)
        x = torch.randn(2, 3, 64, 64)
        assert torch.equal(model.eval()(x), loaded.eval()(x))
        given = xf.create_model("torchvision:resnet18", num_classes=4)
        assert torch.equal(xf.load(tmp_path / "small.safetensors", given).eval()(x), model(x))
        again = {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(loaded).items()}
        xf.channel_prune_(loaded, x[:1], again, zero=0.97)
        xf.save(loaded, tmp_path / "smaller.safetensors")
        assert torch.equal(xf.load(tmp_path / "smaller.safetensors").eval()(x), loaded.eval()(x))

    def test_a_share_of_parameters_can_be_asked_for(self):
        model, scores = self.prepared()
        report = xf.channel_prune_(model, torch.randn(1, 3, 32, 32), scores, target_params=0.6)
        assert 0.57 < report.params_kept <= 0.6

    def test_mistakes(self):
        model, scores = self.prepared()
        before = copy.deepcopy(model.state_dict())
        x = torch.randn(1, 3, 32, 32)
        with pytest.raises(ValueError, match="either zero="):
            xf.channel_prune_(model, x, scores)
        with pytest.raises(ValueError, match="either zero="):
            xf.channel_prune_(model, x, scores, zero=0.5, target_params=0.5)
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            xf.channel_prune_(model, x, scores, target_params=0.0)
        with pytest.raises(ValueError, match="does not run on the example"):
            xf.channel_prune_(model, torch.randn(1, 1, 32, 32), scores, zero=0.5)
        assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
        xf.check_fixed(model)

    def test_the_papers_guarantee(self):
        """Untrained, ReLU, fixed and zeroed: its pruned twin trains to the same outputs."""
        model = xf.create_model("torchvision:resnet18", num_classes=4).double()
        xf.fix_(model, "ghaar")
        _, scores = self.prepared()
        xf.zero_(model, scores, 0.9)
        twin = copy.deepcopy(model)
        report = xf.prune_(twin, torch.randn(1, 3, 32, 32).double())
        assert report.params_kept < 0.99
        torch.manual_seed(2)
        data = [(torch.randn(4, 3, 32, 32).double(), torch.randint(0, 4, (4,))) for _ in range(20)]
        for network in (model, twin):
            optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
            network.train()
            for x, y in data:
                optimizer.zero_grad()
                F.cross_entropy(network(x), y).backward()
                optimizer.step()
        assert equal(model, twin, data[0][0], 1e-6)
