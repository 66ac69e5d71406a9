import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import explainfix as xf
from explainfix.explanation import scores
from explainfix.explanation.batches import primary_output, split_batch
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

    @pytest.mark.parametrize("size", [(4, 4), (3, 4, 5)])
    def test_class_indices_with_an_axis_of_their_own(self, size):
        output = torch.rand(2, 5, *size) + 0.5
        indices = torch.randint(-1, 5, (2, 1, *size))
        expected = scores.by_shape(output, indices.squeeze(1))
        assert scores.by_shape(output, indices) == expected
        assert scores.by_shape(output, indices.float()) == expected  # MONAI loads floats
        assert scores.by_shape(output[:, :2], indices > 0) == (indices > -2).sum()
        with pytest.raises(ValueError, match="fits no output"):
            scores.by_shape(output, indices + 0.5)

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

    def test_in_place_operations_that_leave_no_gradient(self):
        class Changed(nn.Module):
            def forward(self, x):
                y = x.sigmoid()
                return y.mul_(2)

        model = nn.Sequential(nn.Conv2d(1, 2, 3), Changed())
        with pytest.raises(ValueError, match=r"changes a tensor in place .* write y = y \* z"):
            xf.saliency(model, [torch.rand(2, 1, 9, 9)])

    def test_no_grad_inside(self):
        class Without(nn.Sequential):
            @torch.no_grad()
            def forward(self, x):
                return super().forward(x)

        with pytest.raises(ValueError, match="does the model run under no_grad"):
            xf.saliency(Without(nn.Conv2d(1, 2, 3)), [torch.rand(2, 1, 9, 9)])

    def test_targets_that_are_no_tensor(self):
        with pytest.raises(ValueError, match="a target of type list fits no output"):
            xf.saliency(small(), [(torch.rand(2, 1, 9, 9), ["a.png", "b.png"])])

    def test_a_score_that_is_not_finite(self):
        with pytest.raises(ValueError, match="the score is NaN or infinite, though the model's"):
            xf.saliency(small(), [torch.rand(2, 1, 9, 9)], score=lambda out, _: out.sum() / 0)

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
        with pytest.raises(ValueError, match="unknown kind of saliency 'weights': choose from"):
            xf.saliency(small(), [torch.randn(2, 1, 9, 9)], kind="weights")

    def test_no_spatial_layers(self):
        with pytest.raises(ValueError, match="no spatial layer"):
            xf.saliency(nn.Linear(3, 3), [torch.randn(2, 3)])

    def test_outputs_without_a_tensor(self):
        with pytest.raises(ValueError, match="in which there is no tensor"):
            primary_output({"a": 1})
        assert split_batch([torch.ones(1)], small())[1] is None


class Pyramid(nn.Module):
    """Features of several sizes, as timm's `features_only=True` gives them."""

    def __init__(self, wrap=list):
        super().__init__()
        self.stages = nn.ModuleList(nn.Conv2d(1 if i == 0 else 2, 2, 3) for i in range(3))
        self.wrap = wrap

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x).sigmoid()
            features.append(x)
        return self.wrap(features)


@dataclass
class Detections:
    boxes: list
    names: tuple = ("a", "b")
    logits: torch.Tensor | None = None


class TestOutputs:
    def test_all_tensors_of_an_output_count(self):
        model, x = Pyramid(), torch.randn(2, 1, 12, 12)
        ours = xf.saliency(model, [x])
        assert ours.silent == ()
        parts = xf.saliency(
            model, [x], score=lambda out, _: sum(scores.all_outputs(part) for part in out)
        )
        for path in ours:
            torch.testing.assert_close(ours[path], parts[path])

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda features: [[features[0]], ["text", features[1:]]],
            lambda features: Detections(boxes=features),
            lambda features: {"a": features[0], "b": {"c": (features[1], features[2])}},
        ],
    )
    def test_however_they_are_nested(self, wrap):
        torch.manual_seed(0)
        plain = Pyramid()
        nested = copy.deepcopy(plain)
        nested.wrap = wrap
        x = torch.randn(2, 1, 12, 12)
        for path, value in xf.saliency(plain, [x]).items():
            torch.testing.assert_close(xf.saliency(nested, [x])[path], value)

    def test_a_score_gets_the_output_as_it_is(self):
        model, x, seen = Pyramid(tuple), torch.randn(2, 1, 12, 12), []

        def last(output, y):
            seen.append(output)
            return output[-1].sum()

        assert xf.saliency(model, [x], score=last).silent == ()
        assert isinstance(seen[0], tuple)
        assert len(seen[0]) == 3
        xf.saliency(small(), [torch.randn(2, 1, 9, 9)], score=lambda out, y: seen.append(out) or
                    out.sum())  # fmt: skip
        assert isinstance(seen[1], torch.Tensor)

    def test_a_target_belongs_to_the_main_output(self):
        model = Pyramid(lambda features: {"aux": features[2], "out": features[0]})
        y = torch.rand(2, 2, 10, 10)
        assert xf.saliency(model, [(torch.randn(2, 1, 12, 12), y)]).silent == (
            "stages.1", "stages.2",
        )  # fmt: skip

    def test_infinite_constants_in_an_output_do_not_count(self):
        model = Pyramid(lambda features: [*features, torch.full((2, 2), -torch.inf)])
        assert xf.saliency(model, [torch.randn(2, 1, 12, 12)]).silent == ()

    def test_the_main_output(self):
        one, two = torch.ones(1), torch.ones(2)
        assert primary_output([[torch.ones(1).long()], [two]]) is two
        assert primary_output(Detections([one], logits=two)) is two
        assert primary_output({"a": one, "out": {"b": two}}) is two


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)

    def forward(self, sample, timestep, scale=1.0):
        return self.conv(sample).mean((2, 3)) * timestep[:, None] * scale


