import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

import explainfix as xf
from explainfix.steer import scores
from explainfix.steer.saliency import primary_output, split_batch
from explainfix.zoo.unetd import UNetD


def small(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3, groups=1),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, outputs),
    )  # fmt: skip


def by_finite_differences(model, batches, path, kind):
    """Eq. (7) with nothing but forward passes: ŷ' held at its value, every weight nudged."""
    model = copy.deepcopy(model).double().eval()
    weight = model.get_submodule(path).weight
    total = torch.zeros(weight.shape[:2], dtype=torch.float64)
    with torch.no_grad():
        for x, y in batches:
            constant = model(x.double())

            def value(x=x, y=y, constant=constant):
                return (y.double() * model(x.double()) / constant).sum()

            gradient = torch.zeros_like(weight)
            for index in np.ndindex(*weight.shape):
                kept, step = weight[index].item(), 1e-6
                weight[index] = kept + step
                up = value()
                weight[index] = kept - step
                gradient[index] = (up - value()) / (2 * step)
                weight[index] = kept
            product = gradient * weight if kind == "weight_gradient" else gradient
            total += product.abs().sum((2, 3))
    return total


@pytest.mark.parametrize("kind", ["weight_gradient", "gradient"])
def test_it_is_equation_7(kind):
    model = small().double()
    torch.manual_seed(1)
    batches = [(torch.randn(3, 1, 9, 9).double(), torch.rand(3, 3).double()) for _ in range(2)]
    assert all(model.eval()(x).abs().min() > 0.05 for x, _ in batches)  # away from the guard
    ours = xf.saliency(model, batches, kind=kind)
    for path in ("0", "3"):
        expected = by_finite_differences(model, batches, path, kind)
        torch.testing.assert_close(ours[path], expected, rtol=1e-4, atol=1e-8)


class TestRescaling:
    def test_each_output_counts_evenly_whatever_its_size(self):
        """Outputs multiplied by different constants leave saliency unchanged."""
        model = small().double()
        model[-1].bias.data.zero_()
        x = torch.randn(4, 1, 9, 9).double()
        first = xf.saliency(model, [(x, torch.eye(3)[[0, 1, 2, 0]].double())])
        with torch.no_grad():
            model[-1].weight *= torch.tensor([[1.5], [0.7], [2.0]])
        second = xf.saliency(model, [(x, torch.eye(3)[[0, 1, 2, 0]].double())])
        torch.testing.assert_close(first["3"], second["3"], rtol=1e-6, atol=0)

    def test_near_zero_it_is_bounded(self):
        output = torch.tensor([1.0, -1.0, 1e-12, -1e-12, 0.0], requires_grad=True)
        scores.rescaled(output).sum().backward()
        typical = (2 / 5) ** 0.5
        limit = 1 / (0.01 * typical)
        expected = torch.tensor([1.0, -1.0, limit, -limit, limit])
        torch.testing.assert_close(output.grad, expected)

    @pytest.mark.parametrize(
        ("scale", "dtype"), [(1e25, torch.float32), (1e-30, torch.float32), (3e3, torch.float16)]
    )
    def test_outputs_whose_squares_have_no_number(self, scale, dtype):
        output = (torch.tensor([1.0, -2.0, 4.0]) * scale).to(dtype).requires_grad_()
        scores.rescaled(output).sum().backward()
        expected = torch.tensor([1.0, -0.5, 0.25]) / scale
        torch.testing.assert_close(output.grad.float(), expected, rtol=2e-3, atol=0)

    def test_outputs_that_are_all_zero(self):
        output = torch.zeros(4, requires_grad=True)
        scores.rescaled(output).sum().backward()
        assert output.grad.isfinite().all()


