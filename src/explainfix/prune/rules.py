"""What operations do to channels, one small rule each: element by element, shapes, pictures."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .graph import Node, Ref
from .state import State, functional, listed, rule, run_on, with_values
from .values import NONE, Value, channels, compact, plain, widened

# ---- element by element ------------------------------------------------------------------------


@rule(
    "add", "sub", "mul", "div", "relu", "silu", "gelu", "sigmoid", "hardswish", "hardsigmoid",
    "hardtanh", "leaky_relu", "celu", "elu", "tanh", "exp", "softplus", "clamp", "clamp_min",
    "clamp_max", "mish", "addcmul", "neg", "sqrt", "rsqrt", "abs", "pow", "relu6", "log_sigmoid",
    "_prelu_kernel", "maximum", "minimum", "square", "erf", "reciprocal", "rsub",
)  # fmt: skip
def pointwise(state: State, node: Node) -> None:
    shape = state.shape_of(node)
    rank = len(shape)
    known = [state.get(ref) for ref in node.inputs]
    aligned = [
        (
            (1,) * (rank - len(v.shape)) + v.shape,
            v.labels.reshape((1,) * (rank - v.labels.dim()) + tuple(v.labels.shape)),
        )
        for v in known
    ]
    varied = {a for _, labels in aligned for a in range(rank) if labels.shape[a] > 1}
    labels: Tensor | None = None
    for full, own in aligned:
        if varied and all(full[a] == 1 for a in varied):
            continue  # one number for all channels
        wide = widened(own, shape, varied)
        if labels is None:
            labels = wide
        else:
            state.tie(*(t.reshape(-1) for t in torch.broadcast_tensors(labels, wide)))
            labels = torch.where(labels == NONE, wide, labels)
    labels = torch.full((1,) * rank, NONE) if labels is None else labels
    consts = {ref: state.get(ref).const for ref in node.inputs}
    try:
        result = functional(node.op)(
            *with_values(node.args, consts.__getitem__),
            **with_values(node.kwargs, consts.__getitem__),
        )
        if str(node.op.overloadpacket).removesuffix("_") == "aten.mul":
            for const in consts.values():  # nought times anything
                result = torch.where(const == 0, 0.0, result)
    except (RuntimeError, TypeError, NotImplementedError):
        result = torch.full((1,) * rank, torch.nan, dtype=torch.float64)
    const = result.double().reshape((1,) * (rank - result.dim()) + tuple(result.shape))
    state.put(node, Value(shape, compact(labels), compact(const)))


# ---- shapes ------------------------------------------------------------------------------------


@rule("alias", "clone", "detach", "contiguous", "_to_copy", "lift_fresh", "dropout")
def same(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    state.put(node, Value(value.shape, value.labels, value.const))


@rule("t", "transpose", "permute", "unsqueeze", "squeeze", "flip", "roll")
def rearrange(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    name = str(node.op.overloadpacket)
    if name == "aten.t" and value.parameter and len(value.shape) == 2:
        state.put(node, Value(value.shape[::-1], value.labels, value.const, value.parameter, True))
        return
    moves = name in ("aten.roll", "aten.flip")
    labels, const = (
        run_on(node, (t.expand(value.shape) if moves else t,)) for t in (value.labels, value.const)
    )
    if name == "aten.squeeze" and labels.dim() != len(state.shape_of(node)):
        labels, const = (
            run_on(node, (t.expand(value.shape),)) for t in (value.labels, value.const)
        )
    state.put(node, Value(state.shape_of(node), compact(labels), compact(const)))


@rule("slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind")
def take(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    name = str(node.op.overloadpacket).removeprefix("aten.")
    place = {"slice": 1, "select": 1, "narrow": 1, "unbind": 1}.get(name, 2)
    axis = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
    axis %= len(value.shape)
    labels = widened(value.labels, value.shape, {axis})
    const = widened(value.const, value.shape, {axis})
    parts, numbers = (listed(run_on(node, (t,))) for t in (labels, const))
    everything = len(node.outputs) == 1 and state.shape_of(node) == value.shape
    if value.labels.shape[axis] > 1 and not everything:
        sizes = [part.shape[axis] if part.dim() == len(value.shape) else 0 for part in parts]
        if state.trusting and len(parts) > 1 and len(set(sizes)) == 1 and sizes[0]:
            for part in parts[1:]:  # equal parts stay equal
                state.tie(parts[0].reshape(-1), part.reshape(-1))
        else:
            state.pin(value.labels)
    for index, (part, number) in enumerate(zip(parts, numbers, strict=True)):
        state.put(node, Value(state.shape_of(node, index), compact(part), compact(number)), index)


@rule("cat", "stack")
def join(state: State, node: Node) -> None:
    parts = [state.get(ref) for ref in node.inputs]
    shape = state.shape_of(node)
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    stacking = str(node.op.overloadpacket) == "aten.stack"
    parts = [part for part in parts if math.prod(part.shape)] or parts
    rank = len(parts[0].shape)
    axis %= len(shape)
    results = []
    for which in ("labels", "const"):
        tensors = [getattr(part, which) for part in parts]
        open_axes = {a for t in tensors for a in range(rank) if t.shape[a] > 1}
        if not stacking:
            open_axes.add(axis)
        wide = [widened(t, p.shape, open_axes) for t, p in zip(tensors, parts, strict=True)]
        results.append(torch.stack(wide, axis) if stacking else torch.cat(wide, axis))
    labels, const = results
    state.put(node, Value(shape, compact(labels), compact(const)))


@rule("view", "_unsafe_view", "reshape", "flatten")
def reshape(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    shape = state.shape_of(node)
    if shape == value.shape:
        state.put(node, Value(shape, value.labels, value.const))
        return
    if value.parameter and value.labels.numel() == 1:
        state.put(node, plain(shape))
        return
    labels = compact(value.labels.expand(value.shape).reshape(shape))
    const = compact(value.const.expand(value.shape).reshape(shape))
    split = [axis for axis in range(len(shape)) if labels.shape[axis] > 1]
    if len(split) > 1:
        if not state.trusting:
            state.pin(labels)
        else:  # one axis follows the number of channels, the largest; the others are written down
            main = max(split, key=lambda axis: shape[axis])
            for axis in split:
                if axis != main:
                    first = labels.narrow(axis, 0, 1).expand_as(labels)
                    state.tie(first.reshape(-1), labels.reshape(-1))
    state.put(node, Value(shape, labels, const))


@rule("expand")
def expand(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    lead = (1,) * (len(shape) - len(value.shape))
    labels = value.labels.reshape(lead + tuple(value.labels.shape))
    const = value.const.reshape(lead + tuple(value.const.shape))
    state.put(node, Value(shape, labels, const))


@rule("constant_pad_nd", "reflection_pad2d", "replication_pad2d")
def pad(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    changed = [a for a in range(len(shape)) if shape[a] != value.shape[a]]
    constant = str(node.op.overloadpacket) == "aten.constant_pad_nd"
    fill = float(node.args[2]) if constant and len(node.args) > 2 else 0.0
    if any(value.labels.shape[a] > 1 for a in changed):
        if not constant:
            state.bar(node)
            return
        sides = node.args[1]
        labels = torch.constant_pad_nd(value.labels.expand(value.shape), sides, NONE)
        const = torch.constant_pad_nd(value.const.expand(value.shape), sides, fill)
        state.put(node, Value(shape, compact(labels), compact(const)))
        return
    const = value.const
    if constant:
        const = torch.where(const == fill, const, torch.nan)
    state.put(node, Value(shape, value.labels, const))


# ---- pictures ----------------------------------------------------------------------------------


@rule(
    "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d",
    "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "_adaptive_avg_pool3d",
    "max_pool3d_with_indices", "avg_pool3d", "upsample_nearest1d", "upsample_linear1d",
    "upsample_trilinear3d", "upsample_nearest3d", "avg_pool1d", "_upsample_bilinear2d_aa",
)  # fmt: skip
def per_picture(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    held = value.along(1)
    if held is None:
        state.bar(node)
        return
    labels, const = held
    if "avg_pool" in str(node.op) and "adaptive" not in str(node.op):
        const = torch.where(const == 0, const, torch.nan)  # the border may count padding
    state.put(node, channels(shape, 1, labels, const))
    for index in range(1, len(node.outputs)):
        state.put(node, plain(state.shape_of(node, index)), index)


@rule("mean", "sum", "amax", "amin")
def reduce(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    dims = node.args[1] if len(node.args) > 1 else None
    if dims is None or isinstance(dims, torch.dtype):
        state.bar(node)
        return
    dims = [d % len(value.shape) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
    if any(value.labels.shape[d] > 1 for d in dims):
        state.bar(node)
        return
    keep = len(shape) == len(value.shape)
    labels, const = value.labels, value.const
    if str(node.op.overloadpacket) == "aten.sum" or any(const.shape[d] > 1 for d in dims):
        const = torch.where(const == 0, const, torch.nan)
        for d in dims:
            const = const.sum(d, keepdim=True)
    if not keep:
        for d in sorted(dims, reverse=True):
            labels, const = labels.squeeze(d), const.squeeze(d)
    state.put(node, Value(shape, labels, compact(const)))


@rule("native_dropout")
def dropout(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    const = torch.where(value.const == 0, value.const, torch.nan)
    state.put(node, Value(value.shape, value.labels, const))
    state.put(node, plain(state.shape_of(node, 1)), 1)


@rule("_softmax", "_log_softmax")
def softmax(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    if value.labels.shape[node.args[1] % len(value.shape)] > 1:
        state.bar(node)
        return
    nothing = torch.full((1,) * len(value.shape), torch.nan, dtype=torch.float64)
    state.put(node, Value(value.shape, value.labels, nothing))


@rule("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
def batch_norm(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    held = value.along(1)
    training = str(node.op.overloadpacket) != "aten._native_batch_norm_legit_no_training" and bool(
        node.args[5]
    )
    statistics = all(isinstance(ref, Ref) for ref in node.args[3:5])
    if held is None or not statistics:
        state.bar(node)
        return
    labels, const = held
    for ref in node.args[1:5]:
        state.assign(ref, 0, labels)
    weight, bias, mean, var = (
        state.graph.tensors[ref.number].detach().double().cpu() if isinstance(ref, Ref) else None
        for ref in node.args[1:5]
    )
    eps = node.args[7] if len(node.args) > 7 else node.args[6]
    assert mean is not None
    assert var is not None
    # In training a constant is its own mean, and nothing is left of it.
    const = const * 0 if training else (const - mean) / (var + eps).sqrt()
    const = const if weight is None else const * weight
    const = const if bias is None else const + bias
    state.put(node, channels(value.shape, 1, labels, const))
    for index in range(1, len(node.outputs)):
        state.put(node, plain(state.shape_of(node, index)), index)
