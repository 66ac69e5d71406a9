"""Tensors that are made in a pass, and what becomes of memory that is written in part."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...recording.graph import Node
from ..state import Barred, State, rule
from ..values import WILD, Value, compact, plain, unknown


@rule("write_back")
def write_back(state: State, node: Node) -> None:
    """A part of a tensor was written: there it has the labels and constants of what is new."""
    whole, part = (state.get(ref) for ref in node.inputs)
    view = node.args[2]
    if view.op is torch.ops.aten.as_strided.default:  # says nothing of rows and columns
        raise Barred
    size = math.prod(whole.shape)
    places = view.look(torch.arange(size).reshape(whole.shape)).reshape(-1)
    results = []
    for old, new in ((whole.labels, part.labels), (whole.const, part.const)):
        full = old.expand(whole.shape).reshape(-1).clone()
        full[places] = new.expand(part.shape).reshape(-1)
        results.append(full.reshape(whole.shape))
    labels, const = _as_elsewhere(state, results[0]), results[1]
    unset = state.unset.get(node.inputs[0].number, torch.zeros((), dtype=torch.bool))
    unset = unset.expand(whole.shape).reshape(-1).clone()
    unset[places] = False
    unset = unset.reshape(whole.shape)
    if bool(unset.any()):
        state.unset[node.outputs[0].number] = unset
    # A constant here and not there says nothing of images of another size.
    even = [axis for axis in range(len(whole.shape)) if labels.shape[axis] == 1]
    if even:
        low = torch.where(unset, torch.inf, const).amin(even, keepdim=True)
        high = torch.where(unset, -torch.inf, const).amax(even, keepdim=True)
        const = torch.where(low == high, low, torch.nan)
    state.put(node, Value(whole.shape, labels, compact(const)))


def _as_elsewhere(state: State, labels: Tensor) -> Tensor:
    """Labels of what was made of nothing are those of its row, where a part of it was written."""
    if not bool((labels == WILD).any()) or not bool((labels >= 0).any()):
        return compact(labels)
    for axis in range(labels.dim()):
        others = tuple(other for other in range(labels.dim()) if other != axis)
        largest = labels.amax(others, keepdim=True)
        if bool(((labels == largest) | (labels == WILD)).all()):  # along this axis they differ
            state.follow(largest.reshape(-1))
            return largest
    return compact(labels)


@rule("zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty")
def made(state: State, node: Node) -> None:
    """Made of one number, in a size that will fit what it is joined with."""
    state.put(node, plain(state.shape_of(node), WILD, _number(node)))
    _note_unset(state, node)


@rule("zeros_like", "ones_like", "full_like", "empty_like")
def made_like(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    const = torch.full((1,) * len(value.shape), _number(node), dtype=torch.float64)
    state.put(node, Value(value.shape, value.labels, const))
    _note_unset(state, node)


def _note_unset(state: State, node: Node) -> None:
    if "empty" in node.name:
        state.unset[node.outputs[0].number] = torch.ones((), dtype=torch.bool)


def _number(node: Node) -> float:
    kind = node.name.removeprefix("new_").removesuffix("_like")
    if kind == "full":
        given = node.args[2 if node.name == "new_full" else 1]
        return float(given) if isinstance(given, (int, float)) else math.nan
    return {"zeros": 0.0, "ones": 1.0}.get(kind, math.nan)


@rule("rand_like", "randn_like", "bernoulli", "uniform", "normal", "exponential")
def chance(state: State, node: Node) -> None:
    """Noise as large as its input. Each number is drawn for its place: in evaluation all stay."""
    value = state.get(node.inputs[0])
    if not node.training:
        state.because(node, value.labels)
        state.pin(value.labels)
    state.put(node, Value(value.shape, value.labels, unknown(len(value.shape))))
