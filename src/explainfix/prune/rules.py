"""What each operation does to channels: one small rule per operation, found by its ATen name.

An operation without a rule is a barrier: the channels that enter it stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from .graph import Graph, Node, Ref
from .values import NONE, Value, channels, compact, plain, widened

Rule = Callable[["State", Node], None]
RULES: dict[str, Rule] = {}


@dataclass
class Mixing:
    """An operation whose every output channel is a weighted sum over input channels.

    `uses` tells which output has a weight for which input; `const` is the inputs' constants.
    """

    node: Node
    outputs: Tensor
    inputs: Tensor
    uses: Tensor  # (outputs, inputs)
    sums: Tensor  # (outputs, inputs): what a constant input of one adds to an output
    const: Tensor
    exact: bool  # it adds that everywhere, at the border of the image as well
    weight: str
    bias: str | None


@dataclass
class Barrier:
    """An operation that was not understood, and how many channels stay because of it."""

    operation: str
    module: str
    channels: int


@dataclass
class State:
    """Everything found so far, filled in by the rules as they walk through the graph."""

    graph: Graph
    trusting: bool  # reshapes and splits follow the number of channels that they meet
    values: dict[int, Value] = field(default_factory=dict)
    count: int = 0  # channels numbered so far
    ties: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    pinned: list[Tensor] = field(default_factory=list)
    axes: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    grouped: dict[str, Tensor] = field(default_factory=dict)  # weight → a label per group
    mixings: list[Mixing] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)

    def fresh(self, count: int) -> Tensor:
        """New labels."""
        self.count += count
        return torch.arange(self.count - count, self.count)

    def get(self, ref: Ref) -> Value:
        """What is known about a value; parameters are looked up when they are first met."""
        if ref.number not in self.values:
            self.values[ref.number] = self._start(ref)
        return self.values[ref.number]

    def _start(self, ref: Ref) -> Value:
        tensor = self.graph.tensors[ref.number]
        name = self.graph.parameters.get(ref.number)
        shape = tuple(tensor.shape)
        if name is None:
            return plain(shape)
        long = [axis for axis, size in enumerate(shape) if size > 1]
        if len(long) != 1 or name in self.graph.kernels:
            value = plain(shape)
            return Value(shape, value.labels, value.const, name)
        labels = self.axes.get((name, long[0]))
        if labels is None:
            labels = self.axes[name, long[0]] = self.fresh(shape[long[0]])
        known = channels(shape, long[0], labels, tensor.detach().double().cpu().reshape(-1))
        return Value(shape, known.labels, known.const, name)

    def put(self, node: Node, value: Value, index: int = 0) -> None:
        self.values[node.outputs[index].number] = value

    def tie(self, one: Tensor, other: Tensor) -> None:
        """These channels go together or not at all; no channel on one side pins the other."""
        known = (one != NONE) & (other != NONE)
        if bool(known.any()):
            self.ties.append((one[known], other[known]))
        self.pin(one[(other == NONE)])
        self.pin(other[(one == NONE)])

    def pin(self, labels: Tensor) -> None:
        """These channels stay."""
        labels = labels.reshape(-1)
        labels = labels[labels != NONE]
        if len(labels):
            self.pinned.append(labels)

    def assign(self, ref: Any, axis: int, labels: Tensor) -> None:
        """An axis of a parameter has these channels: it is cut when they are."""
        if not isinstance(ref, Ref):
            return
        name = self.graph.parameters.get(ref.number)
        if name is None:
            held = self.get(ref).along(axis)
            self.pin(labels) if held is None else self.tie(held[0], labels)
        elif (name, axis) in self.axes:
            self.tie(self.axes[name, axis], labels)
        else:
            self.axes[name, axis] = labels

    def bar(self, node: Node) -> None:
        """Let every channel that enters this operation stay."""
        held = [self.get(ref).labels.reshape(-1) for ref in node.inputs]
        labels = torch.cat([*held, torch.empty(0, dtype=torch.long)])
        labels = labels[labels != NONE].unique()
        self.pin(labels)
        self.barriers.append(Barrier(str(node.op), node.module, len(labels)))
        for index, ref in enumerate(node.outputs):
            self.put(node, plain(tuple(self.graph.tensors[ref.number].shape)), index)

    def shape_of(self, node: Node, index: int = 0) -> tuple[int, ...]:
        return tuple(self.graph.tensors[node.outputs[index].number].shape)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ATen operations by name, without overload or trailing underscore."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return add


def apply_rules(state: State) -> State:
    """Walk through the graph once."""
    graph = state.graph
    for node in graph.nodes:
        name = str(node.op.overloadpacket).removeprefix("aten.")
        inner = name.removesuffix("_")
        if inner != name and _writes_into_a_view(state, node):
            state.bar(node)
            state.pin(torch.arange(state.count))  # whatever else looks at that memory
            continue
        RULES.get(inner, State.bar)(state, node)
    for ref in graph.outputs:
        state.pin(state.get(ref).labels)
    return state


def _writes_into_a_view(state: State, node: Node) -> bool:
    if not node.inputs:
        return False
    tensor = state.graph.tensors[node.inputs[0].number]
    return tensor._base is not None and tensor.numel() != tensor._base.numel()


def _functional(op: Any) -> Any:
    """The operation that does the same without writing in place."""
    name = str(op.overloadpacket).removeprefix("aten.").removesuffix("_")
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, op._overloadname)


def _with(tree: Any, replace: Callable[[Ref], Any]) -> Any:
    return tree_map(lambda leaf: replace(leaf) if isinstance(leaf, Ref) else leaf, tree)


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
        result = _functional(node.op)(
            *_with(node.args, consts.__getitem__), **_with(node.kwargs, consts.__getitem__)
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
        _run(node, (t.expand(value.shape) if moves else t,)) for t in (value.labels, value.const)
    )
    if name == "aten.squeeze" and labels.dim() != len(state.shape_of(node)):
        labels, const = (_run(node, (t.expand(value.shape),)) for t in (value.labels, value.const))
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
    parts, numbers = (_listed(_run(node, (t,))) for t in (labels, const))
    touches = value.labels.shape[axis] > 1
    if touches and not _whole(state, node, value, axis):
        sizes = [part.shape[axis] if part.dim() == len(value.shape) else 0 for part in parts]
        if state.trusting and len(parts) > 1 and len(set(sizes)) == 1 and sizes[0]:
            for part in parts[1:]:  # equal parts stay equal
                state.tie(parts[0].reshape(-1), part.reshape(-1))
        else:
            state.pin(value.labels)
    for index, (part, number) in enumerate(zip(parts, numbers, strict=True)):
        state.put(node, Value(state.shape_of(node, index), compact(part), compact(number)), index)


def _whole(state: State, node: Node, value: Value, axis: int) -> bool:
    """Whether a slice takes everything along the axis."""
    return len(node.outputs) == 1 and state.shape_of(node) == value.shape


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


# ---- mixing ------------------------------------------------------------------------------------


@rule("convolution")
def convolution(state: State, node: Node) -> None:
    x, weight_ref, bias, _, padding, _, turned, _, groups = node.args[:9]
    weight, value, shape = state.get(weight_ref), state.get(x), state.shape_of(node)
    held = value.along(1)
    if held is None or weight.parameter not in state.graph.kernels:
        state.bar(node)  # a weight that is computed, or whose groups are counted elsewhere
        return
    inputs, const = held
    kernels = state.graph.tensors[weight_ref.number].detach()
    uses = (kernels != 0).flatten(2).any(2).cpu()
    sums = kernels.double().flatten(2).sum(2).cpu()
    if turned:
        uses, sums = _by_output(uses, groups), _by_output(sums, groups)
    exact = not turned and not any(padding)
    name = weight.parameter
    offset = state.graph.tensors[bias.number].detach().double().cpu() if bias else None
    if groups == 1:
        state.assign(weight_ref, 0 if turned else 1, inputs)
        first = 1 if turned else 0
        if (name, first) not in state.axes:
            state.axes[name, first] = state.fresh(shape[1])
        outputs = state.axes[name, first]
    else:
        outputs, uses, sums = _grouped(state, name, inputs, shape[1], groups, uses, sums)
        state.axes[name, 0] = inputs if turned else outputs
    state.assign(bias, 0, outputs)
    bias_name = state.graph.parameters.get(bias.number) if bias else None
    state.mixings.append(Mixing(node, outputs, inputs, uses, sums, const, exact, name, bias_name))
    state.put(node, channels(shape, 1, outputs, _summed(uses, sums, const, offset, exact)))


def _grouped(
    state: State, name: str, inputs: Tensor, out: int, groups: int, uses: Tensor, sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Each group goes as a whole: its inputs and outputs are tied to one label."""
    if name not in state.grouped:
        state.grouped[name] = state.fresh(groups)
    labels = state.grouped[name]
    width = len(inputs) // groups
    outputs = labels.repeat_interleave(out // groups)
    state.tie(labels.repeat_interleave(width), inputs)
    rows = torch.arange(out).unsqueeze(1)
    columns = (rows // (out // groups)) * width + torch.arange(width)
    spread = []
    for table in (uses, sums):  # the blocks of the groups, over all inputs
        whole = torch.zeros(out, len(inputs), dtype=table.dtype)
        whole[rows, columns] = table
        spread.append(whole)
    return outputs, spread[0], spread[1]


def _by_output(table: Tensor, groups: int) -> Tensor:
    """A transposed weight's table (inputs, outputs per group) as (outputs, inputs per group)."""
    blocks = table.reshape(groups, table.shape[0] // groups, table.shape[1])
    return blocks.transpose(1, 2).reshape(-1, table.shape[0] // groups)


def _summed(
    uses: Tensor, sums: Tensor, const: Tensor, offset: Tensor | None, exact: bool
) -> Tensor:
    """The outputs that are constant: all their inputs with a weight are, away from any border."""
    usable = (const == 0) | (~const.isnan() if exact else torch.zeros_like(const, dtype=torch.bool))
    varying = (uses & ~usable).any(1)
    total = sums @ torch.where(usable, const, 0.0)
    total = total if offset is None else total + offset
    return torch.where(varying, torch.nan, total)


@rule("addmm", "mm")
def linear(state: State, node: Node) -> None:
    biased = str(node.op.overloadpacket) == "aten.addmm"
    bias, x, turned = node.args[:3] if biased else (None, *node.args[:2])
    weight, value, shape = state.get(turned), state.get(x), state.shape_of(node)
    held = value.along(1)
    if held is None or weight.parameter is None or not weight.turned or node.kwargs:
        state.bar(node)
        return
    inputs, const = held
    name = weight.parameter
    raw = state.graph.tensors[turned.number].detach().T.cpu()
    if (name, 1) in state.axes:
        state.tie(state.axes[name, 1], inputs)
    else:
        state.axes[name, 1] = inputs
    if (name, 0) not in state.axes:
        state.axes[name, 0] = state.fresh(shape[1])
    outputs = state.axes[name, 0]
    if biased:
        state.assign(bias, 0, outputs)
    bias_name = state.graph.parameters.get(bias.number) if bias else None
    offset = state.graph.tensors[bias.number].detach().double().cpu() if bias else None
    uses = raw != 0
    sums = raw.double()
    state.mixings.append(Mixing(node, outputs, inputs, uses, sums, const, True, name, bias_name))
    state.put(node, channels(shape, 1, outputs, _summed(uses, sums, const, offset, True)))


def _run(node: Node, tensors: tuple[Tensor, ...]) -> Any:
    """Run a shape operation on other tensors in place of its inputs."""
    given = iter(tensors)
    args = _with(node.args, lambda _: next(given))
    return node.op(*args, **node.kwargs)


def _listed(result: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]
