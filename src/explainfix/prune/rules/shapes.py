"""Operations that move elements about: views, splits, joins, shuffles."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...recording.graph import Node
from ..state import Barred, State, listed, rule, run_on
from ..values import NONE, WILD, Value, channels, compact, joined, plain, widened
from .axes import even, held_along, zero_kept


@rule("alias", "clone", "detach", "contiguous", "_to_copy", "lift_fresh", "dropout")
def same(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    const, dtype = value.const, node.kwargs.get("dtype")
    if dtype is torch.bool:
        const = torch.where(const.isnan(), torch.nan, (const != 0).double())
    elif dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        const = zero_kept(const)  # a constant is known up to rounding, near whole numbers too
    state.put(node, Value(value.shape, value.labels, const))
    _look_at_unset(state, node)


@rule("t", reads_weights=True)
def turn(state: State, node: Node) -> None:
    """A linear layer reads its weight turned."""
    value = state.get(node.inputs[0])
    if value.parameter and len(value.shape) == 2:
        state.put(node, Value(value.shape[::-1], value.labels, value.const, value.parameter, True))
    else:
        rearrange(state, node)


@rule("transpose", "permute", "unsqueeze", "squeeze", "flip", "roll")
def rearrange(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    whole = node.name in ("roll", "flip", "squeeze")  # these look at how long an axis is
    labels, const = (
        run_on(node, (t.expand(value.shape) if whole else t,)) for t in (value.labels, value.const)
    )
    labels = compact(labels)
    if node.name == "roll" and not torch.equal(labels, value.labels):
        state.because(node, labels)
        state.pin(labels)  # what comes round depends on how many there are
    state.put(node, Value(state.shape_of(node), labels, compact(const)))
    _look_at_unset(state, node)


def _look_at_unset(state: State, node: Node) -> None:
    """A look into memory that was not written everywhere yet."""
    unset = state.unset.get(node.inputs[0].number)
    if unset is not None:
        whole = unset.expand(state.graph.shapes[node.inputs[0].number])
        for ref, part in zip(node.outputs, listed(run_on(node, (whole,))), strict=True):
            state.unset[ref.number] = compact(part)


@rule("slice", "select", "narrow", "split", "unsafe_split", "split_with_sizes", "chunk", "unbind")
def take(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    name = node.name
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
    _look_at_unset(state, node)


def _split_follows(state: State, node: Node, parts: list[Tensor]) -> bool:
    """Whether a split can go with its channels.

    Its sizes may follow the shapes of tensors, or be numbers that the module keeps.
    """
    sizes = [len(part) for part in parts]
    equal = len(set(sizes)) == 1

    def alike() -> None:
        for part in parts[1:] if equal else []:
            state.tie(parts[0], part)

    def counted(*places: tuple[tuple[str, int | None], Tensor]) -> None:
        for attribute, labels in places:
            state.write(node, attribute, labels)

    def counted_alike(place: tuple[str, int | None], labels: Tensor) -> None:
        alike()
        counted((place, labels))

    held = [state.attributes(node, size) for size in sizes]
    guesses: list[Callable[[], None]] = [  # a list of just these sizes
        partial(counted, *(((name, place), part) for place, part in enumerate(parts)))
        for name, first in held[0]
        if first == 0 and all((name, place) in known for place, known in enumerate(held))
    ]
    # Where the module keeps sizes and gives sizes, each part may lose channels of its own.
    guesses.insert(len(guesses) if node.name == "split_with_sizes" else 0, alike)
    if not equal:  # a number for each part, those that are equal in the order given
        single = [
            [place for place in known if place[1] is None][sizes[:i].count(size) :]
            for i, (size, known) in enumerate(zip(sizes, held, strict=True))
        ]
        if all(single):
            each = [(known[0], part) for known, part in zip(single, parts, strict=True)]
            guesses.append(partial(counted, *each))
        return state.choose(node, guesses)
    for number, labels in ((sizes[0], parts[0]), (sum(sizes), torch.cat(parts))):
        places = state.attributes(node, number)
        guesses += [partial(counted_alike, place, labels) for place in places]
    return state.choose(node, guesses)


def _slice_follows(state: State, node: Node, labels: Tensor) -> bool:
    """Whether a slice can go with its channels.

    Its ends may follow the shapes of tensors, be a share of all, or numbers the module keeps.
    """
    start, end = (*node.args[2:4], None, None)[:2]
    size = len(labels)
    if len(node.args) > 4 and node.args[4] != 1:
        return False
    ends = [end for end in (start or 0, min(size if end is None else end, size)) if 0 < end < size]

    def shares() -> None:
        blocks = labels.reshape(-1, math.gcd(size, *ends))
        state.tie(blocks[:1].expand_as(blocks).reshape(-1), blocks.reshape(-1))

    def counted(*places: tuple[str, int | None]) -> None:
        for end, place in zip(ends, places, strict=True):
            state.write(node, place, labels[:end])

    guesses: list[Callable[[], None]] = [lambda: None]
    if math.gcd(size, *ends) > 1:
        guesses.append(shares)
    held = [state.attributes(node, end) for end in ends]
    guesses += [partial(counted, *places) for places in zip(*held, strict=False)]
    return state.choose(node, guesses)


@rule("cat", "stack")
def join(state: State, node: Node) -> None:
    parts = [state.get(ref) for ref in node.inputs]
    shape = state.shape_of(node)
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    stacking = node.name == "stack"
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
    labels, const = compact(results[0]), results[1]
    if not stacking and labels.shape[axis] == 1:
        const = even(const, [axis])  # which is where depends on the size of the image
    state.put(node, Value(shape, labels, compact(const)))


def _alike(state: State, parts: list[Tensor], axis: int | None) -> list[Tensor]:
    """Tie the channels of parts that are joined along another axis: they have equal sizes."""
    first = parts[0] if axis is None else parts[0].narrow(axis, 0, 1)
    for part in parts:
        state.tie(first.expand_as(part).reshape(-1), part.reshape(-1))
        first = joined(first, part if axis is None else part.narrow(axis, 0, 1))
    return [first.expand_as(part) for part in parts]


@rule("view", "_unsafe_view", "reshape", "flatten")
def reshape(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    shape = state.shape_of(node)
    _look_at_unset(state, node)
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
    """Channels spread over several axes: one follows their number, the others stay as long."""
    if labels.numel() == 1:
        return labels
    split = [axis for axis in range(labels.dim()) if labels.shape[axis] > 1]
    split.sort(key=lambda axis: -labels.shape[axis])
    kept: list[Tensor] = []

    def follow(main: int, place: tuple[str, int | None] | None = None) -> None:
        along = labels
        for axis in split:
            if axis != main:
                first = along.narrow(axis, 0, 1)
                state.tie(first.expand_as(along).reshape(-1), along.reshape(-1))
                along = first
        kept.append(along)
        if place is not None:
            state.write(node, place, along.reshape(-1))

    guesses: list[Callable[[], None]] = []
    for axis in split:
        guesses.append(partial(follow, axis))
        places = state.attributes(node, labels.shape[axis])
        guesses += [partial(follow, axis, place) for place in places]
    if not state.choose(node, guesses):
        state.pin(labels)
        return labels
    return kept[0]


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
    held = labels, const = held_along(value, -3 if "pixel" in str(node.op) else 1)
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
    grown = any(
        old == 1 < new for old, new in zip((lead + value.shape)[1:], shape[1:], strict=True)
    )
    if grown and labels.numel() == 1 and int(labels) == NONE:
        labels = torch.full_like(labels, WILD)  # as many as it will be joined with
    state.put(node, Value(shape, labels, const))


@rule("constant_pad_nd", "reflection_pad2d", "replication_pad2d")
def pad(state: State, node: Node) -> None:
    value, shape = state.get(node.inputs[0]), state.shape_of(node)
    changed = [a for a in range(len(shape)) if shape[a] != value.shape[a]]
    constant = node.name == "constant_pad_nd"
    fill = float(node.args[2]) if constant and len(node.args) > 2 else 0.0
    if any(value.labels.shape[a] > 1 for a in changed):
        if not constant:
            raise Barred
        sides = node.args[1]
        if min(sides) < 0:
            state.pin(value.labels)
        labels = torch.constant_pad_nd(value.labels.expand(value.shape), sides, NONE)
        const = torch.constant_pad_nd(value.const.expand(value.shape), sides, fill)
        state.put(node, Value(shape, compact(labels), compact(const)))
        return
    const = value.const
    if constant:
        const = torch.where(const == fill, const, torch.nan)
    state.put(node, Value(shape, value.labels, const))
