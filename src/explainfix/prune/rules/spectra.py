"""Fourier transforms and complex numbers: zero stays zero."""

from __future__ import annotations

from ...recording.graph import Node
from ..state import State, rule
from ..values import Value
from .axes import axes_of, even, keep_off, zero_kept


@rule("_fft_r2c", "_fft_c2r", "_fft_c2c")
def transform(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    axes = axes_of(node, value)
    keep_off(state, value, axes)
    const = zero_kept(even(value.const, axes))
    state.put(node, Value(state.shape_of(node), value.labels, const))


@rule("view_as_real")
def parts(state: State, node: Node) -> None:
    """A last axis of real and imaginary parts."""
    value = state.get(node.args[0])
    const = zero_kept(value.const)[..., None]
    state.put(node, Value(state.shape_of(node), value.labels[..., None], const))


@rule("view_as_complex")
def joined(state: State, node: Node) -> None:
    value = state.get(node.args[0])
    last = len(value.shape) - 1
    keep_off(state, value, [last])
    const = zero_kept(even(value.const, [last]))[..., 0]
    state.put(node, Value(state.shape_of(node), value.labels[..., 0], const))
