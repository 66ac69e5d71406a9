"""Torchvision's operations on regions, and its deformable convolution."""

from __future__ import annotations

import torch

from ...recording.graph import Node
from ..state import Barred, State, rule
from ..values import Mixing, channels
from .axes import argument, even, held_along, lost, own_labels, zero_kept


@rule("torchvision.roi_align", "torchvision.roi_pool")
def regions(state: State, node: Node) -> None:
    """Each channel is read in the same regions; the second output holds places."""
    value = state.get(node.args[0])
    labels, const = held_along(value, 1)
    if len(value.shape) != 4:
        raise Barred
    state.pin(state.get(node.args[1]).labels)
    for index, known in zip(range(len(node.outputs)), (zero_kept, lost), strict=False):
        shape = state.shape_of(node, index)
        state.put(node, channels(shape, 1, labels, known(const)), index)


@rule("torchvision.ps_roi_align", "torchvision.ps_roi_pool")
def parts_of_regions(state: State, node: Node) -> None:
    """Each part of a region has channels of its own: those of all parts go together."""
    held = held_along(state.get(node.args[0]), 1)
    if node.outputs[1] in state.graph.readers:
        raise Barred  # the second output has the numbers of channels
    state.pin(state.get(node.args[1]).labels)
    parts = argument(node, "pooled_height") * argument(node, "pooled_width")
    labels, const = (t.reshape(-1, parts) for t in held)
    state.tie(labels[:, :1].expand_as(labels).reshape(-1), labels.reshape(-1))
    known = zero_kept(even(const, [1])).reshape(-1)
    state.put(node, channels(state.shape_of(node), 1, labels[:, 0], known))
    state.put(node, channels(state.shape_of(node, 1), 1, labels[:, 0], lost(known)), 1)


@rule("torchvision.deform_conv2d", reads_weights=True)
def deformable(state: State, node: Node) -> None:
    """A convolution that reads where its offsets say: zeros beyond the border."""
    x, weight_ref, offset, mask, bias = node.args[:5]
    groups, name = argument(node, "groups"), state.get(weight_ref).parameter
    inputs, const = held_along(state.get(x), 1)
    shape = state.shape_of(node)
    shares = argument(node, "offset_groups") == 1 and groups == 1
    if name is None or name not in state.graph.kernels or not shares:
        raise Barred
    for ref in (offset, mask):
        state.pin(state.get(ref).labels)
    state.assign(weight_ref, 1, inputs)
    outputs = own_labels(state, name, 0, shape[1])
    state.assign(bias, 0, outputs)
    kernels = state.graph.tensors[weight_ref.number].detach().flatten(2)
    bias_name = state.graph.parameters.get(bias.number)
    mixing = Mixing(node, outputs, inputs, kernels, groups, const, False, name, bias_name)
    state.mixings.append(mixing)
    varying = torch.from_numpy(mixing.reads((const != 0).numpy()))
    shift = state.numbers(bias)
    total = torch.where(varying, torch.nan, 0.0 if shift is None else shift)
    state.put(node, channels(shape, 1, outputs, state.settled(outputs, total)))
