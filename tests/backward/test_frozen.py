"""The lean frozen convolution computes what the ordinary one does, and keeps less."""

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import explainfix as xf
from explainfix.backward.frozen import is_lean, make_lean, make_ordinary
from explainfix.backward.saved import kept_for_backward
from explainfix.lab.run.devices import make_ready_
from gradients import passes, widening

KINDS = [
    (lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 9, 9)),
    (lambda: nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 9, 9)),
    (lambda: nn.Conv2d(4, 6, 3, padding="valid", dilation=2), (2, 4, 9, 9)),
    (lambda: nn.Conv2d(4, 6, (3, 5), padding="same", dilation=(2, 3)), (2, 4, 19, 19)),
    (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 9, 9)),
    (lambda: nn.Conv2d(8, 8, 3, groups=8, stride=2, bias=False), (2, 8, 9, 9)),
    (lambda: nn.Conv2d(8, 6, 3, groups=2), (2, 8, 9, 9)),
    (lambda: nn.Conv2d(4, 6, 3), (4, 9, 9)),
    (lambda: nn.Conv1d(4, 6, 3, stride=2), (2, 4, 9)),
    (lambda: nn.Conv3d(2, 3, 3), (2, 2, 7, 7, 7)),
    (lambda: nn.ConvTranspose1d(4, 6, 4, groups=2), (2, 4, 9)),
    (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 9, 9)),
    (lambda: nn.ConvTranspose3d(2, 3, 3), (2, 2, 5, 5, 5)),
]


def both(make):
    """The same frozen layer, ordinary and lean."""
    layer = make()
    layer.weight.requires_grad_(False)
    lean = copy.deepcopy(layer)
    make_lean(lean)
    assert is_lean(lean)
    return layer, lean


