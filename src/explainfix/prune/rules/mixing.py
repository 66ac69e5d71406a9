"""What convolutions and linear layers do to channels: every output is a sum over inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...recording.graph import Node, Ref
from ..state import Barred, State, rule
from ..values import Grouping, Mixing, channels
from .axes import held_along, own_labels


@rule("convolution", reads_weights=True)
def convolution(state: State, node: Node) -> None:
    x, weight_ref, bias, _, padding, _, turned, _, groups = node.args[:9]
    weight, value, shape = state.get(weight_ref), state.get(x), state.shape_of(node)
    inputs, const = held_along(value, 1)
    name = weight.parameter
    if name not in state.graph.kernels or name in state.graph.changing:
        raise Barred  # a weight that is computed, or whose groups are counted elsewhere
    kernels = state.graph.tensors[weight_ref.number].detach()
    if turned:
        kernels = _by_output(kernels, groups)
    if groups == 1:
        state.assign(weight_ref, 0 if turned else 1, inputs)
        outputs = own_labels(state, name, 1 if turned else 0, shape[1])
    else:
        outputs = _grouped(state, node, name, inputs, shape[1])
    exact = not turned and not any(padding)
    mixing = Mixing(
        node, outputs, inputs, kernels.flatten(2), groups, const, exact, name, _name(state, bias)
    )
    _finish(state, mixing, bias, shape)


def _finish(state: State, mixing: Mixing, bias: Ref | None, shape: tuple[int, ...]) -> None:
    """Note a mixing, its bias and what is constant of its outputs."""
    state.assign(bias, 0, mixing.outputs)
    state.mixings.append(mixing)
    const = mixing.const.numpy()
    varies = np.isnan(const) if mixing.exact else const != 0
    total = mixing.sum_over(torch.from_numpy(np.where(varies, 0.0, const)))
    shift = state.numbers(bias)
    total = total if shift is None else total + shift
    total.numpy()[mixing.reads(varies)] = np.nan
    total = state.settled(mixing.outputs, total)
    state.put(mixing.node, channels(shape, 1, mixing.outputs, total))


def _name(state: State, ref: Ref | None) -> str | None:
    return None if ref is None else state.graph.parameters.get(ref.number)


def _grouped(state: State, node: Node, name: str, inputs: Tensor, out: int) -> Tensor:
    """The outputs of a grouped convolution: one that lives needs its group, inputs and all."""
    turned, groups = node.args[6], node.args[8]
    if len(inputs) == out == groups:  # depthwise: input and output are one channel
        outputs = state.grouped.setdefault(name, own_labels(state, name, 0, out))
        state.tie(outputs, inputs)
        return outputs
    known = state.groupings.get(name)
    if known is not None:  # run once more
        state.tie(known.inputs.reshape(-1), inputs)
        return known.outputs.reshape(-1)
    outputs = state.fresh(out)
    state.axes[name, 0] = inputs if turned else outputs
    grouping = Grouping(name, turned, inputs.reshape(groups, -1), outputs.reshape(groups, -1))
    state.groupings[name] = grouping
    return outputs


def _by_output(kernels: Tensor, groups: int) -> Tensor:
    """A transposed weight (inputs, outputs of a group, …) as (outputs, inputs of a group, …)."""
    blocks = kernels.reshape(groups, -1, *kernels.shape[1:])
    return blocks.transpose(1, 2).flatten(0, 1)


@rule("addmm", "mm", reads_weights=True)
def linear(state: State, node: Node) -> None:
    biased = str(node.op.overloadpacket) == "aten.addmm"
    bias, x, turned = node.args[:3] if biased else (None, *node.args[:2])
    weight, value, shape = state.get(turned), state.get(x), state.shape_of(node)
    inputs, const = held_along(value, 1)
    usual = weight.turned and not node.kwargs and weight.parameter not in state.graph.changing
    usual = usual and (bias is None or len(state.get(bias).shape) == 1)
    if weight.parameter is None or not usual:
        raise Barred
    name = weight.parameter
    kernels = state.graph.named[name].detach().unsqueeze(2)
    if (name, 1) in state.axes:
        state.tie(state.axes[name, 1], inputs)
    else:
        state.axes[name, 1] = inputs
    outputs = own_labels(state, name, 0, shape[1])
    mixing = Mixing(node, outputs, inputs, kernels, 1, const, True, name, _name(state, bias))
    _finish(state, mixing, bias, shape)
