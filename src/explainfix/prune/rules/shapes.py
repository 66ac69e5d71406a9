"""Operations that move elements about: views, splits, joins, shuffles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..graph import Node
from ..state import State, Trust, listed, rule, run_on
from ..values import NONE, Value, channels, compact, plain, widened


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
    place = 2 if "split" in name or name == "chunk" else 1
    axis = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
    axis %= len(value.shape)
    labels = widened(value.labels, value.shape, {axis})
    const = widened(value.const, value.shape, {axis})
    parts, numbers = (listed(run_on(node, (t,))) for t in (labels, const))
    everything = len(node.outputs) == 1 and state.shape_of(node) == value.shape
    if value.labels.shape[axis] > 1 and not everything:
        held = value.along(axis)
        following = False
        if held is not None and name == "slice":
            following = _slice_follows(state, node, held[0])
        elif held is not None and place == 2:
            following = _split_follows(state, node, [part.reshape(-1) for part in parts])
        if not following:
            state.pin(value.labels)
    for index, (part, number) in enumerate(zip(parts, numbers, strict=True)):
        state.put(node, Value(state.shape_of(node, index), compact(part), compact(number)), index)


def _split_follows(state: State, node: Node, parts: list[Tensor]) -> bool:
    """Whether a split can go with its channels: its sizes are attributes, or equal shares."""
    level = state.guess(node)
    sizes = [len(part) for part in parts]
    for name in state.attributes(node, sizes)[:1]:
        state.write(node, name, parts, several=True)
        return True
    if len(set(sizes)) > 1:  # a number for each part, those that are equal in the order given
        names = [
            state.attributes(node, size)[sizes[:i].count(size) :] for i, size in enumerate(sizes)
        ]
        if all(names):
            for (name, *_), part in zip(names, parts, strict=True):
                state.write(node, name, [part], several=False)
        return all(names)
    if level == Trust.STAY:
        return False
    for part in parts[1:]:
        state.tie(parts[0], part)
    for number, labels in ((sizes[0], parts[0]), (sum(sizes), torch.cat(parts))):
        for name in state.attributes(node, number)[:1]:
            state.write(node, name, [labels], several=False)
            return True
    return True


def _slice_follows(state: State, node: Node, labels: Tensor) -> bool:
    """Whether the ends of a slice are attributes of the module, and so can be rewritten."""
    state.guess(node)
    start, end = (*node.args[2:4], None, None)[:2]
    size = len(labels)
    ends = [end for end in (start or 0, min(size if end is None else end, size)) if 0 < end < size]
    names = [state.attributes(node, end) for end in ends]
    if len(node.args) > 4 or not all(names):
        return False
    for end, (name, *_) in zip(ends, names, strict=True):
        state.write(node, name, [labels[:end]], several=False)
    return True


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
        others = open_axes if stacking else open_axes - {axis}
        if which == "labels" and others and any(t.shape[a] > 1 for a in others for t in tensors):
            wide = _alike(state, wide, None if stacking else axis)
        results.append(torch.stack(wide, axis) if stacking else torch.cat(wide, axis))
    labels, const = results
    state.put(node, Value(shape, compact(labels), compact(const)))


def _alike(state: State, parts: list[Tensor], axis: int | None) -> list[Tensor]:
    """Tie the channels of parts that are joined along another axis: they have equal sizes."""
    first = parts[0] if axis is None else parts[0].narrow(axis, 0, 1)
    for part in parts:
        state.tie(first.expand_as(part).reshape(-1), part.reshape(-1))
    return [first.expand_as(part) for part in parts]


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
    state.put(node, Value(shape, _one_axis(state, node, labels), const))


def _one_axis(state: State, node: Node, labels: Tensor) -> Tensor:
    """Channels spread over several axes: the longest follows their number, the others stay."""
    if labels.numel() == 1:
        return labels
    if state.guess(node) == Trust.STAY:
        state.pin(labels)
        state.pin_sized(state.shape_of(node))  # the numbers may be those of any other value
        return labels
    split = [axis for axis in range(labels.dim()) if labels.shape[axis] > 1]
    main = max(split, key=lambda axis: labels.shape[axis])
    for axis in split:
        if axis != main:
            first = labels.narrow(axis, 0, 1)
            state.tie(first.expand_as(labels).reshape(-1), labels.reshape(-1))
            labels = first
    if len(split) > 1:
        for name in state.attributes(node, labels.shape[main])[:1]:
            state.write(node, name, [labels.reshape(-1)], several=False)
    return labels


@rule("repeat")
def repeat(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    lead = len(shape) - len(value.shape)

    def repeated(tensor: Tensor) -> Tensor:
        tensor = tensor.reshape((1,) * lead + tuple(tensor.shape))
        times = [n if size > 1 else 1 for n, size in zip(node.args[1], tensor.shape, strict=True)]
        return tensor.repeat(times)

    state.put(node, Value(shape, repeated(value.labels), repeated(value.const)))


@rule("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")
def shuffle(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    held = value.along(-3) if "pixel" in str(node.op) else value.along(1)
    if held is None:
        state.bar(node)
        return
    labels, const = held
    number = node.args[1]
    axis = len(shape) - 3 if "pixel" in str(node.op) else 1
    if "unshuffle" in str(node.op):
        labels, const = (t.repeat_interleave(number**2) for t in held)
    elif "pixel" in str(node.op):
        fine, values = (t.reshape(-1, number**2) for t in held)
        state.tie(fine[:, :1].expand_as(fine).reshape(-1), fine.reshape(-1))
        labels = fine[:, 0]
        const = torch.where((values == values[:, :1]).all(1), values[:, 0], torch.nan)
    else:
        groups = labels.reshape(number, -1)
        state.tie(groups[:1].expand_as(groups).reshape(-1), groups.reshape(-1))
        labels, const = (t.reshape(number, -1).T.reshape(-1) for t in held)
    state.put(node, channels(shape, axis, labels, const))


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