@pytest.mark.parametrize(("make", "shape"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_bit_for_bit(make, shape, dtype):
    ordinary, lean = (layer.to(dtype) for layer in both(make))
    x = torch.randn(shape).to(dtype)
    for one, other in zip(passes(ordinary, x), passes(lean, x), strict=True):
        assert torch.equal(one, other)


def test_channels_last_and_autocast():
    ordinary, lean = both(lambda: nn.Conv2d(16, 16, 3, padding=1))
    x = torch.randn(2, 16, 12, 12).to(memory_format=torch.channels_last)
    for layer in (ordinary, lean):
        layer.to(memory_format=torch.channels_last)
    for options in ({}, {"dtype": torch.bfloat16}):
        results = passes(ordinary, x, **options), passes(lean, x, **options)
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        assert results[1][1].is_contiguous(memory_format=torch.channels_last)


def behind(layer):
    """A layer behind another operation, and before one in place."""
    return nn.Sequential(nn.Tanh(), layer, nn.CELU(inplace=True))


@pytest.mark.parametrize(("make", "shape"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_bias_learns_without_the_gradient_of_the_weight(make, shape, dtype):
    """Its gradient is the sum of what arrives, rounded once."""
    ordinary, lean = (behind(layer).to(dtype) for layer in both(make))
    x = torch.randn(shape).to(dtype)
    (y, of_x, *of_bias), (out, ours, *mine) = passes(ordinary, x), passes(lean, x)
    assert torch.equal(y, out)
    wide = dtype == torch.bfloat16 and lean[1].groups > 1 and max(lean[1].stride) > 1
    if wide and not torch.equal(of_x, ours):
        # A processor without bf16 adds up in it where these layers, with strides, use float32.
        _, right, *_ = passes(copy.deepcopy(ordinary).double(), x.double())
        assert (ours - right).norm() < (of_x - right).norm()
    else:
        assert torch.equal(of_x, ours)
    assert len(mine) == len(of_bias)
    arrived = []
    made = lean[1](lean[0](x.clone().requires_grad_()))
    made.register_hook(arrived.append)
    lean.zero_grad()
    torch.celu(made).backward(torch.cos(torch.arange(made.numel())).reshape(made.shape).to(dtype))
    for _ in mine:
        found = lean[1].bias.grad
        channel = made.dim() - len(lean[1].kernel_size) - 1
        others = [dim for dim in range(made.dim()) if dim != channel]
        exact, size = (each.double().sum(others) for each in (arrived[0], arrived[0].abs()))
        assert found.dtype == dtype
        assert ((found - exact).abs() <= torch.finfo(dtype).eps * exact.abs() + 1e-6 * size).all()


def test_a_bias_learns_in_every_way():
    _, lean = both(lambda: nn.Conv2d(2, 3, 3).double())
    x = torch.randn(1, 2, 5, 5).double().requires_grad_()
    made = lean(x.tanh())
    assert made.grad_fn.name().startswith("_Convolution")  # or nothing was tested
    assert torch.autograd.gradcheck(nn.Sequential(nn.Tanh(), lean), (x,))
    assert torch.autograd.gradgradcheck(nn.Sequential(nn.Tanh(), lean, nn.Tanh()), (x,))
    lean(x.detach()).sum().backward()  # the first layer of a network
    torch.testing.assert_close(lean.bias.grad, torch.full((3,), 9.0).double())
    changed = lean(x.tanh())
    with torch.no_grad():
        lean.weight.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        changed.sum().backward()


def test_a_bias_learns_under_autocast_checkpoints_and_transforms():
    ordinary, lean = (behind(layer) for layer in both(lambda: nn.Conv2d(16, 16, 3, padding=1)))
    x = torch.randn(2, 16, 12, 12)
    close = {"rtol": 0.02, "atol": 0.02}
    for one, other in zip(
        *(passes(each, x, dtype=torch.bfloat16) for each in (ordinary, lean)), strict=True
    ):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, **close)
    ordinary.zero_grad()
    lean.zero_grad()

    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(lean, x, use_reentrant=False)

    checkpointed.parameters = lean.parameters
    torch.testing.assert_close(passes(checkpointed, x), passes(ordinary, x))

    def of_each(network):
        of = torch.func.grad(
            lambda bias, image: torch.func.functional_call(network, {"1.bias": bias}, image).sum()
        )
        return torch.func.vmap(of, (None, 0))(network[1].bias.detach(), x[:, None])

    torch.testing.assert_close(of_each(lean), of_each(ordinary))


def strided(kind=nn.Conv2d, **options):
    """A depthwise layer with strides, ordinary and lean, behind another operation."""
    options = {"stride": 2, "padding": 2, "groups": 16, "bias": False} | options
    return (behind(layer) for layer in both(lambda: kind(16, 16, 5, **options)))


@pytest.mark.parametrize("stride", [2, 3, (1, 2)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_strided_depthwise_in_low_precision(stride, layout):
    """Its backward pass is in float32: as near to float64 as the ordinary one, or nearer."""
    ordinary, lean = strided(stride=stride)
    x = torch.randn(2, 16, 12, 12).bfloat16().to(memory_format=layout)
    _, right = passes(copy.deepcopy(ordinary).bfloat16().double(), x.double())
    (y, theirs), (out, ours) = (passes(each, x, dtype=torch.bfloat16) for each in (ordinary, lean))
    assert torch.equal(y, out)
    assert ours.dtype == theirs.dtype
    assert ours.is_contiguous(memory_format=layout)
    assert (ours - right).norm() <= 1.01 * (theirs - right).norm() < 0.01 * right.norm()
    with torch.autocast("cpu", torch.bfloat16):
        made = lean[:2](x.requires_grad_())
        assert made.grad_fn.name().startswith("_Convolution")  # or nothing was tested
        assert kept_for_backward(lean[:2], x) == x.numel() * 2  # of Tanh


def test_what_a_strided_layer_read_must_be_its_input():
    class Halved(nn.Conv2d):
        def forward(self, x):
            return super().forward(x / 2)

    x = torch.randn(1, 16, 9, 9).bfloat16()
    for kind, options in ((Halved, {}), (nn.Conv2d, {"padding_mode": "circular"})):
        results = (passes(each, x, dtype=torch.bfloat16) for each in strided(kind, **options))
        for one, other in zip(*results, strict=True):
            assert torch.equal(one, other)
    _, (_, lean, _) = strided()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(lean(input=x.requires_grad_().tanh()), lean(x.tanh()))


def test_a_strided_layer_in_functional_transforms():
    """Gradients of each image by itself, as differential privacy wants them."""
    ordinary, lean = (each.bfloat16() for each in strided())
    x = torch.randn(3, 16, 9, 9).bfloat16()

    def of_each(network):
        return torch.func.vmap(torch.func.grad(lambda image: network(image[None]).sum()))(x)

    torch.testing.assert_close(of_each(lean), of_each(ordinary))


def test_nothing_is_kept():
    ordinary, lean = both(lambda: nn.Conv2d(4, 4, 3))
    x = torch.randn(2, 4, 16, 16, requires_grad=True)
    assert kept_for_backward(ordinary, x) == x.numel() * 4
    assert kept_for_backward(lean, x) == 0
    assert lean(x.detach()).requires_grad  # for its bias
    lean.bias = None
    assert not lean(x.detach()).requires_grad  # nothing to learn so far: no autograd at all


def test_twice_differentiable():
    _, lean = both(lambda: nn.Conv2d(2, 3, 3).double())
    assert torch.autograd.gradgradcheck(lean, (torch.randn(1, 2, 5, 5).double().requires_grad_(),))


def compiled(network):
    torch.compiler.reset()
    return torch.compile(network, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize(("make", "shape"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled(make, shape, dtype):
    _, lean = both(make)
    network, x = behind(lean).to(dtype), torch.randn(shape).to(dtype)
    plain = passes(network, x)
    network.zero_grad()
    for one, other in zip(passes(compiled(network), x), plain, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("bias", [False, True])
def test_compiled_strided_depthwise_layers_go_back_in_float32(bias):
    _, lean = strided(bias=bias)
    make_ready_(lean, channels_last=True, frugal=False)  # as training does: more hooks of ours
    x = torch.randn(2, 16, 12, 12).bfloat16()
    plain = passes(lean, x, dtype=torch.bfloat16)
    lean.zero_grad()
    seen = []

    def see(graph, inputs):
        back = torch.ops.aten.convolution_backward.default
        nodes = graph.graph.find_nodes(op="call_function", target=back)
        seen.extend((node.args[0].meta["val"].dtype, node.args[-1]) for node in nodes)
        return make_boxed_func(graph)

    backend = aot_autograd(fw_compiler=see, bw_compiler=see)
    made = passes(torch.compile(lean, backend=backend), x, dtype=torch.bfloat16)
    assert seen == [(torch.float32, [True, False, False])]
    for one, other in zip(made, plain, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks at all attributes
def test_compiled_layers_in_which_others_have_a_hand():
    """Whose output is not, or need not be, the convolution of what goes in."""

    class Halved(nn.Conv2d):
        def forward(self, x):
            return super().forward(x / 2)

    def doubled(layer):
        layer.register_forward_hook(lambda module, args, output: 2 * output, prepend=True)

    def by_itself(layer):
        layer.forward = lambda x: nn.Conv2d.forward(layer, x.flip(-1))

    x = torch.randn(2, 4, 9, 9)
    for kind, change in ((Halved, None), (nn.Conv2d, doubled), (nn.Conv2d, by_itself)):
        _, lean = both(lambda kind=kind: kind(4, 6, 3))
        if change:
            change(lean)
        plain = passes(lean, x)
        lean.zero_grad()
        for one, other in zip(passes(compiled(lean), x), plain, strict=True):
            torch.testing.assert_close(one, other)


def test_exported_layers_are_plain_convolutions():
    _, lean = both(lambda: nn.Conv2d(4, 6, 3))
    graph = torch.export.export(lean, (torch.randn(1, 4, 9, 9),)).graph
    [node] = [node for node in graph.nodes if node.op == "call_function"]
    assert node.target is torch.ops.aten.conv2d.default


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")
def test_scripted_and_traced():
    model = nn.Sequential(widening(nn.ReLU), nn.Conv2d(2, 3, 3, padding_mode="circular")).eval()
    xf.fix_(model, "ghaar")
    assert is_lean(model[1])
    x = torch.randn(1, 8, 9, 9)
    for other in (torch.jit.script(model), torch.jit.trace(model, x)):
        torch.testing.assert_close(other(x), model(x))
        file = io.BytesIO()
        torch.jit.save(other, file)
        file.seek(0)
        torch.testing.assert_close(torch.jit.load(file)(x), model(x))


@pytest.mark.parametrize(("make", "shape"), KINDS)
def test_a_lean_layer_ends_with_its_last_reference(make, shape):
    gc.disable()
    try:
        model = nn.Sequential(make())
        xf.fix_(model, "ghaar")
        model(torch.randn(shape, requires_grad=True)).sum().backward()
        ends = [weakref.ref(model), weakref.ref(model[0]), weakref.ref(model[0].weight)]
        del model
        assert [end() for end in ends] == [None, None, None]
    finally:
        gc.enable()


def test_a_shallow_copy_convolves_as_itself():
    _, lean = both(lambda: nn.Conv2d(4, 4, 3))
    twin = copy.copy(lean)
    twin.stride = (2, 2)
    assert is_lean(twin)
    x = torch.randn(1, 4, 9, 9, requires_grad=True)
    assert twin(x).shape == (1, 4, 4, 4)
    assert lean(x).shape == (1, 4, 7, 7)
    twin._parameters = {**lean._parameters, "weight": nn.Parameter(torch.zeros(4, 4, 3, 3), False)}
    torch.testing.assert_close(twin(x)[0, :, 0, 0], lean.bias)
    assert kept_for_backward(twin, x) == 0


def test_copied_pickled_and_undone():
    _, lean = both(lambda: nn.Conv2d(4, 4, 3))
    x = torch.randn(1, 4, 8, 8)
    for other in (copy.deepcopy(lean), pickle.loads(pickle.dumps(lean))):
        assert is_lean(other)
        with torch.no_grad():
            other.weight.zero_()
        assert not torch.equal(other(x), lean(x))  # it computes with its own weight
    assert list(lean.state_dict()) == ["weight", "bias"]
    make_ordinary(lean)
    assert not is_lean(lean)
    assert set(vars(lean)) == set(vars(nn.Conv2d(4, 4, 3)))


def test_a_learnable_weight_still_learns():
    _, lean = both(lambda: nn.Conv2d(4, 4, 3))
    lean.weight.requires_grad_()
    lean(torch.randn(1, 4, 8, 8)).sum().backward()
    assert lean.weight.grad is not None


def test_a_class_with_its_own_forward_is_lean_if_a_convolution_ends_it():
    class Padded(nn.Conv2d):
        def forward(self, x):
            return super().forward(nn.functional.pad(x, (1, 1, 1, 1)))

    class More(nn.Conv2d):
        def forward(self, x):
            return super().forward(x).exp()

    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    for kind, kept in ((Padded, 0), (More, 2 * 4 * 6 * 6 * 4 + x.numel() * 4)):
        ordinary, lean = both(lambda kind=kind: kind(4, 4, 3, bias=False))
        assert kept_for_backward(lean, x) == kept
        results = passes(ordinary, x.detach()), passes(lean, x.detach())
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_class_that_convolves_with_another_weight_than_its_own():
    class Standardised(nn.Conv2d):
        def forward(self, x):
            weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            return nn.functional.conv2d(x, weight, self.bias)

    class Doubled(nn.Conv2d):
        def _conv_forward(self, x, weight, bias):
            return super()._conv_forward(x, 2 * weight, bias)

    x = torch.randn(2, 4, 8, 8)
    for kind in (Standardised, Doubled):
        ordinary, lean = (behind(layer) for layer in both(lambda kind=kind: kind(4, 4, 3)))
        results = passes(ordinary, x), passes(lean, x)
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    ordinary, lean = (behind(layer) for layer in both(lambda: nn.Conv2d(4, 4, 3)))
    lean[1].forward = lambda x: nn.functional.conv2d(x, 2 * lean[1].weight, lean[1].bias)
    ordinary[1].weight.data *= 2
    results = passes(ordinary, x), passes(lean, x)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_works_beside_checkpoints_and_hooks_of_others():
    ordinary, lean = both(lambda: nn.Conv2d(4, 4, 3))
    x = torch.randn(2, 4, 9, 9)
    expected = passes(ordinary, x)

    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(lean, x, use_reentrant=False)

    def on_cpu(x):
        with torch.autograd.graph.save_on_cpu():
            return lean(x)

    checkpointed.parameters = on_cpu.parameters = lean.parameters
    for way in (checkpointed, on_cpu):
        lean.zero_grad()
        assert all(torch.equal(a, b) for a, b in zip(expected, passes(way, x), strict=True))


def test_fixing_makes_lean_and_unfixing_undoes_it(tmp_path):
    model = xf.create_model("unetd")
    x = torch.randn(2, 3, 96, 96)
    before = kept_for_backward(model, x)
    xf.fix_(model, "ghaar")
    layers = xf.spatial_layers(model).values()
    assert all(is_lean(layer) for layer in layers)
    assert kept_for_backward(model, x) < 0.87 * before
    xf.save(model, tmp_path / "lean.safetensors")
    assert all(
        is_lean(layer)
        for layer in xf.spatial_layers(xf.load(tmp_path / "lean.safetensors")).values()
    )
    torch.save(model.state_dict(), io.BytesIO())
    xf.unfix_(model)
    assert not any(is_lean(layer) for layer in layers)
