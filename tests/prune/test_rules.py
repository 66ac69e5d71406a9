"""Every rule in a small network: what goes is as expected, and the output is the same."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

import explainfix as xf
from explainfix.prune import rule
from explainfix.prune.state import RULES
from explainfix.prune.values import Value

aten = torch.ops.aten
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}

# Not in evaluation on a CPU.
ELSEWHERE = {"cudnn_batch_norm", "native_dropout"}


@dataclass
class Case:
    """A function of eight channels, of which some are zero, and number 2 is the constant 0.7.

    `left` says how many stay: 5 if zeros and constants go, 6 if only zeros do, 8 if none.
    """

    run: Callable
    left: int = 5
    rank: int = 2
    zero: Sequence[int] = (1, 5)
    modules: Callable[[], dict] = field(default=dict)
    sizes: bool = True  # it takes pictures of another size
    size: int | None = None  # of the example


def doubled_in_part(x):
    x = x.clone()
    x[:, :, 1:].mul_(2)
    return x


class Net(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.run = case.run
        self.stem = CONVOLUTIONS[case.rank](3, 8, 3, padding=1, bias=False)
        self.norm = NORMS[case.rank](8)
        with torch.no_grad():
            for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean):
                tensor.uniform_(0.5, 1.5)
            self.stem.weight[[*case.zero, 2]] = 0
            for tensor in (self.norm.bias, self.norm.running_mean):
                tensor[[*case.zero]] = 0
            self.norm.running_mean[2] = 0
            self.norm.bias[2] = 0.7
        for name, module in case.modules().items():
            setattr(self, name, module)
        self.double().eval()
        with torch.no_grad():
            made = self.body(example(case))
        heads = {2: nn.Linear, 3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
        more = () if made.dim() == 2 else (1,)
        self.head = heads[made.dim()](made.shape[1], 3, *more)
        self.double().eval()

    def body(self, x):
        return self.run(self, self.norm(self.stem(x)))

    def forward(self, x):
        return self.head(self.body(x))


def example(case, batch=2, size=None):
    size = size or case.size or {1: 12, 2: 8, 3: 4}[case.rank]
    return torch.randn(batch, 3, *[size] * case.rank, dtype=torch.float64)


def same(op):
    return lambda net, x: op(x)


def kept(op, **given):
    """For a function under which a constant is still one: zeros and constants go."""
    return Case(same(op), **given)


def positive(op):
    return kept(lambda x: op(x.square() + 0.1))


def unit(op):
    return kept(lambda x: op(x.tanh() * 0.9))


def paired(op):
    return kept(lambda x: op(x, x.sigmoid() + 0.2))


def false(op, left=5):
    """A Boolean result that is false for zero, and with 5 left for the constant as well."""
    return Case(lambda net, x: op(x).to(x.dtype), left)


def along(op, left=5, **given):
    """A reduction over the picture."""
    return Case(same(op), left, **given)


def inference(op, **given):
    """Recorded as one operation only if no gradient could ever be taken."""

    def run(net, x):
        with torch.inference_mode():
            return op(x)

    return Case(run, **given)


def indexed(places):
    return torch.tensor(places)


def tokens(x):
    return x.flatten(2).transpose(1, 2)[:, None].contiguous()


def unpooled(pool, unpool):
    def run(net, x):
        values, places = pool(x, 2, return_indices=True)
        return unpool(values, places, 2)

    return run


def grid(x, rank):
    theta = torch.eye(rank, rank + 1, dtype=x.dtype).expand(len(x), -1, -1) * 0.8
    return F.affine_grid(theta, [len(x), 1, *x.shape[2:]], align_corners=False)


BOXES = torch.tensor([[0, 0, 0, 5, 6], [1, 1, 1, 7, 7]], dtype=torch.float64)
UNARY = ["relu", "silu", "gelu", "sigmoid", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu",
         "celu", "elu", "tanh", "exp", "softplus", "mish", "neg", "abs", "erf", "erfc", "sin",
         "cos", "tan", "sinh", "cosh", "atan", "expm1", "exp2", "softshrink", "nan_to_num",
         "sign", "sgn", "floor", "ceil", "trunc", "frac", "hardshrink", "alias",
         "clone", "detach"]  # fmt: skip
POSITIVE = ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p"]
PICTURES = {
    1: {
        "upsample_nearest1d": lambda x: F.interpolate(x, scale_factor=2),
        "_upsample_nearest_exact1d": lambda x: F.interpolate(
            x, scale_factor=2, mode="nearest-exact"
        ),
        "upsample_linear1d": lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
        "reflection_pad1d": lambda x: F.pad(x, (1, 2), mode="reflect"),
        "replication_pad1d": lambda x: F.pad(x, (1, 2), mode="replicate"),
    },
    2: {
        "max_pool2d_with_indices": lambda x: F.max_pool2d(x, 3, 2, 1),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
        "_adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
        "upsample_nearest2d": lambda x: F.interpolate(x, scale_factor=2),
        "_upsample_nearest_exact2d": lambda x: F.interpolate(
            x, scale_factor=2, mode="nearest-exact"
        ),
        "upsample_bilinear2d": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "upsample_bicubic2d": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        "_upsample_bilinear2d_aa": lambda x: F.interpolate(
            x, scale_factor=0.5, mode="bilinear", antialias=True
        ),
        "_upsample_bicubic2d_aa": lambda x: F.interpolate(
            x, scale_factor=0.5, mode="bicubic", antialias=True
        ),
        "reflection_pad2d": lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"),
        "replication_pad2d": lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"),
        "rot90": lambda x: torch.rot90(x, 1, (2, 3)),
        "flip": lambda x: x.flip(1, 2),
    },
    3: {
        "max_pool3d_with_indices": lambda x: F.max_pool3d(x, 2),
        "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x, 2),
        "_adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, 2),
        "upsample_nearest3d": lambda x: F.interpolate(x, scale_factor=2),
        "_upsample_nearest_exact3d": lambda x: F.interpolate(
            x, scale_factor=2, mode="nearest-exact"
        ),
        "upsample_trilinear3d": lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
        "reflection_pad3d": lambda x: F.pad(x, (1,) * 6, mode="reflect"),
        "replication_pad3d": lambda x: F.pad(x, (1,) * 6, mode="replicate"),
    },
}
CASES: dict[str, Case | list[Case]] = {
    **{name: kept(getattr(aten, name)) for name in UNARY},
    **{name: positive(getattr(aten, name)) for name in POSITIVE},
    **{name: unit(getattr(aten, name)) for name in ("asin", "acos")},
    **{
        name: kept(op, rank=rank) for rank, pictures in PICTURES.items()
        for name, op in pictures.items()
    },
    # Element by element.
    **{name: paired(getattr(aten, name)) for name in
       ("add", "sub", "mul", "div", "maximum", "minimum", "hypot")},
    "round": kept(torch.round),
    "rsub": kept(lambda x: 1 - x),
    "pow": [kept(lambda x: x**3), positive(lambda x: x**-1.5), kept(lambda x: 2**x)],
    "clamp": kept(lambda x: x.clamp(-0.3, 0.5)),
    "clamp_min": kept(lambda x: x.clamp_min(0.2)),
    "clamp_max": kept(lambda x: x.clamp_max(0.2)),
    "addcmul": kept(lambda x: torch.addcmul(x, x, x, value=0.3)),
    "addcdiv": kept(lambda x: torch.addcdiv(x, x, x.exp())),
    "logit": kept(lambda x: x.sigmoid().logit()),
    "xlogy": kept(lambda x: torch.xlogy(x, x.exp())),
    "lerp": [kept(lambda x: torch.lerp(x, x.exp(), 0.3)),
             kept(lambda x: torch.lerp(x, x.exp(), x.sigmoid()))],
    "log_sigmoid_forward": kept(F.logsigmoid),
    "threshold": kept(lambda x: F.threshold(x, 0.1, -0.2)),
    "fmod": kept(lambda x: torch.fmod(x, 0.6)),
    "remainder": kept(lambda x: x % 0.6),
    "floor_divide": kept(lambda x: x // 0.6),
    "atan2": Case(same(lambda x: torch.atan2(x, x.exp())), left=6),
    "ne": false(lambda x: x != 0, 6),
    "lt": false(lambda x: x < 0),
    "gt": false(lambda x: x > 0, 6),
    "le": false(lambda x: x <= -0.2),
    "ge": [false(lambda x: x >= 0.2, 6), false(lambda x: x >= 0.7000001, 6)],
    "logical_and": false(lambda x: torch.logical_and(x, x > 0.1), 6),
    "logical_or": false(lambda x: torch.logical_or(x > 0.2, x > 0.1), 6),
    "logical_xor": false(lambda x: torch.logical_xor(x > 0.9, x > 0.1), 6),
    "logical_not": false(lambda x: torch.logical_not(x + 1)),
    "isnan": false(torch.isnan),
    "isinf": false(torch.isinf),
    # Not known: what is equal up to rounding, and bits, which depend on the type.
    "eq": Case(lambda net, x: (x == 0.7).to(x.dtype) * x, left=6),
    "bitwise_not": Case(lambda net, x: (~(x > 0)).to(x.dtype), left=8),
    "bitwise_and": Case(lambda net, x: ((x > 0) & (x < 1)).to(x.dtype) * x, left=6),
    "bitwise_or": Case(lambda net, x: ((x > 0) | (x < 1)).to(x.dtype) * x, left=6),
    "bitwise_xor": Case(lambda net, x: ((x > 0) ^ (x < 1)).to(x.dtype) * x, left=6),
    "where": [
        Case(same(lambda x: torch.where(x > 0, x, 0.1 * x)), left=6),
        Case(same(lambda x: torch.where(x > 0, 1.0, x)), left=6),
        Case(same(lambda x: torch.where(x.mean(1, keepdim=True) > 0, x, -x)), left=8),
    ],
    "masked_fill": [
        Case(same(lambda x: x.masked_fill(x > 0.5, 0.0)), left=6),
        Case(same(lambda x: x.masked_fill(x > 0.5, torch.tensor(0.0, dtype=x.dtype))), left=6),
    ],
    "glu": [Case(same(lambda x: F.glu(x, 1)), left=6),
            Case(same(lambda x: F.glu(x, 1)), left=8, zero=(4, 5)),
            Case(same(lambda x: F.glu(x, 2)))],
    "_prelu_kernel": [Case(lambda net, x: net.act(x), modules=lambda: {"act": nn.PReLU()}),
                      Case(lambda net, x: net.act(x), modules=lambda: {"act": nn.PReLU(8)})],
    "rrelu_with_noise": Case(same(F.rrelu), left=6),
    "copy": Case(same(lambda x: x.neg().copy_(x)), left=6),
    "fill": Case(same(lambda x: x + x.exp().fill_(2))),
    "zero": Case(same(lambda x: x + x.exp().zero_())),
    # Reductions.
    "mean": [along(lambda x: x.mean((2, 3))), Case(same(lambda x: x - x.mean((1, 2, 3), True)), 8),
             Case(same(lambda x: x * x.mean()), 8)],
    "amax": along(lambda x: x.amax((2, 3))),
    "amin": along(lambda x: x.amin((2, 3), keepdim=True)),
    "max": [along(lambda x: x.max(2)[0]), along(lambda x: x * x.max(), 8)],
    "min": [along(lambda x: x.min(3, keepdim=True)[0]), along(lambda x: x * x.min(), 8)],
    "aminmax": along(lambda x: torch.aminmax(x, dim=2)[1]),
    "median": along(lambda x: x.median(2)[0]),
    "kthvalue": along(lambda x: x.kthvalue(2, 3)[0]),
    "argmax": along(lambda x: x * x.argmax(2, keepdim=True), 6),
    "argmin": along(lambda x: x * x.argmin(3, keepdim=True), 6),
    "logsumexp": along(lambda x: x * x.logsumexp((2, 3), keepdim=True), 6),
    "prod": along(lambda x: x.prod(2), 6),
    "all": along(lambda x: (x.abs() > 0.1).all(2).to(x.dtype), 6),
    "var": [along(lambda x: x.var((2, 3), correction=0)),
            along(lambda x: x * x.var(2, keepdim=True), 6)],
    "std": along(lambda x: x * x.std((2, 3), keepdim=True), 6),
    "var_mean": along(lambda x: torch.var_mean(x, (2, 3), correction=0)[1]),
    "std_mean": along(lambda x: torch.std_mean(x, (2, 3))[1]),
    "sum": [
        along(lambda x: x.sum((2, 3)), 6),
        along(lambda x: x.sum(1, keepdim=True) * x, 6),
        along(lambda x: x.sum() * x, 6),
        along(lambda x: x.sum((2, 3)), 6, size=1),  # of one constant, elsewhere of many
        along(lambda x: x * x.sum(0), 6),
    ],
    "nansum": along(lambda x: x.nansum(2), 6),
    "count_nonzero": along(lambda x: torch.count_nonzero(x, 2).to(x.dtype), 6),
    "any": along(lambda x: (x > 0).any(1, keepdim=True) * x, 6),
    "linalg_vector_norm": [along(lambda x: x * x.norm(dim=1, keepdim=True), 6),
                           along(lambda x: torch.linalg.vector_norm(x, dim=(2, 3)), 6),
                           along(lambda x: x * torch.linalg.vector_norm(x, ord=torch.inf), 6)],
    "norm": along(lambda x: aten.norm(x, 2, [1], True) * x, 6),
    "cumsum": [along(lambda x: x.cumsum(2), 6), along(lambda x: x.cumsum(1), 8)],
    "cumprod": along(lambda x: x.cumprod(2), 6),
    "cummax": along(lambda x: x.cummax(2)[0]),
    "cummin": along(lambda x: x.cummin(2)[0]),
    "logcumsumexp": along(lambda x: x * x.logcumsumexp(2), 6),
    "sort": [along(lambda x: x.sort(2)[0]), along(lambda x: x.sort(1)[0], 8)],
    "topk": along(lambda x: x.topk(2, 2)[0]),
    "_softmax": [along(lambda x: x * x.softmax(2), 6), along(lambda x: x.softmax(1), 8)],
    "_log_softmax": along(lambda x: x * x.log_softmax(2), 6),
    # Pictures.
    "avg_pool3d": [Case(same(lambda x: F.avg_pool3d(x, 3, 1, 1)), left=6, rank=3),
                   kept(lambda x: F.avg_pool3d(x, 3, 1, 1, count_include_pad=False), rank=3),
                   Case(same(lambda x: F.local_response_norm(x, 3)), left=8)],
    "avg_pool2d": [Case(same(lambda x: F.avg_pool2d(x, 3, 1, 1)), left=6),
                   kept(lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True)),
                   Case(same(lambda x: F.avg_pool2d(x, 2, divisor_override=3)), left=6)],
    "max_unpool2d": Case(unpooled(F.max_pool2d, F.max_unpool2d), left=6),
    "max_unpool3d": Case(unpooled(F.max_pool3d, F.max_unpool3d), left=6, rank=3),
    "fractional_max_pool2d": Case(
        same(lambda x: F.fractional_max_pool2d(
            x, 2, 3, _random_samples=x.flatten(2)[..., :2].sigmoid())),
    ),
    "fractional_max_pool3d": Case(
        same(lambda x: F.fractional_max_pool3d(
            x, 2, 2, _random_samples=x.flatten(2)[..., :3].sigmoid())),
        rank=3,
    ),
    "grid_sampler_2d": [
        Case(same(lambda x: F.grid_sample(x, grid(x, 2), align_corners=False)), left=6),
        Case(
            lambda net, x: F.grid_sample(x, F.affine_grid(
                net.where(x).mean((2, 3)).view(-1, 2, 3), [len(x), 1, *x.shape[2:]],
                align_corners=False), align_corners=False),
            left=6, modules=lambda: {"where": nn.Conv2d(8, 6, 1)}),
    ],
    "grid_sampler_3d": Case(
        same(lambda x: F.grid_sample(x, grid(x, 3), align_corners=False)), left=6, rank=3),
    "im2col": [kept(lambda x: F.unfold(x, 3)), Case(same(lambda x: F.unfold(x, 3, padding=1)), 6)],
    "col2im": Case(same(lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[2:], 2, stride=2)), 6),
    "constant_pad_nd": Case(same(lambda x: F.pad(x, (1, 1))), left=6),
    "unfold": kept(lambda x: x.unfold(2, 3, 1)),
    "tril": Case(same(torch.tril), left=6),
    "triu": Case(same(torch.triu), left=6),
    # Frequencies.
    "_fft_r2c": Case(same(lambda x: torch.fft.rfft2(x).abs()), left=6),
    "_fft_c2r": Case(same(lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2j)), left=6),
    "_fft_c2c": Case(same(lambda x: torch.fft.fft(torch.fft.rfft2(x), dim=2).abs()), left=6),
    "view_as_real": Case(same(lambda x: torch.view_as_real(torch.fft.rfft2(x))), left=6),
    "view_as_complex": Case(
        same(lambda x: torch.view_as_complex(torch.stack([x, x], -1)).abs()), left=6),
    # Indices.
    "index": [
        kept(lambda x: x[:, :, [0, 2, 1]]),
        kept(lambda x: x[:, :, [0, 2], [1, 3]]),
        Case(same(lambda x: x[[0, 1], :, [1, 3]])),
        Case(same(lambda x: x[:, [1, 5, 2, 0, 3, 4]]), left=8),
    ],
    "index_select": [kept(lambda x: x.index_select(2, indexed([0, 2]))),
                     Case(same(lambda x: x.index_select(1, indexed([0, 2, 5]))), left=8)],
    "embedding": [
        Case(lambda net, x: x + net.e(torch.arange(len(x)) % 4)[:, :, None, None],
             left=8, modules=lambda: {"e": nn.Embedding(4, 8)}),
        Case(lambda net, x: net.e(x.argmax(1)).movedim(-1, 1), left=8,
             modules=lambda: {"e": nn.Embedding(8, 4)}),
        Case(lambda net, x: x * net.e(torch.arange(len(x)) % 4)[:, :, None, None],
             left=6, modules=lambda: {"e": nn.Embedding(4, 8)}),
    ],
    "gather": kept(lambda x: x.gather(2, x.argsort(2))),
    # Regions.
    "torchvision.roi_align": Case(
        same(lambda x: torchvision.ops.roi_align(x, BOXES, 2)), left=6),
    "torchvision.roi_pool": Case(same(lambda x: torchvision.ops.roi_pool(x, BOXES, 2)), left=6),
    "torchvision.ps_roi_align": Case(
        same(lambda x: torchvision.ops.ps_roi_align(x, BOXES, 2)), left=4, zero=(4, 5, 6, 7)),
    "torchvision.ps_roi_pool": Case(
        same(lambda x: torchvision.ops.ps_roi_pool(x, BOXES, 2)), left=4, zero=(4, 5, 6, 7)),
    "torchvision.deform_conv2d": Case(
        lambda net, x: torchvision.ops.deform_conv2d(
            x, net.offset(x) * 0.1, net.conv.weight, net.conv.bias, padding=1),
        left=6,
        modules=lambda: {"offset": nn.Conv2d(8, 18, 1), "conv": nn.Conv2d(8, 6, 3)},
    ),
    # Layers.
    "convolution": Case(lambda net, x: net.conv(x), modules=lambda: {"conv": nn.Conv2d(8, 6, 1)}),
    "addmm": Case(lambda net, x: net.layer(x.mean((2, 3))),
                  modules=lambda: {"layer": nn.Linear(8, 6)}),
    "mm": Case(lambda net, x: net.layer(x.mean((2, 3))), left=6,
               modules=lambda: {"layer": nn.Linear(8, 6, bias=False)}),
    "bmm": [
        Case(same(lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2)), left=8),
        Case(same(lambda x: x.flatten(2).transpose(1, 2) @ x.flatten(2)), left=6, sizes=False),
        Case(same(lambda x: x.flatten(2) @ x.mean(1).flatten(1).softmax(1)[:, :, None]), left=8),
        Case(same(lambda x: x.flatten(2) @ x.sum(1).flatten(1).tanh()[:, :, None]), left=6),
    ],
    "native_batch_norm": [
        Case(lambda net, x: net.n(x), modules=lambda: {"n": nn.BatchNorm2d(8)}),
        Case(lambda net, x: net.n(x), modules=lambda: {"n": nn.InstanceNorm2d(8, affine=True)}),
        Case(lambda net, x: F.batch_norm(
            x, net.n.running_mean, net.n.running_var, x.std((0, 2, 3)), net.n.bias),
            left=8, modules=lambda: {"n": nn.BatchNorm2d(8)}),
    ],
    "_native_batch_norm_legit_no_training": Case(
        lambda net, x: aten._native_batch_norm_legit_no_training(
            x, net.n.weight, net.n.bias, net.n.running_mean, net.n.running_var, 0.1, 1e-5)[0],
        modules=lambda: {"n": nn.BatchNorm2d(8)},
    ),
    "native_group_norm": [
        Case(lambda net, x: net.n(x), left=6, zero=(4, 5),
             modules=lambda: {"n": nn.GroupNorm(4, 8)}),
        Case(lambda net, x: net.n(x), left=8, modules=lambda: {"n": nn.GroupNorm(4, 8)}),
    ],
    "native_layer_norm": [
        Case(lambda net, x: x * net.n(x), left=6, sizes=False,
             modules=lambda: {"n": nn.LayerNorm([8, 8])}),
        Case(lambda net, x: net.n(x.movedim(1, -1)).movedim(-1, 1), left=8,
             modules=lambda: {"n": nn.LayerNorm(8)}),
    ],
    # Tensors that are made to fit, and noise, of which each number is drawn for its place.
    "zeros": Case(same(lambda x: x + torch.zeros(x.shape, dtype=x.dtype))),
    "ones": Case(same(lambda x: x * torch.ones(x.shape, dtype=x.dtype))),
    "full": Case(same(lambda x: x + torch.full(x.shape, 0.3, dtype=x.dtype))),
    "empty": Case(same(lambda x: torch.empty(x.shape, dtype=x.dtype).copy_(x)), left=6),
    "new_zeros": Case(same(lambda x: x + x.new_zeros(x.shape))),
    "new_ones": Case(same(lambda x: x * x.new_ones(x.shape))),
    "new_full": Case(same(lambda x: x + x.new_full(x.shape, 0.3))),
    "new_empty": Case(same(lambda x: x.new_empty(x.shape).copy_(x)), left=6),
    "zeros_like": Case(same(lambda x: x + torch.zeros_like(x))),
    "ones_like": Case(same(lambda x: x * torch.ones_like(x))),
    "full_like": Case(same(lambda x: x + torch.full_like(x, 0.3))),
    "empty_like": Case(same(lambda x: torch.empty_like(x).copy_(x)), left=6),
    "rand_like": Case(same(lambda x: x + 0 * torch.rand_like(x)), left=8),
    "randn_like": Case(same(lambda x: x + 0 * torch.randn_like(x)), left=8),
    "bernoulli": Case(same(lambda x: x + 0 * torch.bernoulli(x.sigmoid())), left=8),
    "uniform": Case(same(lambda x: x + 0 * torch.empty_like(x).uniform_()), left=8),
    "normal": Case(same(lambda x: x + 0 * torch.empty_like(x).normal_()), left=8),
    "exponential": Case(same(lambda x: x + 0 * torch.empty_like(x).exponential_()), left=8),
    "index_put": Case(same(lambda x: torch.zeros_like(x).index_put((torch.tensor([0]),), x[:1])),
                      left=6),
    "write_back": Case(same(lambda x: doubled_in_part(x)), left=6),
    # Moving elements.
    "_to_copy": kept(lambda x: x.to(torch.float32).double()),
    "lift_fresh": Case(same(lambda x: x * torch.tensor(2.0, dtype=x.dtype)), left=6),
    "t": kept(lambda x: x.mean((2, 3)).t().t()),
    "transpose": kept(lambda x: x.transpose(2, 3)),
    "permute": kept(lambda x: x.permute(1, 0, 2, 3).permute(1, 0, 3, 2)),
    "unsqueeze": kept(lambda x: x.unsqueeze(2)),
    "squeeze": kept(lambda x: x.mean(2, keepdim=True).squeeze(2)),
    "roll": kept(lambda x: x.roll(1, 2)),
    "slice": [kept(lambda x: x[:, :, 1:3]), Case(same(lambda x: x[:, :6]), left=3)],
    "select": [kept(lambda x: x[:, :, 1]), Case(same(lambda x: x * x[:, 0].unsqueeze(1)), left=8)],
    "unsafe_split": kept(lambda x: x.unsafe_split(2, 2)[1]),
    "split": kept(lambda x: x.split(2, 2)[1]),
    "split_with_sizes": kept(lambda x: x.split([1, x.shape[2] - 1], 2)[1]),
    "unbind": kept(lambda x: x.unbind(2)[1]),
    "cat": kept(lambda x: torch.cat([x, x.exp()], 1)),
    "stack": kept(lambda x: torch.stack([x, x], 2)),
    "view": kept(lambda x: x.contiguous().view(len(x), -1, x.shape[2] * x.shape[3])),
    "_unsafe_view": kept(lambda x: aten._unsafe_view(x, x.flatten(2).shape)),
    "repeat": kept(lambda x: x.repeat(1, 2, 1, 1)),
    "expand": kept(lambda x: x.mean(2, keepdim=True).expand_as(x)),
    "pixel_shuffle": Case(same(lambda x: F.pixel_shuffle(x, 2)), left=4, zero=(4, 5, 6, 7)),
    "pixel_unshuffle": kept(lambda x: F.pixel_unshuffle(x, 2)),
    "native_channel_shuffle": Case(same(lambda x: torch.native_channel_shuffle(x, 2)), left=6),
    # Composed of others, unless no gradient can be taken.
    "contiguous": inference(lambda x: x.transpose(2, 3).contiguous()),
    "dropout": inference(lambda x: F.dropout(x, training=False)),
    "narrow": inference(lambda x: x.narrow(2, 1, 3)),
    "chunk": inference(lambda x: x.chunk(2, 2)[0]),
    "reshape": inference(lambda x: x.reshape(len(x), -1, x.shape[2] * x.shape[3])),
    "flatten": inference(lambda x: x.flatten(2)),
    "channel_shuffle": Case(same(lambda x: F.channel_shuffle(x, 2)), left=6),
}  # fmt: skip

SINGLE = [
    (f"{name}-{number}" if number else name, name, case)
    for name, cases in CASES.items()
    for number, case in enumerate(cases if isinstance(cases, list) else [cases])
]


@pytest.mark.parametrize(("name", "case"), [c[1:] for c in SINGLE], ids=[c[0] for c in SINGLE])
def test_a_rule_lets_go_what_it_should_and_no_more(name, case, monkeypatch):
    torch.manual_seed(0)
    called = []

    def noting(state, node, rule=RULES[name]):
        called.append(name)
        rule(state, node)

    monkeypatch.setitem(RULES, name, noting)
    net = Net(case)
    twin = copy.deepcopy(net)
    x = example(case)
    xf.prune_(net, x)
    assert called, f"{name} was not recorded"
    others = [x, example(case), example(case, batch=3)]
    if case.sizes:
        others.append(example(case, size=x.shape[2] + 4))
    for other in others:
        with torch.no_grad():
            wanted, got = twin(other), net(other)
        assert wanted.isfinite().all()
        assert float((wanted - got).abs().max()) <= 1e-9 * float(wanted.abs().max())
    assert net.stem.out_channels == case.left


def test_every_rule_has_a_case():
    # Not those of one's own, which other tests may have added.
    ours = {name for name, rule in RULES.items() if rule.__module__.startswith("explainfix.")}
    assert ours - set(CASES) - ELSEWHERE == set()


class TestRulesOfOnesOwn:
    """A rule for somebody's own operation is found by its name."""

    @pytest.fixture
    def operation(self):
        @torch.library.custom_op("explainfix_tests::soften", mutates_args=())
        def soften(x: torch.Tensor) -> torch.Tensor:
            return x / (1 + x.abs())

        names = set(RULES)
        yield soften
        for name in set(RULES) - names:
            del RULES[name]

    def network(self, operation):
        torch.manual_seed(0)
        return Net(Case(same(operation))).double().eval()

    def test_lets_go_what_would_stay(self, operation):
        model = self.network(operation)
        report = xf.prune_(model, torch.randn(1, 3, 8, 8).double())
        assert report.params_kept == 1
        assert "explainfix_tests.soften" in str(report)

        @rule("explainfix_tests.soften")
        def soften(state, node):
            value = state.get(node.inputs[0])
            state.put(node, Value(value.shape, value.labels, value.const / (1 + value.const.abs())))

        twin = copy.deepcopy(model)
        assert xf.prune_(model, torch.randn(1, 3, 8, 8).double()).params_kept < 1
        x = torch.randn(2, 3, 11, 11).double()
        torch.testing.assert_close(model(x), twin(x))

    def test_a_name_that_is_taken_is_refused(self):
        with pytest.raises(ValueError, match="a rule for 'add' already"):
            rule("add", "explainfix_tests.other")(lambda state, node: None)
        assert "explainfix_tests.other" not in RULES
