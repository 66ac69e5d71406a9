"""Which channels can still reach an output, and which constants can be folded away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..recording.graph import Node, Ref
from .request import Ghosts
from .state import Barrier, State
from .values import Grouping, Mixing


@dataclass(frozen=True)
class Fold:
    """A constant that its removed channels added to a layer: to be added to a bias or a mean."""

    tensor: str
    amount: Tensor
    into_mean: bool


@dataclass(frozen=True)
class Plan:
    """What to keep along each axis of each parameter or buffer, and what to fold.

    What is kept are indices; along the second axis of a grouped convolution's weight they are
    `(groups, channels)`, places within each group.
    """

    keep: dict[tuple[str, int], Tensor]
    groups: dict[str, int]  # weight → number of groups left
    attributes: dict[tuple[str, str], int | list[int]]  # module, name → numbers of channels left
    folds: list[Fold] = field(default_factory=list)
    folded: dict[str, int] = field(default_factory=dict)  # weight → constants it took over
    dropped: dict[str, int] = field(default_factory=dict)  # weight → its ghosts that went
    for_evaluation: int = 0  # constants that training would see differently
    constants_kept: int = 0  # constants that nothing could take over
    barriers: tuple[Barrier, ...] = ()


class Life:
    """Which channels live. Those that are tied form a class and live or die together."""

    def __init__(self, state: State) -> None:
        self.classes = _classes(state)
        self.alive = np.zeros(int(self.classes.max(initial=-1)) + 1, dtype=bool)
        # By label, and two more for NONE and WILD, the last: what is no channel always stays.
        self.table = np.zeros(state.count + 2, dtype=bool)
        self.table[-2:] = True

    def wake(self, labels: NDArray[np.int64]) -> bool:
        """Let these channels live; whether that was news."""
        if self.table[labels].all():
            return False
        self.alive[self.classes[labels[labels >= 0]]] = True
        self.table[:-2] = self.alive[self.classes]
        return True

    def kept(self, labels: Tensor) -> NDArray[np.bool_]:
        alive: NDArray[np.bool_] = self.table[labels.numpy()]
        return alive


def plan(
    state: State,
    ghosts: Ghosts,
    training: State | None = None,
    at_least: Mapping[str, int] | None = None,
) -> tuple[Plan, Life]:
    """The largest cut that leaves the outputs unchanged (up to dropped ghosts), and what lives.

    `training` is what the rules find in training, to tell which folds hold there too; `at_least`
    the smallest number of outputs of a layer, by the name of its weight.
    """
    life = Life(state)
    weights = Counter(mixing.weight for mixing in state.mixings)
    targets = [_fold_target(state, mixing, weights) for mixing in state.mixings]
    if state.pinned:
        life.wake(torch.cat(state.pinned).numpy())
    _spread(state, life, targets, ghosts)
    while _feed(state, life, at_least or {}):
        _spread(state, life, targets, ghosts)
    decided = Plan(
        _kept_indices(state, life),
        _groups_left(state, life),
        _numbers(state, life),
        constants_kept=_how_many_live(state.constants, life),
        barriers=tuple(
            Barrier(operation, module, count)
            for (operation, module), labels in state.barred.items()
            if (count := _how_many_live(labels, life))
        ),
    )
    _fold(decided, state, life, targets, ghosts)
    if training is not None:
        unlike = _unlike(state, training, life, targets)
        decided = replace(decided, for_evaluation=unlike)
    return decided, life


def plan_without(state: State, gone: NDArray[np.bool_], at_least: Mapping[str, int]) -> Plan:
    """The cut if these channels, by label, are all that go, and what must stay with others stays.

    That is what `plan` finds once nothing reads them, or a little less: channels that only they
    needed go too. It looks at no number, so that many can be tried.
    """
    life = Life(state)
    life.wake(np.flatnonzero(~gone))
    while _feed(state, life, at_least):
        pass
    return Plan(_kept_indices(state, life), _groups_left(state, life), _numbers(state, life))


def _how_many_live(labels: list[Tensor], life: Life) -> int:
    if not labels:
        return 0
    distinct = torch.cat([part.reshape(-1) for part in labels]).unique()
    return int(life.kept(distinct).sum())


def _kept_indices(state: State, life: Life) -> dict[tuple[str, int], Tensor]:
    keep = {}
    for (name, axis), labels in state.axes.items():
        kept = life.kept(labels)
        if not kept.all():
            keep[name, axis] = torch.from_numpy(kept.nonzero()[0])
    for name, grouping in state.groupings.items():
        within = life.kept(grouping.outputs if grouping.transposed else grouping.inputs)
        count = int(within.sum(1).max())
        if count < within.shape[1]:
            # Kept ones first, in order; a group that goes has any.
            places = np.argsort(~within, axis=1, kind="stable")[:, :count]
            keep[name, 1] = torch.from_numpy(np.sort(places, axis=1))
    return keep


def _groups_left(state: State, life: Life) -> dict[str, int]:
    left = {name: int(life.kept(labels).sum()) for name, labels in state.grouped.items()}
    for name, grouping in state.groupings.items():
        left[name] = int(life.kept(grouping.outputs).any(1).sum())
    return left


def _numbers(state: State, life: Life) -> dict[tuple[str, str], int | list[int]]:
    """The numbers of channels left that modules keep as attributes."""
    attributes: dict[tuple[str, str], int | list[int]] = {}
    for (module, name, item), written in state.written.items():
        count = int(life.kept(written.labels).sum())
        if item is None:
            attributes[module, name] = count
            continue
        held = attributes.get((module, name))
        if not isinstance(held, list):
            held = list(getattr(state.graph.modules[module], name))
        attributes[module, name] = [*held[:item], count, *held[item + 1 :]]
    return attributes


def _classes(state: State) -> NDArray[np.int64]:
    """Channels that are tied form a class; the class of each label."""
    if not state.ties:
        return np.arange(state.count)
    one = torch.cat([a for a, _ in state.ties]).numpy()
    other = torch.cat([b for _, b in state.ties]).numpy()
    return connected(state.count, one, other)


def connected(count: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class of each of so many labels if one[i] and other[i] are of one class, for all i.

    >>> connected(5, np.array([0, 3]), np.array([4, 4])).tolist()
    [0, 1, 2, 0, 0]
    """
    root = np.arange(count)  # a label of its class, at first its own; never a larger one
    while (apart := root[one] != root[other]).any():
        one, other = one[apart], other[apart]
        low = np.minimum(root[one], root[other])
        high = np.maximum(root[one], root[other])
        np.minimum.at(root, high, low)  # a root of one tree now points into another
        while not np.array_equal(further := root[root], root):
            root = further
    return np.unique(root, return_inverse=True)[1]


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
            # It can do without zeros, and without constants it can fold or may drop.
            const = mixing.const.numpy()
            free = ghosts == "drop" or target is not None
            needed = np.isnan(const) if free else const != 0
            news |= life.wake(mixing.inputs.numpy()[mixing.read_by(rows) & needed])


