"""Softmax, products of matrices, attention."""

from __future__ import annotations

import torch

from ..graph import Node
from ..state import State, rule
from ..values import Value


@rule("_softmax", "_log_softmax")
def softmax(state: State, node: Node) -> None:
    value = state.get(node.inputs[0])
    if value.labels.shape[node.args[1] % len(value.shape)] > 1:
        state.bar(node)
        return
    nothing = torch.full((1,) * len(value.shape), torch.nan, dtype=torch.float64)
    state.put(node, Value(value.shape, value.labels, nothing))


@rule("bmm")
def batched_product(state: State, node: Node) -> None:
    """Rows by columns: what is summed over stays unless it is nought on one side."""
    one, other = (state.get(ref) for ref in node.inputs)
    rows = one.labels.shape[1] > 1
    columns = other.labels.shape[2] > 1
    if one.labels.shape[0] > 1 or other.labels.shape[0] > 1 or (rows and columns):
        state.bar(node)
        return
    left, right = one.along(2), other.along(1)
    if rows or columns or left is None or right is None:
        for value, axis in ((one, 2), (other, 1)):
            if value.labels.shape[axis] > 1:
                state.pin(value.labels)
    else:
        state.tie(left[0], right[0])
        state.pin(left[0][(left[1] != 0) & (right[1] != 0)])
    labels = one.labels[:, :, :1] if rows else other.labels[:, :1]
    unknown = torch.full((1, 1, 1), torch.nan, dtype=torch.float64)
    state.put(node, Value(state.shape_of(node), labels, unknown))


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention")
def attention(state: State, node: Node) -> None:
    """Queries and keys are compared as a whole; the channels of the values pass."""
    query, key, value = (state.get(ref) for ref in node.args[:3])
    rest = node.inputs[3:]
    if rest or any(value.labels.shape[axis] > 1 for axis in range(len(value.shape) - 1)):
        state.bar(node)
        return
    state.pin(query.labels)
    state.pin(key.labels)
    unknown = torch.full((1,) * len(value.shape), torch.nan, dtype=torch.float64)
    state.put(node, Value(state.shape_of(node), value.labels, unknown))
