"""PyTorch's private names are as we use them, and networks compute the same without them."""

import builtins
import copy
import operator
import sys
from fnmatch import fnmatch

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explainfix as xf
from explainfix import private, recipe
from explainfix.backward.frozen import is_lean, make_ordinary
from explainfix.backward.recompute import make_frugal_
from explainfix.backward.saved import kept_for_backward
from explainfix.recording.graph import functional
from gradients import passes, widening

X = torch.linspace(-9, 9, 2 * 3 * 5 * 5).reshape(2, 3, 5, 5).requires_grad_()
W = torch.ones(6, 3, 1, 1, requires_grad=True)
V = torch.arange(3.0)
MADE = {
    "convolution": F.conv2d(X, W, torch.ones(6), stride=2, padding=1),
    "batch_norm": F.batch_norm(X, None, None, V, training=True),
    "relu": F.relu(X),
    "relu6": F.relu6(X),
    "leaky_relu": F.leaky_relu(X, 0.25),
    "silu": F.silu(X),
}
SAVED = {  # by operation and name
    ("convolution", "input"): X,
    ("convolution", "weight"): W,
    ("convolution", "transposed"): False,
    ("convolution", "groups"): 1,
    ("convolution", "bias_sym_sizes_opt"): (6,),
    ("convolution", "stride"): (2, 2),
    ("convolution", "padding"): (1, 1),
    ("convolution", "dilation"): (1, 1),
    ("convolution", "output_padding"): (0, 0),
    ("batch_norm", "input"): X,
    ("batch_norm", "weight"): V,
    ("batch_norm", "training"): True,
    ("batch_norm", "result1"): X.mean((0, 2, 3)),
    ("batch_norm", "result2"): (X.var((0, 2, 3), correction=0) + 1e-5).rsqrt(),
    ("relu", "result"): MADE["relu"],
    ("relu6", "self"): X,
    ("relu6", "min_val"): 0,
    ("relu6", "max_val"): 6,
    ("leaky_relu", "self"): X,
    ("leaky_relu", "negative_slope"): 0.25,
    ("silu", "self"): X,
}
REPLACED = [
    ("convolution", "input"),
    ("batch_norm", "input"),
    ("relu", "result"),
    ("relu6", "self"),
    ("leaky_relu", "self"),
    ("silu", "self"),
]
GONE = [
    "is_functorch_wrapped_tensor",
    "_forward_hooks",
    "_version",
    *sorted({f"_saved_{name}" for _, name in SAVED}),
    *sorted({f"_raw_saved_{name}" for _, name in REPLACED}),
    "_saved_*",
    "_raw_saved_*",
]


@pytest.mark.parametrize(("operation", "name"), SAVED)
def test_pytorch_has_saved(operation, name):
    node, wanted = MADE[operation].grad_fn, SAVED[operation, name]
    found = private.saved_values(node, name)
    assert found is not None, f"{node.name()} has no _saved_{name} any more"
    same = torch.allclose if isinstance(wanted, torch.Tensor) else operator.eq
    assert same(found[0], wanted), f"_saved_{name} of {node.name()} has become {found[0]}"
    assert name in private.saved_names(node)


@pytest.mark.parametrize(("operation", "name"), REPLACED)
def test_pytorch_has_raw_saved(operation, name):
    node = MADE[operation].grad_fn
    saved = private.saved_variable(node, name)
    assert hasattr(saved, "register_hooks"), f"{node.name()} has no _raw_saved_{name} any more"


def test_pytorch_has_raw_saved_tensors_of_functions_in_python():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.explainfix_keeps = ("input",)
            return x * x

    node = Square.apply(X).grad_fn
    assert private.saved_names(node) == ["input"]
    assert torch.equal(private.saved_values(node, "input")[0], X)
    assert private.saved_values(node, "weight") is None
    saved = private.saved_variable(node, "input")
    assert hasattr(saved, "register_hooks"), "a node in Python has no _raw_saved_tensors any more"


def test_pytorch_has_forward_hooks():
    module = nn.ReLU()
    handle = module.register_forward_hook(print)
    assert private.has_hook(module, print), "a module has no _forward_hooks any more"
    handle.remove()
    assert not private.has_hook(module, print)


def test_pytorch_counts_changes_in_place():
    x = torch.zeros(2)
    before = private.version(x)
    x.add_(1)
    assert private.version(x.detach()) == before + 1, "a tensor has no _version any more"


def test_pytorch_convolves_in_conv_forward():
    class Own(nn.Conv2d):
        def _conv_forward(self, x, weight, bias):
            return x

    assert torch.equal(Own(3, 3, 1)(X), X), "nn.Conv2d does not call _conv_forward any more"
    assert not private.computes_as(Own(3, 3, 1), nn.Conv2d)
    assert private.computes_as(nn.ConvTranspose2d(3, 3, 1), nn.Conv2d, nn.ConvTranspose2d)


def test_pytorch_tells_what_a_transform_computes_with():
    seen = []
    torch.func.vmap(lambda x: seen.append(private.in_transform(x)) or x)(torch.ones(2))
    assert seen == [True]
    assert not private.in_transform(torch.ones(2))


def test_pytorch_has_tree_leaves(monkeypatch):
    from torch.utils._pytree import tree_leaves

    nest = {"b": (X, 3), "a": [W, None]}
    found = [leaf for leaf in tree_leaves(nest) if isinstance(leaf, torch.Tensor)]
    assert list(map(id, private.flat_tensors(nest))) == list(map(id, found))
    monkeypatch.setitem(sys.modules, "torch.utils._pytree", None)
    assert list(map(id, private.flat_tensors(nest))) == [id(X), id(W)]


