"""The operations of forward passes, as ATen calls: what a model does, whatever it looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

# Operations that draw random numbers, one for every element.
CHANCE = ("bernoulli", "uniform", "normal", "exponential", "rand", "randn", "rand_like",
          "randn_like", "native_dropout")  # fmt: skip


@dataclass(frozen=True)
class Ref:
    """A value in the graph: the number of a tensor at one point of a pass."""

    number: int


@dataclass(frozen=True)
class View:
    """How a tensor looks into the memory of another one: `op` with `None` in that one's place."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int  # which of the operation's results

    def of(self, base: Tensor | Ref) -> tuple[Any, ...]:
        """The arguments, with the one that is looked into."""
        return (base, *self.args[1:])

    def look(self, base: Tensor) -> Tensor:
        """The same look into another tensor of that shape."""
        found: list[Tensor] = []
        replaced(self.op(*self.of(base), **self.kwargs), Tensor, found.append)
        return found[self.index]


@dataclass(frozen=True)
class Node:
    """One operation: its ATen overload, its arguments with `Ref` for tensors, and what it made."""

    op: Any
    name: str  # without overload, "aten." and the underscore of operations in place
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Ref, ...]
    module: str  # the path of the module that was running
    place: int  # the how manieth operation of that module
    training: bool

    @cached_property
    def inputs(self) -> list[Ref]:
        found: list[Ref] = []
        replaced((self.args, self.kwargs), Ref, found.append)
        return found


@dataclass
class Graph:
    """Recorded passes, one after the other. Of activations it keeps the shapes alone."""

    nodes: list[Node] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)  # parameters, buffers, vectors
    parameters: dict[int, str] = field(default_factory=dict)  # value → name of parameter or buffer
    literals: set[int] = field(default_factory=set)  # values that came from nowhere: Python numbers
    changing: set[str] = field(default_factory=set)  # buffers that a pass in evaluation writes
    kernels: set[str] = field(default_factory=set)  # the weights that belong to a convolution
    modules: dict[str, nn.Module] = field(default_factory=dict)
    outputs: list[Ref] = field(default_factory=list)
    results: list[Tensor] = field(default_factory=list)  # what the outputs in evaluation are

    @cached_property
    def named(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return {name: self.tensors[number] for number, name in self.parameters.items()}

    @property
    def draws(self) -> bool:
        """Whether random numbers are drawn in evaluation."""
        return any(node.name in CHANCE for node in self.nodes if not node.training)

    @cached_property
    def values_of(self) -> dict[str, list[Ref]]:
        """The name of a parameter or buffer → the values it has in the course of the passes."""
        found: dict[str, list[Ref]] = {}
        for number, name in self.parameters.items():
            found.setdefault(name, []).append(Ref(number))
        return found

    @cached_property
    def readers(self) -> dict[Ref, list[Node]]:
        """Value → the operations that read it."""
        found: dict[Ref, list[Node]] = {}
        for node in self.nodes:
            for ref in dict.fromkeys(node.inputs):
                found.setdefault(ref, []).append(node)
        return found


_PLAIN = (int, float, bool, type(None))


def replaced(tree: Any, kind: type, replace: Callable[[Any], Any]) -> Any:
    """The same arguments, with every leaf of a kind replaced: the part of a pytree used here."""
    if isinstance(tree, kind):
        return replace(tree)
    if isinstance(tree, (list, tuple)):
        other = () if kind in _PLAIN else _PLAIN  # most leaves are numbers
        leaves = [x if type(x) in other else replaced(x, kind, replace) for x in tree]
        return tuple(leaves) if type(tree) is tuple else type(tree)(leaves)
    if isinstance(tree, dict) and tree:
        return {key: replaced(leaf, kind, replace) for key, leaf in tree.items()}
    return tree


@cache
def rule_name(op: Any) -> str:
    """The name under which an operation's rule is found.

    >>> import torch
    >>> rule_name(torch.ops.aten.add_.Tensor), rule_name(torch.ops.prims.sum.default)
    ('add', 'prims.sum')
    """
    return str(op.overloadpacket).removeprefix("aten.").removesuffix("_")


@cache
def functional(op: Any) -> Any:
    """The operation that does the same without writing in place."""
    packet, overload = getattr(torch.ops.aten, rule_name(op)), str(op).rpartition(".")[2]
    return getattr(packet, overload if overload in packet.overloads() else packet.overloads()[0])
