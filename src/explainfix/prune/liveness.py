"""Which channels can still reach an output, and which constants can be folded away."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .graph import Node, Ref
from .state import Mixing, State
from .values import NONE

Ghosts = Literal["keep", "drop"]


@dataclass(frozen=True)
class Fold:
    """A constant that its removed channels added to a layer: to be added to a bias or a mean."""

    tensor: str
    amount: Tensor
    into_mean: bool


@dataclass(frozen=True)
class Plan:
    """What to keep along each axis of each parameter or buffer, and what to fold."""

    keep: dict[tuple[str, int], Tensor]  # indices
    groups: dict[str, int]  # weight → number of groups left
    attributes: dict[tuple[str, str], int | list[int]]  # module, name → numbers of channels left
    folds: list[Fold] = field(default_factory=list)
    folded: dict[str, int] = field(default_factory=dict)  # weight → constants it took over
    dropped: dict[str, int] = field(default_factory=dict)  # weight → its ghosts that went
    for_evaluation: int = 0  # constants that training would see differently


class Life:
    """Which channels live. Those that are tied form a class and live or die together."""

    def __init__(self, state: State) -> None:
        self.classes = _classes(state)
        self.alive = np.zeros(int(self.classes.max(initial=-1)) + 1, dtype=bool)
        # By label, and one more for NONE, the last: what is no channel always stays.
        self.table = np.zeros(state.count + 1, dtype=bool)
        self.table[NONE] = True

    def wake(self, labels: NDArray[np.int64]) -> bool:
        """Let these channels live; whether that was news."""
        if self.table[labels].all():
            return False
        self.alive[self.classes[labels[labels != NONE]]] = True
        self.table[:NONE] = self.alive[self.classes]
        return True

    def kept(self, labels: Tensor) -> NDArray[np.bool_]:
        alive: NDArray[np.bool_] = self.table[labels.numpy()]
        return alive


def plan(state: State, ghosts: Ghosts, training: State | None = None) -> Plan:
    """The largest cut that leaves the outputs unchanged (up to dropped ghosts).

    `training` is what the rules find in training, to tell which folds hold there too.
    """
    life = Life(state)
    weights = Counter(mixing.weight for mixing in state.mixings)
    targets = [_fold_target(state, mixing, weights) for mixing in state.mixings]
    if state.pinned:
        life.wake(torch.cat(state.pinned).numpy())
    _spread(state, life, targets, ghosts)
    while (starved := _starved(state, life)) is not None:
        life.wake(starved.numpy())  # a layer keeps one channel, so that the network stays runnable
        _spread(state, life, targets, ghosts)
    keep = {}
    for (name, axis), labels in state.axes.items():
        kept = life.kept(labels)
        if not kept.all():
            keep[name, axis] = torch.from_numpy(kept.nonzero()[0])
    groups = {name: int(life.kept(labels).sum()) for name, labels in state.grouped.items()}
    attributes: dict[tuple[str, str], int | list[int]] = {}
    for key, written in state.written.items():
        counts = [int(life.kept(part).sum()) for part in written.parts]
        attributes[key] = counts if written.several else counts[0]
    decided = Plan(keep, groups, attributes)
    _fold(decided, state, life, targets, ghosts)
    if training is None:
        return decided
    return replace(decided, for_evaluation=_unlike(state, training, life, targets))


def _classes(state: State) -> NDArray[np.int64]:
    """Channels that are tied form a class; the class of each label."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not state.ties:
        return np.arange(state.count)
    one = torch.cat([a for a, _ in state.ties]).numpy()
    other = torch.cat([b for _, b in state.ties]).numpy()
    links = coo_array((np.ones(len(one), bool), (one, other)), shape=(state.count, state.count))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def _spread(state: State, life: Life, targets: list[Fold | None], ghosts: Ghosts) -> None:
    """From living outputs to the inputs they use, until nothing new comes alive."""
    done = [np.zeros(len(mixing.outputs), dtype=bool) for mixing in state.mixings]
    steps = list(zip(state.mixings, targets, done, strict=True))[::-1]
    news = True
    while news:
        news = False
        for mixing, target, seen in steps:
            rows = life.kept(mixing.outputs) & ~seen
            if not rows.any():
                continue
            seen |= rows
            # It can do without noughts, and without constants it can fold or may drop.
            const = mixing.const.numpy()
            free = ghosts == "drop" or target is not None
            needed = np.isnan(const) if free else const != 0
            news |= life.wake(mixing.inputs.numpy()[mixing.read_by(rows) & needed])


def _starved(state: State, life: Life) -> Tensor | None:
    """A channel to keep because some parameter would be left with nothing along an axis."""
    written = [part for number in state.written.values() for part in number.parts]
    held = [*state.axes.values(), *state.grouped.values(), *written]
    held = [labels for labels in held if len(labels)]
    if not held:
        return None
    starts = np.cumsum([0, *(len(labels) for labels in held[:-1])])
    fed = np.logical_or.reduceat(life.kept(torch.cat(held)), starts)
    return None if fed.all() else held[int(fed.argmin())][:1]


def _fold_target(state: State, mixing: Mixing, weights: Counter[str]) -> Fold | None:
    """Where this operation's constants can go: a following BatchNorm's mean, or its own bias."""
    if not mixing.exact or weights[mixing.weight] > 1:  # a shared weight has several constants
        return None
    result = mixing.node.outputs[0]
    readers = state.graph.readers.get(result, [])
    nothing = torch.empty(0)
    if len(readers) == 1 and _is_norm(readers[0]) and result not in state.graph.outputs:
        mean = readers[0].args[3]
        name = state.graph.parameters.get(mean.number) if isinstance(mean, Ref) else None
        if name is not None and len(state.graph.readers[mean]) == 1:
            return Fold(name, nothing, True)
    return Fold(mixing.bias, nothing, False) if mixing.bias else None


def _is_norm(node: Node) -> bool:
    return "batch_norm" in str(node.op) and "backward" not in str(node.op)


def _fold(
    decided: Plan, state: State, life: Life, targets: list[Fold | None], ghosts: Ghosts
) -> None:
    """Add to a plan what becomes of the constants that go."""
    ghostly = np.zeros(state.count + 1, dtype=bool)
    for labels in state.ghosts:
        ghostly[labels.numpy()] = True
    for mixing, target in zip(state.mixings, targets, strict=True):
        lost = ~life.kept(mixing.outputs) & ghostly[mixing.outputs.numpy()]
        if lost.any():
            decided.dropped[mixing.weight] = int(lost.sum())
        const = mixing.const.numpy()
        constant = (const != 0) & ~np.isnan(const) & ~life.kept(mixing.inputs)
        if ghosts == "drop" or target is None or not constant.any():
            continue
        constant &= mixing.read_by(np.ones(len(mixing.outputs), dtype=bool))
        if not constant.any():
            continue
        amount = mixing.sum_over(torch.from_numpy(np.where(constant, const, 0.0)))
        decided.folded[mixing.weight] = int(constant.sum())
        decided.folds.append(replace(target, amount=-amount if target.into_mean else amount))


def _unlike(state: State, training: State, life: Life, targets: list[Fold | None]) -> int:
    """How many removed inputs have another value in training, and no BatchNorm to absorb it."""
    count = 0
    for mixing, trained, target in zip(state.mixings, training.mixings, targets, strict=False):
        used = mixing.read_by(life.kept(mixing.outputs))
        then = trained.const.numpy()
        alike = then == mixing.const.numpy()
        if target is not None and target.into_mean:
            alike |= ~np.isnan(then)
        count += int((~life.kept(mixing.inputs) & used & ~alike).sum())
    return count