def test_pytorch_has_schema():
    add = private.schema(torch.ops.aten.add_.Tensor)
    assert [argument.name for argument in add.arguments] == ["self", "other", "alpha"]
    assert add.arguments[2].default_value == 1
    assert [bool(a.alias_info and a.alias_info.is_write) for a in add.arguments] == [1, 0, 0]
    [view] = private.schema(torch.ops.aten.view.default).returns
    assert not view.alias_info.is_write


def test_pytorch_names_the_overload_of_an_operation():
    assert str(torch.ops.aten.add_.Tensor) == "aten.add_.Tensor"
    assert functional(torch.ops.aten.add_.Tensor) is torch.ops.aten.add.Tensor
    assert functional(torch.ops.aten.relu_.default) is torch.ops.aten.relu.default


def test_pytorch_has_dispatch_modes():
    seen = []

    class Mode(private.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **kwargs or {})

    with Mode(), torch.no_grad():
        X + 1
    assert seen == [torch.ops.aten.add.Tensor]


def test_pytorch_has_orig_mod_and_compiled_call_impl():
    module = nn.ReLU()
    assert private.compiled_as(module) is None
    copied = torch.compile(module)
    assert private.compiled_as(copied) == "a copy", "torch.compile keeps no _orig_mod any more"
    module.compile()
    assert private.compiled_as(module) == "in place", "a module has no _compiled_call_impl any more"


@pytest.mark.parametrize("strict", [True, False])
def test_pytorch_has_self_and_strict_in_load_state_dict(strict):
    model, seen = nn.Sequential(nn.ReLU()), []
    model[0].register_load_state_dict_pre_hook(lambda *_: seen.append(private.running_load()))
    model.load_state_dict({}, strict=strict)
    assert seen == [(model, strict)], "load_state_dict is not found in the stack any more"
    assert private.running_load() is None


def test_pytorch_has_load_state_dict_post_hooks():
    module = nn.ReLU()
    module.register_load_state_dict_post_hook(print)
    assert private.has_load_hook(module, print), "a module has no _load_state_dict_post_hooks"
    assert not private.has_load_hook(nn.ReLU(), print)


def test_without_a_load_or_its_hooks_recipes_are_loaded(monkeypatch):
    fixed = nn.Sequential(nn.Conv2d(1, 8, 3))
    xf.fix_(fixed, "ghaar")
    for name, gone in (("has_load_hook", False), ("running_load", None)):
        monkeypatch.setattr(recipe, name, lambda *_, gone=gone: gone)
        model = nn.Sequential(nn.Conv2d(1, 8, 3))
        recipe.carry_recipe(model[0])
        for _ in range(2):
            model.load_state_dict(fixed.state_dict())
        xf.check_fixed(model)


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm2d(8), nn.InstanceNorm2d(8, affine=True), torch.nn.modules.batchnorm._BatchNorm],
    ids=["batch", "instance", "own"],
)
def test_batch_norms_are_told_by_what_they_hold(norm):
    """Not by PyTorch's classes for all of them, which are private."""

    class Own(torch.nn.modules.batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            pass

    norm = Own(8) if isinstance(norm, type) else norm
    model = nn.Sequential(nn.Conv2d(1, 8, 3), norm, nn.Conv2d(8, 1, 3)).eval()
    with torch.no_grad():
        model[2].weight[:, 3:] = 0
        xf.prune_(model, torch.randn(2, 1, 9, 9))
    assert norm.num_features == len(norm.weight) == 3


def test_the_weight_of_a_convolution_is_its_second_input():
    into = [node for node, _ in MADE["convolution"].grad_fn.next_functions]
    assert into[0].variable is X
    assert into[1].variable is W
    assert into[2] is None  # a bias that is not learned
    with torch.autocast("cpu", torch.bfloat16):
        bias = torch.ones(6, requires_grad=True)
        cast = F.conv2d(X, W, bias).grad_fn.next_functions[2][0]
    assert cast.name().startswith("ToCopy")
    assert cast.next_functions[0][0].variable is bias


@pytest.fixture(params=GONE)
def gone(request, monkeypatch):
    """A name, or a pattern of names, that `private` does not find."""

    def fake_getattr(owner, name, *default):
        if not fnmatch(name, request.param):
            return builtins.getattr(owner, name, *default)
        if not default:
            raise AttributeError(name)
        return default[0]

    def fake_dir(owner):
        return [name for name in builtins.dir(owner) if not fnmatch(name, request.param)]

    monkeypatch.setattr(private, "getattr", fake_getattr, raising=False)
    monkeypatch.setattr(private, "dir", fake_dir, raising=False)


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.SiLU])
def test_without_a_name_networks_compute_the_same(activation):
    model = widening(activation)
    xf.fix_(model, "ghaar")
    ordinary = copy.deepcopy(model)
    make_ordinary(ordinary[3])
    make_frugal_(model)
    x = 3 * torch.randn(2, 8, 16, 16)
    for one, other in zip(passes(ordinary, x), passes(model, x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("gone", ["_forward_hooks"], indirect=True)
def test_hooks_that_could_not_be_removed_are_not_added():
    model = widening(nn.ReLU6)
    xf.fix_(model, "ghaar")
    make_frugal_(model)
    assert not is_lean(model[3])
    assert not any(layer._forward_hooks for layer in model)


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("gone", ["_raw_saved_*", "_saved_*"], indirect=True)
def test_without_names_all_that_pytorch_keeps_is_counted():
    model = nn.Sequential(nn.Conv2d(1, 1, 3, bias=False), nn.ReLU())
    xf.fix_(model, "ghaar")
    make_frugal_(model)
    x = torch.ones(1, 1, 10, 10, requires_grad=True)
    assert kept_for_backward(model, x) == 4 * (10 * 10 + 8 * 8)