class TestScores:
    def test_class_indices_are_one_hot_labels(self):
        output = torch.rand(4, 3) + 0.5
        labels = torch.tensor([0, 2, 1, -1])
        one_hot = F.one_hot(labels.clamp(min=0), 3).double()
        one_hot[3] = 0  # ignored
        assert scores.by_shape(output, labels) == scores.by_shape(output, one_hot)

    def test_ignored_labels_do_not_count(self):
        output = torch.rand(2, 3) + 0.5
        labels = torch.tensor([[1.0, float("nan"), 0.0], [-1.0, 1.0, 1.0]])
        assert scores.multilabel(output, labels) == 3.0  # ŷ/ŷ' is one for each label of one

    def test_masks(self):
        output = torch.rand(2, 1, 4, 4) + 0.5
        mask = torch.rand(2, 4, 4) > 0.5
        assert scores.by_shape(output, mask) == mask.sum()
        assert scores.by_shape(output, mask.unsqueeze(1).float()) == mask.sum()
        classes = torch.randint(0, 5, (2, 4, 4))
        assert scores.by_shape(torch.rand(2, 5, 4, 4) + 0.5, classes) == 32.0

    def test_no_labels(self):
        assert scores.by_shape(torch.rand(2, 3) + 0.5, None) == 6.0

    @pytest.mark.parametrize("target", [torch.rand(4), torch.rand(4, 5), torch.randn(3).long()])
    def test_targets_that_fit_nothing(self, target):
        with pytest.raises(
            ValueError, match=r"a target of shape .* fits no output of shape \(4, 3\)"
        ):
            scores.by_shape(torch.randn(4, 3), target)

    def test_a_class_the_model_does_not_have(self):
        with pytest.raises(ValueError, match="the target has class 7, the model 3 outputs"):
            scores.by_shape(torch.randn(2, 3), torch.tensor([0, 7]))


MODELS = {
    "batchnorm": lambda: small().train(),
    "frozen": lambda: fixed(small()),
    "dropout": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Dropout(), nn.Flatten(), nn.LazyLinear(3)
    ),
    "sigmoid": lambda: nn.Sequential(small(), nn.Sigmoid()),
    "softmax": lambda: nn.Sequential(small(), nn.Softmax(1)),
    "partly frozen": lambda: partly_frozen(small()),
    "mixed modes": lambda: mixed_modes(small()),
    "shared": lambda: shared(),
    "resnet": lambda: xf.create_model("torchvision:resnet18", in_channels=1, num_classes=3),
    "googlenet": lambda: xf.create_model("torchvision:googlenet", in_channels=1, num_classes=3),
    "segmentation": lambda: xf.create_model(
        "torchvision:lraspp_mobilenet_v3_large", in_channels=1, num_classes=3
    ),
}


def fixed(model):
    xf.fix_(model, "ghaar")
    return model


def partly_frozen(model):
    model[0].bias.requires_grad_(False)
    model[3].weight.requires_grad_(False)
    return model


def mixed_modes(model):
    model.train()
    model[1].eval()
    return model