class TestInputs:
    def test_several(self):
        model = TwoInputs()
        a, b, y = torch.randn(2, 1, 9, 9), torch.tensor([1.0, 3.0]), torch.tensor([0, 2])
        expected = xf.saliency(model, [(a, b, y)])["conv"]
        for batch in (
            ((a, b), y),
            [[a, b], y],  # a loader's way
            ({"sample": a, "timestep": b}, y),
            {"sample": a, "timestep": b, "labels": y, "file": "a.png"},
            {"image": a, "timestep": b, "label": y},
        ):
            torch.testing.assert_close(xf.saliency(model, [batch])["conv"], expected)
        without = xf.saliency(model, [(a, b)])["conv"]
        torch.testing.assert_close(xf.saliency(model, [((a, b),)])["conv"], without)
        with pytest.raises(ValueError, match=r"missing .* 'timestep'; give several inputs as"):
            xf.saliency(model, [a])
        with pytest.raises(ValueError, match="as the model's forward does: 'sample', 'timestep'"):
            xf.saliency(model, [{"picture": a}])

    def test_a_list_of_images_may_be_one_input(self):
        class Listed(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = small()

            def forward(self, images, targets=None):
                assert targets is None
                return self.body(torch.stack(images))

        x = torch.randn(2, 1, 9, 9)
        assert xf.saliency(Listed(), [([x[0], x[1]], torch.tensor([0, 1]))]).silent == ()

    def test_a_required_mask_is_an_input(self):
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 3, padding=1)

            def forward(self, x, mask):
                return self.conv(x) * mask

        x = torch.randn(1, 1, 9, 9)
        assert xf.saliency(Masked(), [{"x": x, "mask": torch.ones(9)}]).silent == ()
        inputs, target = split_batch({"x": x, "mask": x}, small())
        assert target is x
        assert inputs.args == (x,)

    def test_a_forward_that_writes_into_its_input(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 2, 3)

            def forward(self, x):
                x *= 255
                return self.conv(x)

        x = torch.ones(1, 1, 9, 9)
        xf.saliency(Scaled(), [x, {"x": x}])
        assert (x == 1).all()

    def test_tensors_of_a_class_of_their_own(self):
        class Tagged(torch.Tensor):
            """Refuses what MONAI's MetaTensor has trouble with: to be anything but itself."""

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func in (F.one_hot, torch.conv2d):
                    raise RuntimeError("not with a tag")
                return super().__torch_function__(func, types, args, kwargs or {})

        x, y = torch.randn(2, 1, 9, 9), torch.tensor([0, 2])
        tagged = x.as_subclass(Tagged), y.as_subclass(Tagged)
        expected = xf.saliency(small(), [(x, y)])
        result = xf.saliency(small(), [tagged])
        assert type(result["0"]) is torch.Tensor
        torch.testing.assert_close(result["0"], expected["0"])


class TestComputedWeights:
    @pytest.mark.parametrize("kind", ["weight_gradient", "gradient"])
    @pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
    @pytest.mark.parametrize(
        "compute",
        [
            weight_norm,
            spectral_norm,
            nn.utils.weight_norm,
            nn.utils.spectral_norm,
            lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
            lambda layer: held_as_a_buffer(layer),
        ],
    )
    def test_they_are_scored_as_they_are(self, compute, kind):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Sigmoid(), nn.Conv2d(2, 2, 3))
        for layer in (model[0], model[2]):
            compute(layer)
        twice = nn.Sequential(model[0], *model)  # its first layer is called twice
        x = torch.randn(2, 2, 9, 9)
        twice.eval()(x)
        plain = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Sigmoid(), nn.Conv2d(2, 2, 3))
        for one, other in ((plain[0], model[0]), (plain[2], model[2])):
            one.weight.data, one.bias.data = other.weight.detach().clone(), other.bias.data
        before = [
            (dict(vars(layer)), {n: p.requires_grad for n, p in layer.named_parameters()})
            for layer in twice.modules()
        ]
        ours = xf.saliency(twice, [x, x], kind=kind)
        expected = xf.saliency(nn.Sequential(plain[0], *plain), [x, x], kind=kind)
        assert list(ours) == list(expected)
        for path, value in expected.items():
            torch.testing.assert_close(ours[path], value)
        for layer, (attributes, wanted) in zip(twice.modules(), before, strict=True):
            assert vars(layer).get("weight") is attributes.get("weight")
            assert {n: p.requires_grad for n, p in layer.named_parameters()} == wanted
            assert all(not buffer.requires_grad for buffer in layer.buffers())
            assert not layer._forward_hooks
        assert set(xf.explain(twice, saliency=ours)) == set(ours)

    def test_nothing_left_to_score(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3))
        weight = nn.Parameter(torch.ones(2, 1, 3, 3, dtype=torch.int8), requires_grad=False)
        model[0].weight = weight
        with pytest.raises(ValueError, match=r"no layer can be scored: '0': its weight is .*int8"):
            xf.saliency(model, [torch.randn(1, 1, 9, 9)])

    @pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
    def test_lazy_layers(self):
        with pytest.raises(ValueError, match="'0' has no weight yet; run the model once"):
            xf.saliency(nn.Sequential(nn.LazyConv2d(2, 3)), [torch.randn(1, 1, 9, 9)])


def held_as_a_buffer(layer):
    weight = layer.weight.detach()
    del layer.weight
    layer.register_buffer("weight", weight)


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
