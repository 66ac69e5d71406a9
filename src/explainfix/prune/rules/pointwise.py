"""Operations element by element: what is constant stays constant."""

from __future__ import annotations

import torch
from torch import Tensor

from ...recording.graph import Node, Ref
from ..state import Barred, State, functional, rule, with_values
from ..values import NONE, Value, compact, widened
from .axes import argument, zero_kept

# A constant is known up to rounding. Where a function jumps that is not enough.
JUMPS = {
    "sign", "sgn", "floor", "ceil", "round", "trunc", "frac", "fmod", "remainder", "floor_divide",
    "hardshrink", "threshold",
}  # fmt: skip
# Of these only zero is kept: false is zero in every type, and atan2 jumps at minus zero.
ZERO_ONLY = {
    "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not",
    "isnan", "isinf", "atan2",
}  # fmt: skip

# Nothing is known of these: equal up to rounding, and bits, which depend on the type.
UNKNOWN = {"eq", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"}


@rule(
    "add", "sub", "mul", "div", "relu", "silu", "gelu", "sigmoid", "hardswish", "hardsigmoid",
    "hardtanh", "leaky_relu", "celu", "elu", "tanh", "exp", "softplus", "clamp", "clamp_min",
    "clamp_max", "mish", "addcmul", "addcdiv", "neg", "sqrt", "rsqrt", "abs", "pow",
    "log_sigmoid_forward", "_prelu_kernel", "maximum", "minimum", "erf", "erfc", "reciprocal",
    "rsub", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "log", "log2", "log10",
    "log1p", "expm1", "exp2", "logit", "xlogy", "lerp", "hypot", "softshrink", "nan_to_num",
    *JUMPS, *ZERO_ONLY, *UNKNOWN,
)  # fmt: skip
def pointwise(state: State, node: Node) -> None:
    shape = state.shape_of(node)
    labels = together(state, [state.get(ref) for ref in node.inputs], shape)
    _put(state, node, labels, _evaluated(state, node, len(shape)))


def together(state: State, values: list[Value], shape: tuple[int, ...]) -> Tensor:
    """The labels of what is made of several values: elements that meet are tied."""
    rank = len(shape)
    if len(values) == 1 and values[0].labels.dim() == rank:
        return values[0].labels
    aligned = [
        (
            (1,) * (rank - len(v.shape)) + v.shape,
            v.labels.reshape((1,) * (rank - v.labels.dim()) + tuple(v.labels.shape)),
        )
        for v in values
    ]
    varied = {a for _, labels in aligned for a in range(rank) if labels.shape[a] > 1}
    labels: Tensor | None = None
    for full, own in aligned:
        if varied and all(full[a] == 1 for a in varied):
            state.pin(own)  # one number for all channels
            continue
        wide = widened(own, shape, varied)
        if labels is None:
            labels = wide
        else:
            state.tie(*(t.reshape(-1) for t in torch.broadcast_tensors(labels, wide)))
            labels = torch.where(labels < 0, torch.maximum(labels, wide), labels)
    return torch.full((1,) * rank, NONE) if labels is None else labels


def _put(state: State, node: Node, labels: Tensor, const: Tensor) -> None:
    shape = state.shape_of(node)
    const = torch.where(const.isfinite(), const, torch.nan)
    const = const.reshape((1,) * (len(shape) - const.dim()) + tuple(const.shape))
    state.put(node, Value(shape, compact(labels), compact(const)))


def _evaluated(state: State, node: Node, rank: int) -> Tensor:
    """The operation on the constants: NaN wherever one of them varies, whatever it makes of NaN."""
    name = node.name
    consts = {ref: state.get(ref).const for ref in node.inputs}
    unknown = torch.full((1,) * rank, torch.nan, dtype=torch.float64)
    if name in UNKNOWN:
        return unknown
    try:
        result = _run(node, consts)
    except (RuntimeError, TypeError, NotImplementedError):  # not for floats
        return unknown
    if name in JUMPS or name in ZERO_ONLY or node.kwargs.get("rounding_mode"):
        for ref, const in consts.items():
            for near in (const * 0.999, const * 1.001):
                other = _run(node, {**consts, ref: near})
                result = torch.where(torch.isclose(other, result, 1e-2, 0), result, torch.nan)
    for const in consts.values():
        result = torch.where(const.isnan(), torch.nan, result)
    if name == "mul":
        for const in consts.values():  # zero times anything
            result = torch.where(const == 0, 0.0, result)
    if name == "_prelu_kernel":
        x = consts[node.args[0]]
        result = torch.where(x >= 0, x, result)  # whatever the slope
    return zero_kept(result) if name in ZERO_ONLY else result


def _run(node: Node, consts: dict[Ref, Tensor]) -> Tensor:
    args, kwargs = with_values((node.args, node.kwargs), consts.__getitem__)
    result = functional(node.op)(*args, **kwargs)
    first: Tensor = result[0] if isinstance(result, tuple) else result
    if first.is_complex():  # a constant is a real number
        first = torch.where((first.imag == 0) | first.isnan(), first.real, torch.nan)
    return first.double()


@rule("where")
def where(state: State, node: Node) -> None:
    if len(node.args) < 3:
        raise Barred  # the places of what is not zero
    _choose(state, node, *node.args[:3])


@rule("masked_fill")
def masked_fill(state: State, node: Node) -> None:
    x, mask, fill = node.args
    _choose(state, node, mask, fill, x)


def _choose(state: State, node: Node, condition: object, one: object, other: object) -> None:
    """One where a condition holds, the other elsewhere; known of both if they are the same."""
    shape = state.shape_of(node)
    labels = together(state, [state.get(ref) for ref in node.inputs], shape)
    holds, yes, no = (_const(state, given) for given in (condition, one, other))
    const = torch.where(holds != 0, yes, no)
    const = torch.where(holds.isnan() & (yes != no), torch.nan, const)
    _put(state, node, labels, const)


def _const(state: State, given: object) -> Tensor:
    if isinstance(given, Ref):
        return state.get(given).const
    return torch.tensor(given, dtype=torch.float64)


@rule("glu")
def glu(state: State, node: Node) -> None:
    """The first half of an axis, gated by the second: both lose the same channels."""
    value, shape = state.get(node.args[0]), state.shape_of(node)
    axis = argument(node, "dim") % len(shape)
    labels, gates = widened(value.labels, value.shape, {axis}).chunk(2, axis)
    x, gate = widened(value.const, value.shape, {axis}).chunk(2, axis)
    if value.labels.shape[axis] > 1:
        state.tie(labels.reshape(-1), gates.reshape(-1))
        labels = torch.where(labels < 0, torch.maximum(labels, gates), labels)
    _put(state, node, labels, torch.where(x == 0, 0.0, x * gate.sigmoid()))


@rule("rrelu_with_noise")
def random_relu(state: State, node: Node) -> None:
    """Leaky with a random slope in training."""
    labels = together(state, [state.get(ref) for ref in node.inputs], state.shape_of(node))
    _put(state, node, labels, zero_kept(state.get(node.args[0]).const))


@rule("copy")
def copy(state: State, node: Node) -> None:
    """What the second holds, as large as the first; in its type, of which only zero is sure."""
    labels = together(state, [state.get(ref) for ref in node.inputs], state.shape_of(node))
    _put(state, node, labels, zero_kept(state.get(node.args[1]).const))


@rule("fill", "zero")
def fill(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    with_what = _const(state, node.args[1] if len(node.args) > 1 else 0)
    for ref in node.inputs[1:]:
        state.pin(state.get(ref).labels)
    whole = torch.where(with_what.frac() == 0, with_what, torch.nan)  # the same in every type
    const = whole.reshape((1,) * len(value.shape))
    state.put(node, Value(value.shape, value.labels, const))
