"""Networks that are easily cut wrong: what comes out is unchanged, for every input, or nothing is.

The pruned network is held against the unpruned one in float64, on numbers, batches and image sizes
that `prune_` has not seen.
"""

import copy
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explainfix as xf
from explainfix.running import tensors_in


def dead(layer, *rows):
    """Zero some outputs of a layer."""
    with torch.no_grad():
        layer.weight[list(rows)] = 0
    return layer


def conv(inputs, outputs, *rows, size=3, bias=False, **options):
    return dead(nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=bias, **options), *rows)


def check(model, shapes=((1, 3, 12, 12), (3, 3, 20, 16)), *, cut=True, training=False, **options):
    """Prune on the first shape, compare on all; gives the report and the pruned network."""
    torch.manual_seed(0)
    model = model.double().eval()
    twin = copy.deepcopy(model)
    report = xf.prune_(model, torch.randn(shapes[0]).double(), **options)
    assert (report.params_kept < 1) == cut
    modes = [(model.eval(), twin.eval())]
    if training:
        assert report.exact_in_training
        modes.append((copy.deepcopy(model).train(), copy.deepcopy(twin).train()))
    for ours, theirs in modes:
        for shape in shapes:
            if ours.training and shape[0] == 1:
                continue
            x = torch.randn(shape).double()
            with torch.no_grad():
                torch.manual_seed(1)
                got = tensors_in(ours(x.clone()))
                torch.manual_seed(1)
                wanted = tensors_in(theirs(x.clone()))
            assert len(got) == len(wanted) > 0
            for one, other in zip(got, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)
    return report, model


