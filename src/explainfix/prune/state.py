"""What the rules find out about a recorded pass, and the walk through it.

An operation without a rule is a barrier: the channels that enter it stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .graph import Graph, Node, Ref, replaced
from .values import NONE, Value, channels, plain

Rule = Callable[["State", Node], None]
RULES: dict[str, Rule] = {}


@dataclass
class Mixing:
    """An operation whose every output channel is a weighted sum over input channels.

    `kernels` is `(outputs, inputs of a group, elements)`, with the inputs' constants in `const`.
    """

    node: Node
    outputs: Tensor
    inputs: Tensor
    kernels: Tensor
    groups: int
    const: Tensor
    exact: bool  # it adds a constant everywhere, at the border of the image as well
    weight: str
    bias: str | None

    @cached_property
    def uses(self) -> NDArray[np.bool_]:
        """Which output has a weight for which input of its group, `(groups, outputs, inputs)`.

        In NumPy, which takes `any` of Booleans many times faster.
        """
        single = self.kernels.shape[2] == 1
        size = self.kernels[:, :, 0] if single else self.kernels.abs().sum(2)
        if size.dtype == torch.bfloat16:  # unknown to NumPy
            size = size.float()
        used: NDArray[np.bool_] = size.cpu().numpy() != 0  # nought only if every weight is
        return used.reshape(self.groups, -1, used.shape[1])

    def read_by(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which inputs some of the chosen outputs have a weight for."""
        if self.groups == 1:
            read: NDArray[np.bool_] = self.uses[0][rows].any(0)
            return read
        return (self.uses & rows.reshape(self.groups, -1, 1)).any(1).reshape(-1)

    def reads(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which outputs have a weight for some of the chosen inputs."""
        return (self.uses & chosen.reshape(self.groups, 1, -1)).any(2).reshape(-1)

    def sum_over(self, const: Tensor) -> Tensor:
        """What inputs with these constants add to each output, away from the border."""
        filled = const != 0
        if not bool(filled.any()):
            return torch.zeros(len(self.outputs), dtype=torch.float64)
        if self.groups == 1:
            sums = self.kernels[:, filled.to(self.kernels.device)].double().sum(2).cpu()
            return sums @ const[filled]
        sums = self.kernels.double().sum(2).cpu().reshape(self.groups, -1, self.kernels.shape[1])
        return (sums * const.reshape(self.groups, 1, -1)).sum(2).reshape(-1)


@dataclass
class Barrier:
    """An operation that was not understood, and how many channels stay because of it."""

    operation: str
    module: str
    channels: int


@dataclass(frozen=True)
class Written:
    """A number of channels, or a list of them, that a module keeps as an attribute of its own."""

    module: str
    attribute: str
    parts: tuple[Tensor, ...]  # the labels that it counts
    several: bool  # a list with a number per part


class Trust:
    """How far a split or a reshape is believed to follow the channels, per class of module.

    What a pass does not show is where its numbers come from. First guess: from an attribute of the
    module that equals them, which is then rewritten; second: from the shape of the input; if
    neither runs: they are written into the code, and the channels stay.
    """

    REWRITE, FOLLOW, STAY = range(3)

    def __init__(self) -> None:
        self.levels: dict[type, int] = {}
        self.nothing = False

    def level(self, module: nn.Module) -> int:
        return self.STAY if self.nothing else self.levels.get(type(module), self.REWRITE)

    def lose(self, guesses: list[nn.Module]) -> None:
        """A cut failed: believe the last guess less, or nothing any more."""
        for module in reversed(guesses):
            if self.level(module) < self.STAY:
                self.levels[type(module)] = self.level(module) + 1
                return
        self.nothing = True


@dataclass
class State:
    """Everything found so far, filled in by the rules as they walk through the graph."""

    graph: Graph
    trust: Trust = field(default_factory=Trust)
    dropping: bool = False  # constant channels count as nought
    training: bool = False  # find out about constants in training
    values: dict[int, Value] = field(default_factory=dict)
    count: int = 0  # channels numbered so far
    ties: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    pinned: list[Tensor] = field(default_factory=list)
    axes: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    grouped: dict[str, Tensor] = field(default_factory=dict)  # weight → a label per group
    mixings: list[Mixing] = field(default_factory=list)
    ghosts: list[Tensor] = field(default_factory=list)  # labels of constants taken for nought
    written: dict[tuple[str, str], Written] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)  # modules whose numbers were guessed
    barriers: list[Barrier] = field(default_factory=list)

    def fresh(self, count: int) -> Tensor:
        """New labels."""
        self.count += count
        return torch.arange(self.count - count, self.count)

    def get(self, ref: Ref) -> Value:
        """What is known about a value: nothing, if no rule said anything about it."""
        if ref.number not in self.values:
            self.values[ref.number] = self._start(ref)
        return self.values[ref.number]

    def _start(self, ref: Ref) -> Value:
        name, shape = self.graph.parameters.get(ref.number), self.graph.shapes[ref.number]
        if name is None:
            return plain(shape)
        tensor = self.graph.tensors[ref.number]
        long = [axis for axis, size in enumerate(shape) if size > 1]
        if len(long) != 1 or name in self.graph.kernels:
            value = plain(shape)
            return Value(shape, value.labels, value.const, name)
        labels = self.axes.get((name, long[0]))
        if labels is None:
            labels = self.axes[name, long[0]] = self.fresh(shape[long[0]])
        known = channels(shape, long[0], labels, tensor.detach().double().cpu().reshape(-1))
        return Value(shape, known.labels, known.const, name)

    def put(self, node: Node, value: Value, index: int = 0) -> None:
        self.values[node.outputs[index].number] = value

    def tie(self, one: Tensor, other: Tensor) -> None:
        """These channels go together or not at all; no channel on one side pins the other."""
        known = (one != NONE) & (other != NONE)
        if bool(known.all()):
            self.ties.append((one, other))
            return
        if bool(known.any()):
            self.ties.append((one[known], other[known]))
        self.pin(one[(other == NONE)])
        self.pin(other[(one == NONE)])

    def pin(self, labels: Tensor) -> None:
        """These channels stay."""
        labels = labels.reshape(-1)
        labels = labels[labels != NONE]
        if len(labels):
            self.pinned.append(labels)

    def pin_sized(self, sizes: tuple[int, ...]) -> None:
        """Whatever has as many channels as one of these numbers stays."""
        for value in self.values.values():
            if any(length > 1 and length in sizes for length in value.labels.shape):
                self.pin(value.labels)

    def assign(self, ref: Any, axis: int, labels: Tensor) -> None:
        """An axis of a parameter has these channels: it is cut when they are."""
        if not isinstance(ref, Ref):
            return
        name = self.graph.parameters.get(ref.number)
        if name is None:
            held = self.get(ref).along(axis)
            self.pin(labels) if held is None else self.tie(held[0], labels)
        elif (name, axis) in self.axes:
            self.tie(self.axes[name, axis], labels)
        else:
            self.axes[name, axis] = labels

    def write(self, node: Node, attribute: str, parts: list[Tensor], *, several: bool) -> None:
        """An attribute of the running module counts these channels: it changes with them."""
        key = node.module, attribute
        if key in self.written:
            for old, new in zip(self.written[key].parts, parts, strict=True):
                self.tie(old, new)
        self.written[key] = Written(node.module, attribute, tuple(parts), several)

    def attributes(self, node: Node, number: int | list[int]) -> list[str]:
        """The names under which the running module keeps a number, or a list of numbers."""
        module = self.graph.modules[node.module]
        if type(module).__module__.startswith("torch.nn") or (
            self.trust.level(module) != Trust.REWRITE
        ):
            return []
        kinds = (int,) if isinstance(number, int) else (list, tuple)
        return [
            name
            for name, held in vars(module).items()
            if type(held) in kinds and (held if isinstance(held, int) else list(held)) == number
        ]

    def guess(self, node: Node) -> int:
        """How far to believe that the numbers of this operation follow the channels."""
        self.guesses.append(node.module)
        return self.trust.level(self.graph.modules[node.module])

    def settled(self, labels: Tensor, const: Tensor) -> Tensor:
        """The constants of a layer's outputs, noughts if ghosts are to go as in the paper."""
        ghost = ~const.isnan() & (const != 0)
        if not self.dropping or not bool(ghost.any()):
            return const
        self.ghosts.append(labels[ghost & (labels != NONE)])
        return torch.where(ghost, 0.0, const)

    def bar(self, node: Node) -> None:
        """Let every channel that enters this operation stay."""
        held = [self.get(ref).labels.reshape(-1) for ref in node.inputs]
        labels = torch.cat([*held, torch.empty(0, dtype=torch.long)])
        labels = labels[labels != NONE].unique()
        self.pin(labels)
        self.barriers.append(Barrier(str(node.op), node.module, len(labels)))
        for index, ref in enumerate(node.outputs):
            self.put(node, plain(self.graph.shapes[ref.number]), index)

    def shape_of(self, node: Node, index: int = 0) -> tuple[int, ...]:
        return self.graph.shapes[node.outputs[index].number]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ATen operations by name, without overload or trailing underscore."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return add


def apply_rules(state: State) -> State:
    """Walk through the graph once."""
    graph = state.graph
    for node in graph.nodes:
        if not node.inputs:  # made of nothing: it has no channels
            continue
        name = str(node.op.overloadpacket).removeprefix("aten.")
        inner = name.removesuffix("_")
        if inner != name and node.into_part:
            state.bar(node)
            state.pin(torch.arange(state.count))  # whatever else looks at that memory
            continue
        RULES.get(inner, State.bar)(state, node)
    for ref in graph.outputs:
        state.pin(state.get(ref).labels)
    return state


def functional(op: Any) -> Any:
    """The operation that does the same without writing in place."""
    name = str(op.overloadpacket).removeprefix("aten.").removesuffix("_")
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, op._overloadname)


def with_values(tree: Any, replace: Callable[[Ref], Any]) -> Any:
    return replaced(tree, Ref, replace)


def run_on(node: Node, tensors: tuple[Tensor, ...]) -> Any:
    """Run a shape operation on other tensors in place of its inputs."""
    given = iter(tensors)
    args = with_values(node.args, lambda _: next(given))
    return node.op(*args, **node.kwargs)


def listed(result: Any) -> list[Tensor]:
    found: list[Tensor] = []
    replaced(result, Tensor, found.append)
    return found
