"""The arguments of an operation by name, and what is known of a value along some of its axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ...private import schema
from ...recording.graph import Node
from ..state import Barred, State
from ..values import Value


def argument(node: Node, name: str) -> Any:
    """An argument by the name that the operation's schema gives it; `None` if it has no such."""
    for place, described in enumerate(schema(node.op).arguments):
        if described.name == name:
            if place < len(node.args):
                return node.args[place]
            return node.kwargs.get(name, described.default_value)
    return None


def axes_of(node: Node, value: Value) -> list[int]:
    """The axes that `dim` names: all of them if it names none."""
    named = argument(node, "dim")
    named = named if isinstance(named, (list, tuple)) else [] if named is None else [named]
    rank = len(value.shape)
    return [axis % rank for axis in named] if rank and named else list(range(rank))


def labelled(value: Value, axes: Iterable[int]) -> bool:
    """Whether channels lie along one of these axes."""
    return any(value.labels.shape[axis] > 1 for axis in axes)


def held_along(value: Value, axis: int) -> tuple[Tensor, Tensor]:
    """The labels and constants of channels that all lie along one axis."""
    held = value.along(axis)
    if held is None:
        raise Barred
    return held


def keep_off(state: State, value: Value, axes: Iterable[int]) -> None:
    """No channels may lie along these axes, and a single one stays."""
    if labelled(value, axes):
        raise Barred
    pin_single(state, value)


def own_labels(state: State, name: str, axis: int, count: int) -> Tensor:
    """The labels of a weight's outputs, new ones if it was not met yet."""
    if (name, axis) not in state.axes:
        state.axes[name, axis] = state.fresh(count)
    return state.axes[name, axis]


def pin_single(state: State, value: Value) -> None:
    """A single channel stays: its axis cannot be told from the others, and may be looked along."""
    if value.labels.numel() == 1:
        state.pin(value.labels)


def even(const: Tensor, axes: Iterable[int]) -> Tensor:
    """The constants that are the same along these axes, which get length one."""
    if not const.numel():  # nothing is in it
        return torch.full([1] * const.dim(), torch.nan, dtype=torch.float64)
    for axis in axes:
        first = const.narrow(axis, 0, 1)
        const = torch.where((const == first).all(axis, keepdim=True), first, torch.nan)
    return const


def kept(const: Tensor) -> Tensor:
    """Every constant stays what it is."""
    return const


def zero_kept(const: Tensor) -> Tensor:
    """Only zero stays what it is."""
    return torch.where(const == 0, const, torch.nan)


def lost(const: Tensor) -> Tensor:
    """No constant is left."""
    return torch.full_like(const, torch.nan)
