"""Normalisation: what becomes of constants, and which channels depend on each other."""

from __future__ import annotations

from ...recording.graph import Node, Ref
from ..state import Barred, State, rule
from ..values import Value, channels, unknown
from .axes import held_along, keep_off


@rule("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
def batch_norm(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    labels, const = held_along(value, 1)
    without = str(node.op.overloadpacket) == "aten._native_batch_norm_legit_no_training"
    from_batch = not without and bool(node.args[5])
    if not (from_batch or all(isinstance(ref, Ref) for ref in node.args[3:5])):
        raise Barred
    for ref in node.args[1:5]:
        state.assign(ref, 0, labels)
    weight, bias, mean, var = (state.numbers(ref) for ref in node.args[1:5])
    if from_batch or state.training or mean is None or var is None:
        const = const * 0  # a constant is its own mean, and nothing is left of it
    else:
        eps = node.args[6 if without else 7]
        const = (const - mean) / (var + eps).sqrt()
    const = const if weight is None else const * weight
    const = const if bias is None else const + bias
    state.put(node, channels(value.shape, 1, labels, state.settled(labels, const)))


@rule("native_group_norm")
def group_norm(state: State, node: Node) -> None:
    x, weight, bias, _, _, _, groups, eps = node.args
    value = state.get(x)
    labels, const = held_along(value, 1)
    name = state.graph.parameters.get(weight.number) if isinstance(weight, Ref) else None
    if name is None:
        raise Barred
    if name not in state.grouped:
        state.grouped[name] = state.fresh(groups)
    whole = state.grouped[name].repeat_interleave(len(labels) // groups)
    state.tie(whole, labels)  # a group's channels share a mean: they go together
    if groups < len(labels):
        state.because(node, labels)
    for ref in (weight, bias):
        state.assign(ref, 0, labels)
    parts = const.reshape(groups, -1)
    spread = parts.var(1, correction=0, keepdim=True)
    const = ((parts - parts.mean(1, keepdim=True)) / (spread + eps).sqrt()).reshape(-1)
    gain, shift = state.numbers(weight), state.numbers(bias)
    const = const if gain is None else const * gain
    const = const if shift is None else const + shift
    state.put(node, channels(value.shape, 1, labels, state.settled(labels, const)))


@rule("native_layer_norm")
def layer_norm(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    over = range(len(value.shape) - len(node.args[1]), len(value.shape))
    keep_off(state, value, over)  # the mean is over these channels: each one counts
    for ref in node.inputs[1:]:
        state.pin(state.get(ref).labels)
    state.put(node, Value(value.shape, value.labels, unknown(len(value.shape))))
