"""Operations on each channel's picture: pooling, resizing, padding, sampling, dropout."""

from __future__ import annotations

import math
import re

from ...recording.graph import Node
from ..state import State, rule
from ..values import Value, channels
from .axes import argument, even, held_along, keep_off, labelled, lost, zero_kept
from .pointwise import together


@rule(
    "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa", "reflection_pad1d", "reflection_pad3d", "replication_pad1d",
    "replication_pad3d",
)  # fmt: skip
def per_picture(state: State, node: Node) -> None:
    """A constant picture stays one, unless zeros around it are averaged in."""
    averaged = "avg_pool" in str(node.op) and "adaptive" not in str(node.op)
    padded = any(argument(node, "padding") or ()) and argument(node, "count_include_pad")
    exact = not averaged or not (padded or argument(node, "divisor_override"))
    _each_picture(state, node, state.get(node.args[0]), exact=exact)


@rule("fractional_max_pool2d", "fractional_max_pool3d")
def random_pool(state: State, node: Node) -> None:
    """Pooling with random borders, of which each channel has its own."""
    value, samples = state.get(node.args[0]), state.get(argument(node, "random_samples"))
    axis = 0 if len(value.shape) == len(argument(node, "kernel_size")) + 1 else 1
    state.tie(held_along(value, axis)[0], held_along(samples, 1)[0])
    _each_picture(state, node, value, exact=True)


@rule("max_unpool2d", "max_unpool3d")
def unpool(state: State, node: Node) -> None:
    """Puts elements at places among zeros."""
    values = [state.get(ref) for ref in node.inputs]
    labels = together(state, values, values[0].shape)
    value = Value(values[0].shape, labels, values[0].const)
    _each_picture(state, node, value, exact=False)


@rule("grid_sampler_2d", "grid_sampler_3d")
def sample(state: State, node: Node) -> None:
    """Reads at places that hold for all channels, and zero beyond the border."""
    _each_picture(state, node, state.get(node.args[0]), exact=False)
    state.pin(state.get(node.args[1]).labels)


def _each_picture(state: State, node: Node, value: Value, *, exact: bool) -> None:
    """Channels pass if none lie along the picture's axes; the second output holds places."""
    name = str(node.op.overloadpacket)
    rank = len(value.shape)
    found = re.search(r"(\d)d", name)
    axes = range(rank - int(found[1] if found else rank), rank)
    keep_off(state, value, axes)
    const = even(value.const, axes)
    for index in range(len(node.outputs)):
        known = lost(const) if index else const if exact else zero_kept(const)
        state.put(node, Value(state.shape_of(node, index), value.labels, known), index)


@rule("rot90")
def turn(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    axes = [axis % len(value.shape) for axis in argument(node, "dims")]
    keep_off(state, value, axes)
    state.put(node, Value(state.shape_of(node), value.labels, even(value.const, axes)))


@rule("unfold")
def windows(state: State, node: Node) -> None:
    """Windows along an axis, whose elements get an axis of their own."""
    value, axis = state.get(node.args[0]), node.args[1] % len(state.get(node.args[0]).shape)
    keep_off(state, value, [axis])
    labels, const = value.labels[..., None], even(value.const, [axis])[..., None]
    state.put(node, Value(state.shape_of(node), labels, const))


@rule("tril", "triu")
def triangle(state: State, node: Node) -> None:
    """Sets a part of each matrix to zero."""
    value = state.get(node.args[0])
    axes = [len(value.shape) - 2, len(value.shape) - 1]
    if labelled(value, axes):
        state.pin(value.labels)
    state.put(node, Value(value.shape, value.labels, zero_kept(even(value.const, axes))))


@rule("im2col")
def unfold(state: State, node: Node) -> None:
    """Every channel becomes as many as a window has elements."""
    value, shape = state.get(node.args[0]), state.shape_of(node)
    many = math.prod(argument(node, "kernel_size"))
    labels, const = (t.repeat_interleave(many) for t in held_along(value, -3))
    const = zero_kept(const) if any(argument(node, "padding")) else const
    state.put(node, channels(shape, len(shape) - 2, labels, const))


@rule("col2im")
def fold(state: State, node: Node) -> None:
    """The elements of a window are added where they came from: they go together."""
    value, shape = state.get(node.args[0]), state.shape_of(node)
    many = math.prod(argument(node, "kernel_size"))
    labels, const = (t.reshape(-1, many) for t in held_along(value, -2))
    state.tie(labels[:, :1].expand_as(labels).reshape(-1), labels.reshape(-1))
    const = zero_kept(even(const, [1])).reshape(-1)
    state.put(node, channels(shape, len(shape) - 3, labels[:, 0], const))


@rule("native_dropout")
def dropout(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    for index, known in enumerate((zero_kept, lost)):
        state.put(node, Value(value.shape, value.labels, known(value.const)), index)