def _feed(state: State, life: Life, at_least: Mapping[str, int]) -> bool:
    """Let channels live that nobody needs but for their number; whether that was news."""
    starved = _starved(state, life)
    if starved is not None:  # a layer keeps one channel, so that the network stays runnable
        return life.wake(starved.numpy())
    news = False
    for grouping in state.groupings.values():
        news |= life.wake(_uneven(grouping, life))
    for mixing in state.mixings:
        if mixing.weight in at_least:
            news |= life.wake(_missing(mixing, life, at_least[mixing.weight]))
    return news


def _starved(state: State, life: Life) -> Tensor | None:
    """A channel to keep because some parameter would be left with nothing along an axis."""
    counted = [number.labels for number in state.written.values()]
    held = [*state.axes.values(), *state.grouped.values(), *counted]
    held = [labels for labels in held if len(labels)]
    if not held:
        return None
    starts = np.cumsum([0, *(len(labels) for labels in held[:-1])])
    fed = np.logical_or.reduceat(life.kept(torch.cat(held)), starts)
    return None if fed.all() else held[int(fed.argmin())][:1]


def _uneven(grouping: Grouping, life: Life) -> NDArray[np.int64]:
    """Channels to keep so that every group that is left has equally many."""
    sides = [life.kept(labels) for labels in (grouping.inputs, grouping.outputs)]
    left = np.asarray(sides[0].any(1) | sides[1].any(1))
    wanted = []
    for labels, kept in zip((grouping.inputs, grouping.outputs), sides, strict=True):
        count = max(1, int(kept[left].sum(1).max(initial=0)))
        missing = count - kept.sum(1, keepdims=True)
        more = ~kept & ((~kept).cumsum(1) <= missing) & left[:, None]
        wanted.append(labels.numpy()[more])
    return np.concatenate(wanted)


def _missing(mixing: Mixing, life: Life, count: int) -> NDArray[np.int64]:
    """The outputs with the largest weights among those that are lacking for a layer's least."""
    kept = life.kept(mixing.outputs)
    lacking = min(count, len(kept)) - int(kept.sum())
    if lacking <= 0:
        return np.empty(0, dtype=np.int64)
    size = mixing.kernels.double().abs().sum((1, 2)).cpu().numpy()
    order = np.argsort(np.where(kept, -np.inf, size), kind="stable")[::-1]
    return mixing.outputs.numpy()[order[:lacking]]


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
        if name is not None and _read_once(state, name, mixing.node):
            return Fold(name, nothing, True)
    if mixing.bias and _read_once(state, mixing.bias, mixing.node):
        return Fold(mixing.bias, nothing, False)
    return None


def _read_once(state: State, name: str, node: Node) -> bool:
    """Whether a parameter is read by one operation alone in the pass of this one."""
    if name in state.graph.changing:
        return False
    graph = state.graph
    readers = [reader for ref in graph.values_of[name] for reader in graph.readers.get(ref, [])]
    return sum(reader.training == node.training for reader in readers) == 1


def _is_norm(node: Node) -> bool:
    return "batch_norm" in node.name and "backward" not in node.name


def _fold(
    decided: Plan, state: State, life: Life, targets: list[Fold | None], ghosts: Ghosts
) -> None:
    """Add to a plan what becomes of the constants that go."""
    ghostly = np.zeros(state.count + 2, dtype=bool)
    for labels in state.constants if ghosts == "drop" else []:
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
    for mixing, trained, target in zip(state.mixings, training.mixings, targets, strict=True):
        used = mixing.read_by(life.kept(mixing.outputs))
        then = trained.const.numpy()
        alike = then == mixing.const.numpy()
        if target is not None and target.into_mean:
            alike |= ~np.isnan(then)
        count += int((~life.kept(mixing.inputs) & used & ~alike).sum())
    return count