class Made(nn.Module):
    """A network of some layers and a function that says what is done with them."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.run(self, x)


def norm(count):
    made = nn.BatchNorm2d(count)
    with torch.no_grad():
        made.bias.normal_()
        made.running_mean.normal_()
    return made


class TestTraining:
    def test_a_head_that_runs_in_training_only_is_not_mixed_up_with_the_rest(self):
        """Values of the pass in training have numbers of their own."""

        def run(self, x):
            h = self.norm(self.stem(x))
            aside = self.aux(h) if self.training else 0
            return self.body_norm(self.body(F.relu(h))), aside

        torch.manual_seed(3)
        model = Made(
            run, stem=conv(3, 8, 1, 4), norm=norm(8), body=conv(8, 6, size=1), body_norm=norm(6),
            aux=conv(8, 6, size=1, bias=True),
        )  # fmt: skip
        check(model, training=True)

    def test_what_training_needs_and_evaluation_does_not_stays(self):
        def run(self, x):
            h = self.stem(x)
            out = self.head(h)
            return (out, self.aux(h)) if self.training else out

        head = conv(8, 2)
        with torch.no_grad():
            head.weight[:, :4] = 0
        model = Made(run, stem=conv(3, 8), head=head, aux=conv(8, 2))
        check(model, cut=False, training=True)

    def test_features_that_only_training_gives(self):
        """The layers are all used in evaluation: nothing but the outputs tells."""

        def run(self, x):
            h = self.stem(x)
            return (self.head(h), h) if self.training else self.head(h)

        model = Made(run, stem=conv(3, 8, 1, 4), head=conv(8, 2))
        _, model = check(model, cut=False, training=True)
        assert model.train()(torch.randn(2, 3, 8, 8).double())[1].shape[1] == 8


class TestConstants:
    @pytest.mark.parametrize("dims", [(0,), (2,), (3,), (0, 2), (2, 3)])
    def test_a_sum_over_an_axis_of_length_one_is_no_constant(self, dims):
        def run(self, x):
            h = self.norm(self.stem(x))
            h = h.sum(dims, keepdim=True) + 0 * h
            return self.head(h)

        model = Made(run, stem=conv(3, 6, 0, 3), norm=norm(6), head=conv(6, 2, size=1, bias=True))
        check(model, ((1, 3, 1, 1), (2, 3, 8, 1), (2, 3, 1, 9), (3, 3, 5, 7)), cut=False)

    def test_a_bias_that_is_computed_is_no_constant(self):
        def run(self, x):
            bias = self.say(x.mean((0, 2, 3)))
            return self.head(F.conv2d(x, self.stem.weight, bias, padding=1))

        model = Made(run, stem=conv(3, 4, 1), say=nn.Linear(3, 4), head=conv(4, 2, size=1))
        check(model, cut=False)

    def test_a_bias_that_two_layers_share_takes_no_constant(self):
        one, two = (conv(6, 4, size=1, bias=True) for _ in range(2))
        two.bias = one.bias

        def run(self, x):
            h = F.relu(self.norm(self.stem(x)))
            return self.one(h), self.two(h.square())

        model = Made(run, stem=conv(3, 6, 0, 3), norm=norm(6), one=one, two=two)
        with torch.no_grad():
            model.norm.running_mean.fill_(-1.0)
            model.norm.bias.fill_(1.0)
        check(model, cut=False)

    def test_a_buffer_that_a_pass_writes_is_no_constant(self):
        def run(self, x):
            self.level.copy_(x.mean((0, 2, 3)))
            return self.head(self.stem(x) * self.level.view(-1, 1, 1))

        model = Made(run, stem=conv(3, 3), head=conv(3, 2, size=1))
        model.register_buffer("level", torch.tensor([1.0, 0.0, 2.0]))
        check(model, cut=False)


class Pooled(nn.Module):
    """Keeps numbers that happen to equal a count of channels."""

    def __init__(self):
        super().__init__()
        self.window = 4
        self.seed = 4
        self.names = (4, 9)
        self.one = conv(3, 4, 1)
        self.two = conv(4, 2)

    def forward(self, x):
        h = self.one(x)
        n, c = h.shape[:2]
        h = h.reshape(n, 2, c // 2 if c % 2 == 0 else c, *h.shape[2:]).flatten(1, 2)
        return F.avg_pool2d(self.two(h), self.window, 1)


class TestAttributes:
    def test_numbers_that_happen_to_equal_a_count_stay(self):
        report, model = check(Pooled(), cut=False)
        assert (model.window, model.seed, model.names) == (4, 4, (4, 9))
        assert report.rewritten == {}

    def test_those_that_are_needed_are_rewritten_and_listed(self):
        class Sliced(nn.Module):
            def __init__(self):
                super().__init__()
                self.seed = 5
                self.some = 5
                self.one, self.two, self.three = conv(3, 8, 1, 6), conv(5, 2), conv(3, 2)

            def forward(self, x):
                h = self.one(x)
                return self.two(h[:, : self.some]) + self.three(h[:, self.some :])

        report, model = check(nn.Sequential(Sliced()))
        assert (model[0].seed, model[0].some) == (5, 4)
        assert report.rewritten == {"0.some": (5, 4)}
        assert "0.some was 5 and is 4." in str(report)

    def test_a_size_in_a_tuple(self):
        class Start(nn.Module):
            def __init__(self):
                super().__init__()
                self.start_shape = (-1, 6, 4, 4)
                self.dense, self.head = nn.Linear(12, 96), conv(6, 2)
                dead(self.dense, *range(16, 48))
                with torch.no_grad():
                    self.dense.bias[16:48] = 0

            def forward(self, x):
                return self.head(self.dense(x).view(*self.start_shape))

        report, model = check(Start(), ((1, 12), (3, 12)))
        assert report.rewritten == {"start_shape": ((-1, 6, 4, 4), [-1, 4, 4, 4])}
        assert model.start_shape == (-1, 4, 4, 4)

    def test_a_slice_in_the_code_takes_the_same_channels(self):
        """As many would come out without the first channel, but others."""

        def run(self, x):
            h = self.stem(x)
            return self.some(h[:, 2:6]) + self.all(h)

        model = Made(run, stem=conv(3, 8), some=conv(4, 2), all=conv(8, 2))
        with torch.no_grad():
            model.all.weight[:, 0] = 0
        check(model, cut=False)

    @pytest.mark.parametrize("scale", ["number", "tensor", "attribute"])
    def test_a_scale_from_a_shape_keeps_the_shape(self, scale):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.dim = 8
                self.query, self.key = conv(3, 8, 1, 2, size=1), conv(3, 8, 1, 2, size=1)

            def forward(self, x):
                q, k = self.query(x).flatten(2), self.key(x).flatten(2)
                by = {
                    "number": lambda: int(q.shape[1]) ** -0.5,
                    "tensor": lambda: torch.tensor(q.shape[1]).double().rsqrt(),
                    "attribute": lambda: self.dim**-0.5,
                }[scale]()
                return (q.transpose(1, 2) @ k * by * 1e-3).softmax(-1)

        check(Scaled(), cut=scale == "attribute")


class TestWrites:
    def test_through_a_view_of_the_whole(self):
        def run(self, x):
            h = self.stem(x)
            h.view(h.shape[0], -1).add_(1.0)
            return self.head(h)

        model = Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2, size=1, bias=True))
        check(model)  # the ones are folded: what was dead is constant

    def test_through_views_of_views_and_what_else_looks_there(self):
        def run(self, x):
            h = self.stem(x)
            other = h.transpose(2, 3)
            h[:, :, 1:].transpose(1, 2).mul_(2.0)
            other[:, :, :, 0] = 0.5
            return self.head(h), self.head(other)

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)), cut=False)

    def test_into_a_part_of_something_else_pins_nothing(self):
        def run(self, x):
            grid = torch.zeros(2, 2).double()
            grid[0, 1] = 1.0
            return self.head(self.stem(x)) * grid[0, 1]

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)))

    def test_into_a_canvas_of_the_right_size(self):
        def run(self, x):
            h = self.stem(x)
            canvas = h.new_zeros(h.shape[0], h.shape[1], h.shape[2] + 2, h.shape[3] + 4)
            canvas[:, :, 1:-1, 2:-2] = h
            return self.head(canvas)

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)))

    def test_into_a_canvas_whose_size_is_in_the_code(self):
        def run(self, x):
            h = self.stem(x)
            canvas = torch.ones(h.shape[0], 6, *h.shape[2:]).double()
            canvas[:, :, ::2] = h[:, :, ::2]
            return self.head(canvas)

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)), cut=False)

    def test_side_by_side(self):
        def run(self, x):
            one, two = self.one(x), self.two(x)
            both = x.new_empty(x.shape[0], one.shape[1] + two.shape[1], *x.shape[2:])
            both[:, : one.shape[1]] = one
            both[:, one.shape[1] :] = two
            return self.head(both)

        check(Made(run, one=conv(3, 4, 0), two=conv(3, 5, 2, 3), head=conv(9, 2)))

    def test_into_one_channel(self):
        def run(self, x):
            h = self.stem(x)
            h[:, 2] = 1.0
            return self.head(h)

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)), cut=False)

    def test_circular_padding(self):
        check(
            nn.Sequential(
                conv(3, 6, 0, 3),
                nn.Conv2d(6, 6, 3, padding=1, padding_mode="circular"),
                conv(6, 2),
            )
        )

    def test_into_the_input_leaves_the_example_alone(self):
        def run(self, x):
            x *= 255
            return self.head(self.stem(x))

        model = Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)).double()
        example = torch.rand(1, 3, 8, 8).double()
        before = example.clone()
        xf.prune_(model, example)
        assert torch.equal(example, before)
        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)))

    def test_pooling_of_channels_last(self):
        """PyTorch writes other strides over what it pooled."""

        def run(self, x):
            return self.head(F.adaptive_avg_pool2d(self.stem(x), 1).flatten(1))

        model = Made(run, stem=conv(3, 6, 0, 3), head=nn.Linear(6, 2))
        check(model.to(memory_format=torch.channels_last))

    def test_turning_a_tensor_in_place(self):
        def run(self, x):
            h = self.stem(x)
            h.transpose_(2, 3)
            return self.head(h).squeeze_(0)

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)), ((1, 3, 8, 8), (1, 3, 9, 12)))


@dataclass
class Answer:
    mask: torch.Tensor
    depth: torch.Tensor


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner


class TestOutputs:
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda one, two: Answer(one, two),
            lambda one, two: SimpleNamespace(a=[one], b={"c": (two,)}),
            lambda one, two: Slotted([Slotted(one), two]),
            lambda one, two: iter([one, two]),
        ],
        ids=["dataclass", "namespace", "slots", "iterator"],
    )
    def test_in_containers_of_any_kind(self, wrap):
        def run(self, x):
            h = self.stem(x)
            return wrap(self.one(h), self.two(h))

        model = Made(run, stem=conv(3, 6, 0, 3), one=conv(6, 4, 1), two=conv(6, 3, 2)).double()
        xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert (model.stem.out_channels, model.one.out_channels, model.two.out_channels) == (
            4,
            4,
            3,
        )

    def test_kept_on_the_side(self):
        """What somebody keeps for later is an output too."""
        held = []
        model = nn.Sequential(conv(3, 6, 0, 3), nn.ReLU(), conv(6, 2)).double()
        model[0].register_forward_hook(lambda module, args, output: held.append(output))
        report = xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert report.params_kept == 1

    def test_no_tensor_at_all(self):
        class Says(nn.Conv2d):
            def forward(self, x):
                return float(super().forward(x).sum())

        with pytest.raises(ValueError, match="holds no tensor"):
            xf.prune_(Says(3, 4, 3), torch.randn(1, 3, 8, 8))

    def test_several_inputs_by_place_and_by_name(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.head = conv(3, 6, 0), conv(2, 6, 0, 4), conv(6, 2)

            def forward(self, image, *, other=None):
                return self.head(self.one(image) + (0 if other is None else self.two(other)))

        image, other = torch.randn(1, 3, 8, 8).double(), torch.randn(1, 2, 8, 8).double()
        model = Two().double()
        twin = copy.deepcopy(model)
        xf.prune_(model, {"image": image, "other": other})
        assert model.one.out_channels == 5
        image, other = torch.randn(2, 3, 9, 9).double(), torch.randn(2, 2, 9, 9).double()
        torch.testing.assert_close(model(image, other=other), twin(image, other=other))


class Labelled(torch.Tensor):
    """A tensor with something beside it, as some libraries have."""


class TestFine:
    """What was refused though nothing is wrong with it."""

    def test_chance(self):
        def run(self, x):
            mean, spread = self.mean(x), self.spread(x)
            return self.decode(mean + torch.randn_like(spread) * spread)

        model = Made(run, mean=conv(3, 6, 0), spread=conv(3, 6, 0), decode=conv(6, 2))
        check(nn.Sequential(conv(3, 3, 1), model))

    def test_tensors_of_another_class(self):
        model = nn.Sequential(conv(3, 6, 0, 3), conv(6, 2)).double()
        xf.prune_(model, torch.randn(1, 3, 8, 8).double().as_subclass(Labelled))
        assert model[0].out_channels == 4

    def test_sums_that_wait_to_be_quantised(self):
        def run(self, x):
            return self.head(self.add.add(self.one(x), self.two(x)))

        add = torch.ao.nn.quantized.FloatFunctional()
        check(Made(run, one=conv(3, 6, 0, 3), two=conv(3, 6, 0), add=add, head=conv(6, 2)))

    def test_empty_tensors(self):
        def run(self, x):
            h = self.head(self.stem(x))
            nothing = h[:0].reshape(-1, h.shape[1], 4)
            return h, nothing.reshape(0, 4 * h.shape[1])

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 4)))

    def test_biases_that_layers_share(self):
        one, two = (conv(6, 4, 2, size=1, bias=True) for _ in range(2))
        two.bias = one.bias
        with torch.no_grad():
            one.bias[2] = 0

        def run(self, x):
            h = self.stem(x)
            return self.head(F.relu(self.one(h)) + self.two(h).tanh())

        check(Made(run, stem=conv(3, 6, 0, 3), one=one, two=two, head=conv(4, 2)))

    def test_a_roll_over_channels(self):
        def run(self, x):
            return self.head(self.stem(x).roll(1, 1))

        check(Made(run, stem=conv(3, 6, 0, 3), head=conv(6, 2)), cut=False)

    def test_outputs_that_rounding_moves_far(self):
        """A float32 network that trembles: limits are those of its own rounding."""

        class Chaos(nn.Module):
            def __init__(self):
                super().__init__()
                self.one = conv(3, 16, *range(5), bias=True)
                self.two = conv(16, 3, size=1, bias=True)  # constants go into its bias, rounded

            def forward(self, x):
                h = self.two(self.one(x))
                return torch.sin(h * 1e4)

        torch.manual_seed(0)
        model = Chaos()
        report = xf.prune_(model, torch.randn(1, 3, 8, 8))
        assert report.params_kept < 1
        assert report.difference > 1e-4

    def test_targets_asked_for_in_training(self):
        class Asks(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.loss = conv(3, 6, 0), conv(6, 2), nn.Linear(2, 2)

            def forward(self, x, target=None):
                if self.training and target is None:
                    raise ValueError("targets should not be None")
                return self.two(self.one(x))

        report, _ = check(Asks())
        assert any("loss.weight" in warning for warning in report.warnings)


class TestContexts:
    def test_autocast_and_inference_mode_are_named(self):
        model = nn.Sequential(conv(3, 6, 0), conv(6, 2))
        x = torch.randn(1, 3, 8, 8)
        with pytest.raises(ValueError, match=r"torch\.autocast"), torch.autocast("cpu"):
            xf.prune_(model, x)
        with pytest.raises(ValueError, match="inference_mode"), torch.inference_mode():
            xf.prune_(model, x)


class TestMore:
    """What stayed though it could go."""

    def test_activations_with_one_parameter_for_all(self):
        check(nn.Sequential(conv(3, 6, 0, 3), nn.PReLU(), conv(6, 2)))

    def test_pooling_that_is_undone(self):
        def run(self, x):
            h, places = F.max_pool2d(self.stem(x), 2, return_indices=True)
            return self.head(F.max_unpool2d(self.mid(h), places, 2))

        model = Made(run, stem=conv(3, 6, 0, 3), mid=conv(6, 6, 0, 3), head=conv(6, 2))
        check(model)

    def test_single_channels_within_groups(self):
        torch.manual_seed(0)
        model = nn.Sequential(
            conv(3, 12), nn.BatchNorm2d(12), nn.ReLU(), conv(12, 12, 0, 3, 6, 9, 10, groups=3),
            nn.ReLU(), conv(12, 4, size=1),
        )  # fmt: skip
        with torch.no_grad():
            model[3].weight[:, 2] = 0  # an input of each group
        _, pruned = check(model, training=True)
        assert (pruned[3].in_channels, pruned[3].out_channels, pruned[3].groups) == (9, 9, 3)

    def test_whole_groups(self):
        model = nn.Sequential(conv(3, 12), conv(12, 9, 0, 1, 2, groups=3), conv(9, 4, size=1))
        _, pruned = check(model)
        assert (pruned[1].in_channels, pruned[1].out_channels, pruned[1].groups) == (8, 6, 2)

    def test_single_channels_of_transposed_groups(self):
        layer = nn.ConvTranspose2d(8, 12, 2, 2, groups=2, bias=False)
        with torch.no_grad():
            layer.weight[:, [1, 4]] = 0
        model = nn.Sequential(conv(3, 8, 0, 5), nn.ReLU(), layer, conv(12, 3))
        _, pruned = check(model)
        assert (pruned[2].in_channels, pruned[2].out_channels) == (6, 8)


class TestRequests:
    def network(self):
        torch.manual_seed(0)
        return nn.Sequential(
            conv(3, 8, 0, 1, 2, 3, 4, 5, 6), nn.ReLU(), conv(8, 8, 0, 1), nn.ReLU(), conv(8, 2)
        )

    def test_layers_to_keep(self):
        check(self.network(), keep="2", cut=False)
        _, model = check(self.network(), keep=["4"])
        assert tuple(model[2].weight.shape[:2]) == (8, 1)
        with pytest.raises(ValueError, match="'3x'"):
            xf.prune_(self.network(), torch.randn(1, 3, 8, 8), keep="3x")

    def test_channels_to_keep_at_least(self):
        _, model = check(self.network(), keep_at_least=4)
        assert [model[i].out_channels for i in (0, 2, 4)] == [4, 6, 2]
        _, model = check(self.network(), keep_at_least={"0": 3})
        assert model[0].out_channels == 3
        with pytest.raises(ValueError, match="1 or more, not 0"):
            xf.prune_(self.network(), torch.randn(1, 3, 8, 8), keep_at_least=0)

    def test_layers_to_keep_are_not_zeroed(self):
        model = self.network()
        scores = {
            path: torch.rand(w.weight.shape[:2]) for path, w in xf.spatial_layers(model).items()
        }
        before = model[2].weight.detach().clone()
        xf.channel_prune_(model, torch.randn(1, 3, 12, 12), scores, zero=0.5, keep="2", fill=None)
        assert torch.equal(model[2].weight, before)

    def test_a_layer_with_one_channel_is_a_warning(self):
        report, _ = check(self.network())
        assert any("0 left with a single channel" in warning for warning in report.warnings)

    def test_a_silent_network_is_a_warning(self):
        model = nn.Sequential(conv(3, 4, 0, 1, 2, 3), nn.ReLU(), conv(4, 2, bias=True))
        report, _ = check(model)
        assert any("hardly depend on the input" in warning for warning in report.warnings)

    def test_pruned_to_silence(self):
        torch.manual_seed(0)
        model = xf.create_model("timm:starnet_s1")
        scores = xf.saliency(model, [torch.randn(2, 3, 64, 64)])
        report = xf.channel_prune_(model, torch.randn(1, 3, 64, 64), scores, zero=0.9)
        assert report.params_kept < 0.01
        assert any("left with a single channel" in warning for warning in report.warnings)

    def test_dropped_ghosts_say_what_they_cost(self):
        model = nn.Sequential(conv(3, 6, 0, 3), norm(6), nn.ReLU(), conv(6, 2)).double().eval()
        with torch.no_grad():
            model[1].bias.fill_(1.0)
            model[1].running_mean.zero_()
        report = xf.prune_(model, torch.randn(1, 3, 8, 8).double(), ghosts="drop")
        assert report.ghosts_dropped == 2
        assert report.params_with_ghosts == 1
        assert "keeping them would have kept 100.0%" in str(report)


class TestNothingHalfDone:
    def test_weights_that_cannot_be_filled(self):
        model = nn.Sequential(
            conv(3, 6), nn.utils.parametrizations.weight_norm(conv(6, 6)), conv(6, 2)
        )
        scores = {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(model).items()}
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(ValueError, match="'1'"):
            xf.channel_prune_(model, torch.randn(1, 3, 8, 8), scores, zero=0.5)
        after = model.state_dict()
        assert all(torch.equal(before[key], after[key]) for key in before)


class PadsByNothing(nn.Module):
    """Cuts an empty strip off, as networks with windows do when nothing is to be padded."""

    def __init__(self):
        super().__init__()
        self.one, self.two = conv(3, 6, 0, 3), conv(6, 2)

    def forward(self, x):
        x = F.relu(self.one(x))
        strip = x[:, :, x.shape[2] :]
        return self.two(torch.cat([x, strip[:, 1:5].relu().new_zeros(len(x), 6, 0, x.shape[3])], 2))


def test_empty_tensors_are_looked_through():
    check(PadsByNothing(), cut=False)


def test_a_slice_of_nothing():
    class Slices(PadsByNothing):
        def forward(self, x):
            x = F.relu(self.one(x))
            empty = x[:, :, :0]
            return self.two(x) + empty[:, : empty.shape[1] // 2].sum()

    check(Slices(), cut=False)
