"""Reductions and scans: along an axis without channels every channel has its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...recording.graph import Node
from ..state import Barred, State, rule
from ..values import NONE, Value, compact
from .axes import argument, axes_of, even, keep_off, kept, lost, zero_kept


def zero_and_one_kept(const: Tensor) -> Tensor:
    """What does not change when it is multiplied with itself."""
    return torch.where((const == 0) | (const == 1), const, torch.nan)


# What becomes of a constant in each output. It must hold for every number of elements:
# of a product of constants, say, only that of zeros and that of ones is known.
Known = Callable[[Tensor], Tensor]
REDUCTIONS: dict[str, tuple[Known, ...]] = {
    "mean": (kept,),
    "amax": (kept,),
    "amin": (kept,),
    "max": (kept, lost),
    "min": (kept, lost),
    "aminmax": (kept, kept),
    "median": (kept, lost),
    "kthvalue": (kept, lost),
    "argmax": (lost,),
    "argmin": (lost,),
    "logsumexp": (lost,),
    "prod": (zero_and_one_kept,),
    "all": (zero_kept,),
}
SCANS: dict[str, tuple[Known, ...]] = {
    "cumsum": (zero_kept,),
    "cumprod": (zero_and_one_kept,),
    "cummax": (kept, lost),
    "cummin": (kept, lost),
    "logcumsumexp": (lost,),
    "sort": (kept, lost),
    "topk": (kept, lost),
    "_softmax": (lost,),
    "_log_softmax": (lost,),
}


@rule(*REDUCTIONS)
def reduce(state: State, node: Node) -> None:
    name = str(node.op.overloadpacket).removeprefix("aten.")
    _reduce(state, node, REDUCTIONS[name])


@rule("var", "std", "var_mean", "std_mean")
def variance(state: State, node: Node) -> None:
    """Zero for a constant; not known with a correction, that has no variance of one element."""
    spread = torch.zeros_like if argument(node, "correction") == 0 else lost

    def known(const: Tensor) -> Tensor:
        return torch.where(const.isnan(), torch.nan, spread(const))

    _reduce(state, node, (known, kept))


@rule("sum", "nansum", "count_nonzero", "any", "linalg_vector_norm", "norm")
def total(state: State, node: Node) -> None:
    """Zeros add nothing, channels of zeros neither. How many other constants there are varies."""
    value = state.get(node.args[0])
    orders = [p for p in (argument(node, "ord"), argument(node, "p")) if p is not None]
    order = float(orders[0]) if orders else 2.0
    along = [axis for axis in axes_of(node, value) if value.labels.shape[axis] > 1]
    held = value.along(along[0]) if len(along) == 1 else None
    if along and (held is None or order <= 0):
        raise Barred
    if held is not None:
        labels, const = held
        state.pin(labels[const != 0])
        none = torch.full((1,) * len(value.shape), NONE)
        value = Value(value.shape, none, value.const)
    _reduce(state, node, (zero_kept if order > 0 else lost,), value)


def _reduce(state: State, node: Node, known: tuple[Known, ...], value: Value | None = None) -> None:
    value = value or state.get(node.args[0])
    axes = axes_of(node, value)
    if len(node.inputs) > 1:
        raise Barred
    keep_off(state, value, axes)
    labels, const = value.labels, even(value.const, axes)
    for index in range(len(node.outputs)):
        shape = state.shape_of(node, index)
        results = [labels, known[index](const)]
        if len(shape) != len(value.shape):
            results = [t.squeeze(tuple(axes)) for t in results]
        state.put(node, Value(shape, results[0], compact(results[1])), index)


@rule(*SCANS)
def scan(state: State, node: Node) -> None:
    """Something of an axis as a whole that leaves the axis there."""
    value = state.get(node.args[0])
    axes = axes_of(node, value)
    axes = axes if argument(node, "dim") is not None else [len(value.shape) - 1]
    keep_off(state, value, axes)
    known = SCANS[str(node.op.overloadpacket).removeprefix("aten.").removesuffix("_")]
    for index in range(len(node.outputs)):
        const = known[index](even(value.const, axes))
        state.put(node, Value(state.shape_of(node, index), value.labels, const), index)
