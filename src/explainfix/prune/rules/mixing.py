"""What convolutions and linear layers do to channels: every output is a sum over inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Node
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
    uses = (kernels != 0).flatten(2).any(2).cpu()
    sums = kernels.double().flatten(2).sum(2).cpu()
    if turned:
        uses, sums = _by_output(uses, groups), _by_output(sums, groups)
    exact = not turned and not any(padding)
    name = weight.parameter
    offset = state.graph.tensors[bias.number].detach().double().cpu() if bias else None
    if groups == 1:
        state.assign(weight_ref, 0 if turned else 1, inputs)
        first = 1 if turned else 0
        if (name, first) not in state.axes:
            state.axes[name, first] = state.fresh(shape[1])
        outputs = state.axes[name, first]
    else:
        outputs, uses, sums = _grouped(state, name, inputs, shape[1], groups, uses, sums)
        state.axes[name, 0] = inputs if turned else outputs
    state.assign(bias, 0, outputs)
    bias_name = state.graph.parameters.get(bias.number) if bias else None
    state.mixings.append(Mixing(node, outputs, inputs, uses, sums, const, exact, name, bias_name))
    total = state.settled(outputs, _summed(uses, sums, const, offset, exact))
    state.put(node, channels(shape, 1, outputs, total))


def _grouped(
    state: State, name: str, inputs: Tensor, out: int, groups: int, uses: Tensor, sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Each group goes as a whole: its inputs and outputs are tied to one label."""
    if name not in state.grouped:
        state.grouped[name] = state.fresh(groups)
    labels = state.grouped[name]
    width = len(inputs) // groups
    outputs = labels.repeat_interleave(out // groups)
    state.tie(labels.repeat_interleave(width), inputs)
    rows = torch.arange(out).unsqueeze(1)
    columns = (rows // (out // groups)) * width + torch.arange(width)
    spread = []
    for table in (uses, sums):  # the blocks of the groups, over all inputs
        whole = torch.zeros(out, len(inputs), dtype=table.dtype)
        whole[rows, columns] = table
        spread.append(whole)
    return outputs, spread[0], spread[1]


def _by_output(table: Tensor, groups: int) -> Tensor:
    """A transposed weight's table (inputs, outputs per group) as (outputs, inputs per group)."""
    blocks = table.reshape(groups, table.shape[0] // groups, table.shape[1])
    return blocks.transpose(1, 2).reshape(-1, table.shape[0] // groups)


def _summed(
    uses: Tensor, sums: Tensor, const: Tensor, offset: Tensor | None, exact: bool
) -> Tensor:
    """The outputs that are constant: all their inputs with a weight are, away from any border."""
    usable = (const == 0) | (~const.isnan() if exact else torch.zeros_like(const, dtype=torch.bool))
    varying = (uses & ~usable).any(1)
    total = sums @ torch.where(usable, const, 0.0)
    total = total if offset is None else total + offset
    return torch.where(varying, torch.nan, total)


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
    raw = state.graph.tensors[turned.number].detach().T.cpu()
    if (name, 1) in state.axes:
        state.tie(state.axes[name, 1], inputs)
    else:
        state.axes[name, 1] = inputs
    if (name, 0) not in state.axes:
        state.axes[name, 0] = state.fresh(shape[1])
    outputs = state.axes[name, 0]
    if biased:
        state.assign(bias, 0, outputs)
    bias_name = state.graph.parameters.get(bias.number) if bias else None
    offset = state.graph.tensors[bias.number].detach().double().cpu() if bias else None
    uses = raw != 0
    sums = raw.double()
    state.mixings.append(Mixing(node, outputs, inputs, uses, sums, const, True, name, bias_name))
    total = state.settled(outputs, _summed(uses, sums, const, offset, True))
    state.put(node, channels(shape, 1, outputs, total))
