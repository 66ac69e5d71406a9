"""Products of matrices that are both computed, as in attention."""

from __future__ import annotations

import torch

from ...recording.graph import Node
from ..state import Barred, State, rule
from ..values import NONE, Value
from .axes import even, pin_single, zero_kept


@rule("bmm")
def batched_product(state: State, node: Node) -> None:
    """Rows by columns: what is summed over stays unless it is zero on one side."""
    one, other = (state.get(ref) for ref in node.args)
    rows = one.labels.shape[1] > 1
    columns = other.labels.shape[2] > 1
    if one.labels.shape[0] > 1 or other.labels.shape[0] > 1 or (rows and columns):
        raise Barred
    for value in (one, other):
        pin_single(state, value)
    left, right = one.along(2), other.along(1)
    if rows or columns or left is None or right is None:
        for value, axis in ((one, 2), (other, 1)):
            if value.labels.shape[axis] > 1:
                state.pin(value.labels)
    else:
        state.tie(left[0], right[0])
        state.pin(left[0][(left[1] != 0) & (right[1] != 0)])
    labels = torch.full((1, 1, 1), NONE)
    const = torch.full((1, 1, 1), torch.nan, dtype=torch.float64)
    if rows:
        labels, const = one.labels[:, :, :1], zero_kept(even(one.const, [2]))
    elif columns:
        labels, const = other.labels[:, :1], zero_kept(even(other.const, [1]))
    state.put(node, Value(state.shape_of(node), labels, const))
