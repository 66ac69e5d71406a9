"""What the rules find out about recorded passes, and the walk through them.

An operation without a rule is a barrier: the channels that enter it stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..recording.graph import Graph, Node, Ref, replaced
from ..recording.graph import functional as functional
from .trust import Key, Trust, Written, attributes_equal, key_of
from .values import NONE, WILD, Grouping, Mixing, Value, channels, plain, unknown

Rule = Callable[["State", Node], None]
RULES: dict[str, Rule] = {}
READS_WEIGHTS: set[str] = set()  # operations whose rule says what becomes of a weight's axes


_WHY = {
    "native_layer_norm": "its mean is over all channels",
    "native_group_norm": "the channels of a group share their statistics",
    "_softmax": "it weighs all channels against each other",
    "convolution": "its weight or the place of its channels is computed",
    "randn_like": "noise is drawn for every channel",
}


@dataclass(frozen=True)
class Barrier:
    """Why channels stay: an operation that needs all of them, or that was not understood."""

    operation: str
    module: str
    channels: int

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        name = self.operation.removeprefix("aten.").partition(".")[0].removesuffix("_")
        why = f" ({_WHY[name]})" if name in _WHY else ""
        return f"{self.operation}{where}{why}"


@dataclass
class State:
    """Everything found so far, filled in by the rules as they walk through the graph."""

    graph: Graph
    trust: Trust = field(default_factory=Trust)
    dropping: bool = False  # constant channels count as zero
    training: bool = False  # find out about constants in training
    values: dict[int, Value] = field(default_factory=dict)
    unset: dict[int, Tensor] = field(default_factory=dict)  # value → elements not written yet
    count: int = 0  # channels numbered so far
    ties: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    pinned: list[Tensor] = field(default_factory=list)
    axes: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    grouped: dict[str, Tensor] = field(default_factory=dict)  # GroupNorm → a label per group
    groupings: dict[str, Grouping] = field(default_factory=dict)  # by weight
    mixings: list[Mixing] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)  # labels of layers' constant outputs
    written: dict[tuple[str, str, int | None], Written] = field(default_factory=dict)
    guessed: list[Node] = field(default_factory=list)  # operations whose numbers were guessed
    untried: set[Key] = field(default_factory=set)  # those with other guesses left
    barred: dict[tuple[str, str], list[Tensor]] = field(default_factory=dict)
    node: Node | None = None  # the operation that is being looked at

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
        varies = tensor.is_complex() or name in self.graph.changing
        if len(long) != 1 or name in self.graph.kernels or tensor.is_complex():
            known = tensor.numel() == 1 and not varies
            value = plain(shape, const=float(tensor.detach()) if known else torch.nan)
            return Value(shape, value.labels, value.const, name)
        labels = self.axes.get((name, long[0]))
        if labels is None:
            labels = self.axes[name, long[0]] = self.fresh(shape[long[0]])
        value = channels(shape, long[0], labels, tensor.detach().double().cpu().reshape(-1))
        const = unknown(len(shape)) if varies else value.const
        return Value(shape, value.labels, const, name)

    def numbers(self, ref: Any) -> Tensor | None:
        """What a bias, a gain or a statistic holds, NaN where that varies; `None` without one."""
        if not isinstance(ref, Ref):
            return None
        name = self.graph.parameters.get(ref.number)
        if name is not None and name not in self.graph.changing:
            return self.graph.tensors[ref.number].detach().double().cpu()
        held = self.get(ref).along(0)
        return torch.full((1,), torch.nan, dtype=torch.float64) if held is None else held[1]

    def put(self, node: Node, value: Value, index: int = 0) -> None:
        self.values[node.outputs[index].number] = value

    def tie(self, one: Tensor, other: Tensor) -> None:
        """These channels go together or not at all; no channel on one side pins the other."""
        known = (one >= 0) & (other >= 0)
        if bool(known.all()):
            self.ties.append((one, other))
            return
        if bool(known.any()):
            self.ties.append((one[known], other[known]))
        self.pin(one[other == NONE])
        self.pin(other[one == NONE])
        met = torch.cat([one[other == WILD], other[one == WILD]])
        if bool((met >= 0).any()):
            self.follow(met)

    def follow(self, labels: Tensor) -> None:
        """A guess: what was made to be joined with these channels is as large as they are."""
        assert self.node is not None
        if not self.choose(self.node, [lambda: None]):
            self.pin(labels)

    def pin(self, labels: Tensor) -> None:
        """These channels stay."""
        labels = labels.reshape(-1)
        labels = labels[labels >= 0]
        if len(labels):
            self.pinned.append(labels)

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

    def choose(self, node: Node, guesses: list[Callable[[], None]]) -> bool:
        """Make the first guess about an operation that has not failed yet, if there is one."""
        failed = self.trust.failed(self.graph, node)
        if not self.guessed or self.guessed[-1] is not node:
            self.guessed.append(node)
        if failed >= len(guesses):
            return False
        self.untried.add(key_of(self.graph, node))
        guesses[failed]()
        return True

    def write(self, node: Node, attribute: tuple[str, int | None], labels: Tensor) -> None:
        """An attribute of the running module counts these channels: it changes with them."""
        name, item = attribute
        key = node.module, name, item
        if key in self.written:
            self.tie(self.written[key].labels, labels)
        self.written[key] = Written(node.module, name, item, labels)

    def attributes(self, node: Node, number: int) -> list[tuple[str, int | None]]:
        """Where the running module keeps a number."""
        return attributes_equal(self.graph.modules[node.module], number)

    def settled(self, labels: Tensor, const: Tensor) -> Tensor:
        """The constants of a layer's outputs, zeros if ghosts are to go as in the paper."""
        numbers = const.numpy()
        ghost = torch.from_numpy((numbers != 0) & (numbers == numbers))  # NaN is not
        if not bool(ghost.any()):
            return const
        self.constants.append(labels[ghost & (labels >= 0)])
        return torch.where(ghost, 0.0, const) if self.dropping else const

    def bar(self, node: Node) -> None:
        """Let every channel that enters this operation stay."""
        for ref in node.inputs:
            self.because(node, self.get(ref).labels)
            self.pin(self.get(ref).labels)
        for index, ref in enumerate(node.outputs):
            self.put(node, plain(self.graph.shapes[ref.number]), index)

    def because(self, node: Node, labels: Tensor) -> None:
        """Remember an operation as a reason why these channels may stay."""
        labels = labels[labels >= 0]
        if len(labels):
            self.barred.setdefault((str(node.op), node.module), []).append(labels)

    def shape_of(self, node: Node, index: int = 0) -> tuple[int, ...]:
        return self.graph.shapes[node.outputs[index].number]


