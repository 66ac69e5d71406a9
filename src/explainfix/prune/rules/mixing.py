"""What convolutions and linear layers do to channels: every output is a sum over inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Node, Ref
from ..state import Mixing, State, rule
from ..values import channels


@rule("convolution")
def convolution(state: State, node: Node) -> None:
    x, weight_ref, bias, _, padding, _, turned, _, groups = node.args[:9]
    weight, value, shape = state.get(weight_ref), state.get(x), state.shape_of(node)
    held = value.along(1)
    if held is None or weight.parameter not in state.graph.kernels:
        state.bar(node)  # a weight that is computed, or whose groups are counted elsewhere
        return
    inputs, const = held
    kernels = state.graph.tensors[weight_ref.number].detach()
    if turned:
        kernels = _by_output(kernels, groups)
    name = weight.parameter
    if groups == 1:
        state.assign(weight_ref, 0 if turned else 1, inputs)
        first = 1 if turned else 0
        if (name, first) not in state.axes:
            state.axes[name, first] = state.fresh(shape[1])
        outputs = state.axes[name, first]
    else:
        outputs = _grouped(state, name, inputs, shape[1], groups)
        state.axes[name, 0] = inputs if turned else outputs
    exact = not turned and not any(padding)
    mixing = Mixing(
        node, outputs, inputs, kernels.flatten(2), groups, const, exact, name, _name(state, bias)
    )
    _finish(state, mixing, bias, shape)


def _finish(state: State, mixing: Mixing, bias: Ref | None, shape: tuple[int, ...]) -> None:
    """Note a mixing, its bias and what is constant of its outputs."""
    state.assign(bias, 0, mixing.outputs)
    state.mixings.append(mixing)
    usable = mixing.const == 0
    if mixing.exact:
        usable |= ~mixing.const.isnan()
    total = mixing.sum_over(torch.where(usable, mixing.const, 0.0))
    if bias is not None:
        total = total + state.graph.tensors[bias.number].detach().double().cpu()
    total[torch.from_numpy(mixing.reads(~usable.numpy()))] = torch.nan  # these vary
    total = state.settled(mixing.outputs, total)
    state.put(mixing.node, channels(shape, 1, mixing.outputs, total))


def _name(state: State, ref: Ref | None) -> str | None:
    return None if ref is None else state.graph.parameters.get(ref.number)


def _grouped(state: State, name: str, inputs: Tensor, out: int, groups: int) -> Tensor:
    """Each group goes as a whole: its inputs and outputs are tied to one label."""
    if name not in state.grouped:
        state.grouped[name] = state.fresh(groups)
    labels = state.grouped[name]
    state.tie(labels.repeat_interleave(len(inputs) // groups), inputs)
    return labels.repeat_interleave(out // groups)


def _by_output(kernels: Tensor, groups: int) -> Tensor:
    """A transposed weight (inputs, outputs of a group, …) as (outputs, inputs of a group, …)."""
    blocks = kernels.reshape(groups, -1, *kernels.shape[1:])
    return blocks.transpose(1, 2).flatten(0, 1)


@rule("addmm", "mm")
def linear(state: State, node: Node) -> None:
    biased = str(node.op.overloadpacket) == "aten.addmm"
    bias, x, turned = node.args[:3] if biased else (None, *node.args[:2])
    weight, value, shape = state.get(turned), state.get(x), state.shape_of(node)
    held = value.along(1)
    if held is None or weight.parameter is None or not weight.turned or node.kwargs:
        state.bar(node)
        return
    inputs, const = held
    name = weight.parameter
    kernels = state.graph.named[name].detach().unsqueeze(2)
    if (name, 1) in state.axes:
        state.tie(state.axes[name, 1], inputs)
    else:
        state.axes[name, 1] = inputs
    if (name, 0) not in state.axes:
        state.axes[name, 0] = state.fresh(shape[1])
    outputs = state.axes[name, 0]
    mixing = Mixing(node, outputs, inputs, kernels, 1, const, True, name, _name(state, bias))
    _finish(state, mixing, bias, shape)
