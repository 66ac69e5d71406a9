"""Operations on each channel's picture: pooling, resizing, means, dropout."""

from __future__ import annotations

import torch

from ..graph import Node
from ..state import State, rule
from ..values import Value, channels, compact


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
    adding = str(node.op.overloadpacket) == "aten.sum"
    for d in dims:
        each_known = const.shape[d] == value.shape[d]  # not one number for however many there are
        if adding and not each_known:
            const = torch.where(const == 0, const, torch.nan)
        if adding:
            const = const.sum(d, keepdim=True)
        elif const.shape[d] > 1:
            const = torch.full_like(const.narrow(d, 0, 1), torch.nan)
    if not keep:
        for d in sorted(dims, reverse=True):
            labels, const = labels.squeeze(d), const.squeeze(d)
    state.put(node, Value(shape, labels, compact(const)))


@rule("native_dropout")
def dropout(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    const = torch.where(value.const == 0, value.const, torch.nan)
    state.put(node, Value(value.shape, value.labels, const))