class Barred(Exception):  # noqa: N818
    """Raised by a rule: every channel that enters the operation stays."""


def rule(*names: str, reads_weights: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operations by name, without "aten.", overload or trailing underscore.

    The rule gets the `State` and the `Node` and says what becomes of the channels: `state.get` what
    is known of a value, `state.put` what is known of a result, `state.tie` channels that go
    together, `state.pin` those that stay; where it cannot tell it raises `Barred`. A weight of
    several axes that an operation reads is not cut, unless its rule `reads_weights` and says by
    `state.assign` which channels its axes are. A name that has a rule already is refused.
    """

    def add(function: Rule) -> Rule:
        taken = [name for name in names if name in RULES]
        if taken:
            raise ValueError(f"there is a rule for {', '.join(map(repr, taken))} already")
        RULES.update(dict.fromkeys(names, function))
        READS_WEIGHTS.update(names if reads_weights else ())
        return function

    return add


def apply_rules(state: State) -> State:
    """Walk through the graph once."""
    graph = state.graph
    raw: set[str] = set()  # parameters that are computed with
    seen: set[str] = set()  # weights that evaluation uses: what training does with them is no news
    for node in graph.nodes:
        state.node, before = node, len(state.mixings)
        if node.name not in READS_WEIGHTS:
            raw.update(graph.parameters.get(ref.number, "") for ref in node.inputs)
        if isinstance(graph.modules[node.module], nn.RNNBase):
            state.bar(node)  # how often it repeats depends on the input
        elif node.inputs or node.name in RULES:
            try:
                RULES.get(node.name, State.bar)(state, node)
            except Barred:
                state.bar(node)
        if not node.training:
            seen.update(mixing.weight for mixing in state.mixings[before:])
        else:
            added = [mixing for mixing in state.mixings[before:] if mixing.weight not in seen]
            state.mixings[before:] = added
    for ref in graph.outputs:
        state.pin(state.get(ref).labels)
        raw.add(graph.parameters.get(ref.number, ""))
    for name, axis in list(state.axes):
        if name in raw and sum(size > 1 for size in graph.named[name].shape) > 1:
            state.pin(state.axes[name, axis])
    for name in raw & state.groupings.keys():
        state.pin(state.groupings[name].inputs)
        state.pin(state.groupings[name].outputs)
    for node in graph.nodes:
        if any(_within(node.module, path) for path in state.trust.held):
            for ref in (*node.inputs, *node.outputs):
                state.pin(state.get(ref).labels)
    return state


def _within(module: str, path: str) -> bool:
    return not path or module == path or module.startswith(f"{path}.")


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