def shared():
    convolution = nn.Conv2d(1, 1, 3, padding=1)
    return nn.Sequential(convolution, nn.ReLU(), convolution, nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_the_model_is_left_as_it_was_found(name):
    model = MODELS[name]()
    x = torch.randn(4, 1, 64, 64)
    with torch.no_grad():  # lazy layers take shape
        model(x)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    model.register_forward_hook(lambda *_: None)
    before = {
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "modes": [m.training for m in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grads": [p.grad for p in model.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        "rng": torch.get_rng_state(),
    }
    result = xf.saliency(model, [x, x])
    for key, value in model.state_dict().items():
        assert torch.equal(before["state"][key], value), key
    assert [m.training for m in model.modules()] == before["modes"]
    assert [p.requires_grad for p in model.parameters()] == before["requires_grad"]
    assert all(p.grad is g for p, g in zip(model.parameters(), before["grads"], strict=True))
    assert all((p.grad == 0.5).all() for p in model.parameters())
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert hooks == before["hooks"]
    assert torch.equal(torch.get_rng_state(), before["rng"])
    layers = xf.spatial_layers(model)
    assert all(result[p].shape == layers[p].weight.shape[:2] for p in result)
    assert sum(float(v.sum()) for v in result.values()) > 0


@pytest.mark.parametrize("bad", ["raises", "nan"])
def test_it_is_left_so_after_an_error_too(bad):
    model = small().train()
    x = torch.randn(2, 3, 9, 9) if bad == "raises" else torch.full((2, 1, 9, 9), float("nan"))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"does not run|NaN or infinite"):
        xf.saliency(model, [torch.randn(2, 1, 9, 9), x])
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


class TestData:
    def test_kinds_of_batches(self):
        model, x, y = small(), torch.randn(4, 1, 9, 9), torch.tensor([0, 1, 2, 0])
        plain = xf.saliency(model, [(x, y)])
        for batch in ([x, y], {"x": x, "y": y}, {"image": x, "label": y}, (x, y, "name")):
            torch.testing.assert_close(xf.saliency(model, [batch])["0"], plain["0"])
        torch.testing.assert_close(
            xf.saliency(model, [(x,)])["0"], xf.saliency(model, [{"pixel_values": x}])["0"]
        )

    def test_minibatches_add_up_and_can_be_limited(self):
        model, x = small(), torch.randn(6, 1, 9, 9)
        parts = [xf.saliency(model, [x[i : i + 2]]) for i in (0, 2, 4)]
        whole = xf.saliency(model, iter([x[:2], x[2:4], x[4:]]))
        torch.testing.assert_close(whole["3"], sum(part["3"] for part in parts))
        assert whole.batches == 3
        endless = (x for _ in iter(int, 1))
        assert xf.saliency(model, endless, max_batches=2).batches == 2

    def test_a_score_of_ones_own(self):
        model, x = small(), torch.randn(4, 1, 9, 9)
        doubled = xf.saliency(model, [(x, 2.0)], score=lambda out, y: y * out.sum())
        single = xf.saliency(model, [(x, 1.0)], score=lambda out, y: y * out.sum())
        torch.testing.assert_close(doubled["0"], 2 * single["0"])

    def test_mixed_precision(self):
        model, x = small(), torch.randn(4, 1, 9, 9)
        exact = xf.saliency(model, [x])
        with torch.autocast("cpu", torch.bfloat16):
            rough = xf.saliency(model, [x])
        torch.testing.assert_close(
            rough["0"], exact["0"], rtol=0.2, atol=0.1 * exact["0"].max().item()
        )

    def test_under_no_grad(self):
        with torch.no_grad():
            assert xf.saliency(small(), [torch.randn(2, 1, 9, 9)])["0"].sum() > 0

    def test_the_error_is_that_of_a_bootstrap(self):
        model = small()
        torch.manual_seed(0)
        data = [torch.randn(2, 1, 9, 9) for _ in range(12)]
        parts = torch.stack([xf.saliency(model, [x])["0"] for x in data])
        resampled = parts[torch.randint(0, 12, (4000, 12))].sum(1)
        result = xf.saliency(model, data, error=True)
        torch.testing.assert_close(result.error["0"], resampled.std(0), rtol=0.06, atol=0)
        assert xf.saliency(model, data).error is None

    def test_heads_that_evaluation_does_not_use_have_none(self):
        model = xf.create_model("torchvision:googlenet", in_channels=1, num_classes=3)
        result = xf.saliency(model, [torch.randn(2, 1, 64, 64)])
        assert float(result["inception3a.branch2.1.conv"].sum()) > 0
        assert set(result) == set(xf.spatial_layers(model))

    def test_computed_weights_are_skipped_with_the_reason(self):
        model = nn.Sequential(weight_norm(nn.Conv2d(1, 2, 3)), nn.Conv2d(2, 2, 3))
        result = xf.saliency(model, [torch.randn(1, 1, 9, 9)])
        assert list(result) == ["1"]
        assert "parametrization" in result.skipped["0"]

    def test_progress_and_table(self):
        seen = []

        def watch(batches):
            for batch in batches:
                seen.append(batch)
                yield batch

        result = xf.saliency(small(), [torch.randn(2, 1, 9, 9)] * 3, progress=watch)
        assert len(seen) == 3
        table = result.table()
        assert list(table.index) == ["0", "3"]
        assert table["share"].sum() == pytest.approx(1)


class TestMistakes:
    @pytest.mark.parametrize(
        ("batches", "message"),
        [
            ([], "the data is empty"),
            ([torch.randn(2, 3, 9, 9)], r"does not run on a batch of shape \(2, 3, 9, 9\)"),
            ([(torch.randn(2, 1, 9, 9), torch.rand(2, 7))], "fits no output"),
            ([{"picture": torch.randn(2, 1, 9, 9)}], "keys 'picture' has no input: name it 'x'"),
            (["text"], "not str"),
            ([torch.full((2, 1, 9, 9), float("nan"))], "NaN or infinite: the input is"),
        ],
    )
    def test_data(self, batches, message):
        with pytest.raises(ValueError, match=message):
            xf.saliency(small(), batches)

    def test_labels_that_are_all_zero(self):
        with pytest.raises(ValueError, match="every score is zero: are the targets all zero"):
            xf.saliency(small(), [(torch.randn(2, 1, 9, 9), torch.zeros(2, 3))])

    def test_the_first_bad_layer_is_named(self):
        model = small()
        with torch.no_grad():
            model[3].weight[0] = float("inf")
        with pytest.raises(ValueError, match="NaN or infinite, first at layer '3'"):
            xf.saliency(model, [torch.randn(2, 1, 9, 9)])

    def test_bad_gradients_name_the_layer(self):
        class Root(nn.Module):
            def forward(self, x):
                return (x * 0).sqrt() + 1

        model = nn.Sequential(nn.Conv2d(1, 2, 3), Root())
        with pytest.raises(ValueError, match="gradient of layer '0' is NaN"):
            xf.saliency(model, [torch.rand(2, 1, 9, 9)])

    def test_scores_that_are_no_number(self):
        with pytest.raises(ValueError, match=r"must give a tensor of one number, not \(2, 3\)"):
            xf.saliency(small(), [torch.randn(2, 1, 9, 9)], score=lambda out, y: out)
        with pytest.raises(ValueError, match="not float"):
            xf.saliency(small(), [torch.randn(2, 1, 9, 9)], score=lambda out, y: 1.0)

    def test_kind(self):
        with pytest.raises(ValueError, match="not 'weights'"):
            xf.saliency(small(), [torch.randn(2, 1, 9, 9)], kind="weights")

    def test_no_spatial_layers(self):
        with pytest.raises(ValueError, match="no spatial layer"):
            xf.saliency(nn.Linear(3, 3), [torch.randn(2, 3)])

    def test_outputs_without_a_tensor(self):
        with pytest.raises(ValueError, match="in which there is no tensor"):
            primary_output({"a": 1})
        assert split_batch([torch.ones(1)])[1] is None


def test_salient_kernels_matter_and_the_others_do_not():
    """The paper's check: zeroing the most salient 3% hurts far more than the least salient 50%."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4),
    )  # fmt: skip
    x, y = gratings(1200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(150):
        part = slice(step * 64 % 1024, step * 64 % 1024 + 64)
        optimizer.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
    model.eval()
    test_x, test_y = gratings(400)

    def accuracy(network):
        with torch.no_grad():
            return (network(test_x).argmax(1) == test_y).double().mean().item()

    assert accuracy(model) > 0.85  # chance is 0.25
    ranked = xf.saliency(model, [(x[i : i + 8], y[i : i + 8]) for i in range(0, 160, 8)])
    everything = torch.cat([value.flatten() for value in ranked.values()])

    def without(chosen):
        twin = copy.deepcopy(model)
        start = 0
        with torch.no_grad():
            for path, value in ranked.items():
                part = chosen[start : start + value.numel()].reshape(value.shape)
                twin.get_submodule(path).weight[part] = 0
                start += value.numel()
        return accuracy(twin)

    order = everything.argsort()
    most, least = (
        torch.zeros_like(order, dtype=torch.bool),
        torch.zeros_like(order, dtype=torch.bool),
    )
    most[order[-round(0.03 * len(order)) :]] = True
    least[order[: len(order) // 2]] = True
    lost_most, lost_least = accuracy(model) - without(most), accuracy(model) - without(least)
    assert lost_most > 0.2
    assert lost_least < lost_most / 3


def gratings(count):
    """Noisy stripes of two frequencies and two directions: four classes."""
    y = torch.randint(0, 4, (count,))
    position = torch.arange(20.0)
    frequency = torch.where(y % 2 == 0, 0.6, 1.6)[:, None, None]
    phase = 6.3 * torch.rand(count, 1, 1)
    along = torch.where((y < 2)[:, None, None], position[None, :, None], position[None, None, :])
    return torch.sin(frequency * along + phase).unsqueeze(1) + 0.8 * torch.randn(
        count, 1, 20, 20
    ), y


def test_unetd_segmentation_masks():
    model = UNetD()
    result = xf.saliency(model, [(torch.randn(2, 3, 32, 32), torch.rand(2, 32, 32) > 0.5)])
    assert len(result) == 16
