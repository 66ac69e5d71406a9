"""Operations element by element: what is constant stays constant."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Node
from ..state import State, functional, rule, with_values
from ..values import NONE, Value, compact, widened


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
