"""Reading at places that other tensors name."""

from __future__ import annotations

import torch
from torch import Tensor

from ...recording.graph import Node, Ref
from ..state import Barred, State, rule
from ..values import Value, channels, compact, plain, unknown
from .axes import argument, even, labelled, own_labels, pin_single
from .pointwise import together


@rule("index")
def index(state: State, node: Node) -> None:
    """Axes that are indexed give way to those of the indices, at the first of them or in front."""
    value, shape = state.get(node.args[0]), state.shape_of(node)
    rank, picked = len(value.shape), node.args[1]
    axes = [axis for axis, given in enumerate(picked) if isinstance(given, Ref)]
    for axis in axes:
        state.pin(state.get(picked[axis]).labels)
    new = max(len(state.get(picked[axis]).shape) for axis in axes)
    if len(shape) != rank - len(axes) + new:
        raise Barred  # a mask over several axes
    pin_single(state, value)
    if labelled(value, axes):
        state.pin(value.labels)
        state.put(node, plain(shape))
        return
    neighbours = axes[-1] - axes[0] == len(axes) - 1
    place = axes[0] if neighbours else 0

    def moved(tensor: Tensor) -> Tensor:
        left = [size for axis, size in enumerate(tensor.shape) if axis not in axes]
        return tensor.reshape(*left[:place], *(1,) * new, *left[place:])

    state.put(node, Value(shape, moved(value.labels), moved(even(value.const, axes))))


@rule("index_put")
def index_put(state: State, node: Node) -> None:
    """Some rows of a tensor are replaced, or added to: the channels of old and new go together."""
    value, new, picked = state.get(node.args[0]), state.get(node.args[2]), node.args[1]
    axes = [axis for axis, given in enumerate(picked) if isinstance(given, Ref)]
    rows = axes == [0] and len(state.get(picked[0]).shape) == 1
    if not rows or len(new.shape) != len(value.shape) or labelled(value, [0]) or labelled(new, [0]):
        raise Barred
    state.pin(state.get(picked[0]).labels)
    pin_single(state, value)
    parts = [Value((1, *held.shape[1:]), held.labels, held.const) for held in (value, new)]
    labels = together(state, parts, (1, *value.shape[1:]))
    both = torch.where((value.const == 0) & (new.const == 0), 0.0, torch.nan)
    state.put(node, Value(value.shape, labels, compact(both)))


@rule("index_select")
def index_select(state: State, node: Node) -> None:
    value, shape = state.get(node.args[0]), state.shape_of(node)
    axis = argument(node, "dim") % len(value.shape)
    state.pin(state.get(node.args[2]).labels)
    pin_single(state, value)
    if labelled(value, [axis]):
        state.pin(value.labels)
        state.put(node, plain(shape))
        return
    state.put(node, Value(shape, value.labels, even(value.const, [axis])))


@rule("embedding", reads_weights=True)
def embedding(state: State, node: Node) -> None:
    """Rows of a table: its columns are channels."""
    table, shape = node.args[0], state.shape_of(node)
    name = state.graph.parameters.get(table.number)
    readers = {str(reader.op.overloadpacket) for reader in state.graph.readers[table]}
    single = min(state.graph.shapes[table.number]) == 1
    if name is None or single or not readers <= {"aten.embedding", "aten.t"}:
        raise Barred  # somebody else may need the whole table
    state.pin(state.get(node.args[1]).labels)
    labels = own_labels(state, name, 1, shape[-1])
    state.put(node, channels(shape, len(shape) - 1, labels, unknown(1)))


@rule("gather")
def gather(state: State, node: Node) -> None:
    """Every element of the index reads along one axis; along the others the two go together."""
    value, places = state.get(node.args[0]), state.get(node.args[2])
    shape, axis = state.shape_of(node), argument(node, "dim") % len(value.shape)
    shorter = [a for a in range(len(shape)) if a != axis and shape[a] != value.shape[a]]
    if labelled(value, [axis, *shorter]) or labelled(places, [axis]):
        raise Barred
    for held in (value, places):
        pin_single(state, held)
    known = Value(shape, value.labels, value.const)
    labels = together(state, [known, places], shape)
    state.put(node, Value(shape, labels, even(value.const, [axis, *shorter])))
