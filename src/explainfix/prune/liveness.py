"""Which channels can still reach an output, and which constants can be folded away."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
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


def plan(state: State, ghosts: Ghosts, training: State | None = None) -> Plan:
    """The largest cut that leaves the outputs unchanged (up to dropped ghosts).

    `training` is what the rules find in training, to tell which folds hold there too.
    """
    classes = _classes(state)
    weights = Counter(mixing.weight for mixing in state.mixings)
    targets = {id(m): _fold_target(state, m, weights) for m in state.mixings}
    alive = np.zeros(int(classes.max(initial=-1)) + 1, dtype=bool)
    for labels in state.pinned:
        alive[classes[labels.numpy()]] = True
    while True:
        _spread(state, classes, alive, targets, ghosts)
        starved = _starved(state, classes, alive)
        if starved is None:
            break
        alive[starved] = True  # a layer keeps one channel, so that the network stays runnable
    keep = {}
    for (name, axis), labels in state.axes.items():
        kept = _kept(labels, classes, alive)
        if not kept.all():
            keep[name, axis] = kept.nonzero().flatten()
    groups = {
        name: int(_kept(labels, classes, alive).sum()) for name, labels in state.grouped.items()
    }
    attributes: dict[tuple[str, str], int | list[int]] = {}
    for key, written in state.written.items():
        counts = [int(_kept(part, classes, alive).sum()) for part in written.parts]
        attributes[key] = counts if written.several else counts[0]
    decided = Plan(keep, groups, attributes)
    _fold(decided, state, classes, alive, targets, ghosts)
    if training is None:
        return decided
    return replace(decided, for_evaluation=_unlike(state, training, classes, alive, targets))


def _classes(state: State) -> np.ndarray:
    """Channels that are tied form a class; the class of each label."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not state.ties:
        return np.arange(state.count)
    one = torch.cat([a for a, _ in state.ties]).numpy()
    other = torch.cat([b for _, b in state.ties]).numpy()
    links = coo_array((np.ones(len(one), bool), (one, other)), shape=(state.count, state.count))
    return np.asarray(connected_components(links, directed=False)[1])


def _kept(labels: Tensor, classes: np.ndarray, alive: np.ndarray) -> Tensor:
    found = labels.numpy()
    return torch.from_numpy((found == NONE) | alive[classes[np.maximum(found, 0)]])


def _needless(mixing: Mixing, target: Fold | None, ghosts: Ghosts) -> Tensor:
    """Inputs that this operation can do without: noughts, and constants it can fold or may drop."""
    nought = mixing.const == 0
    if ghosts == "drop" or target is not None:
        return nought | ~mixing.const.isnan()
    return nought


def _spread(
    state: State,
    classes: np.ndarray,
    alive: np.ndarray,
    targets: dict[int, Fold | None],
    ghosts: Ghosts,
) -> None:
    """From living outputs to the inputs they use, until nothing new comes alive."""
    done = [torch.zeros(len(mixing.outputs), dtype=torch.bool) for mixing in state.mixings]
    before = -1
    while before != alive.sum():
        before = alive.sum()
        for mixing, seen in zip(reversed(state.mixings), reversed(done), strict=True):
            rows = _kept(mixing.outputs, classes, alive) & ~seen
            if not bool(rows.any()):
                continue
            seen |= rows
            used = mixing.read_by(rows) & ~_needless(mixing, targets[id(mixing)], ghosts)
            labels = mixing.inputs[used & (mixing.inputs != NONE)]
            alive[classes[labels.numpy()]] = True


def _starved(state: State, classes: np.ndarray, alive: np.ndarray) -> int | None:
    """A class to keep because some parameter would be left with nothing along an axis."""
    written = [part for number in state.written.values() for part in number.parts]
    for labels in [*state.axes.values(), *state.grouped.values(), *written]:
        if len(labels) and not _kept(labels, classes, alive).any():
            return int(classes[int(labels[0])])
    return None


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
    decided: Plan,
    state: State,
    classes: np.ndarray,
    alive: np.ndarray,
    targets: dict[int, Fold | None],
    ghosts: Ghosts,
) -> None:
    """Add to a plan what becomes of the constants that go."""
    ghostly = torch.zeros(state.count, dtype=torch.bool)
    for labels in state.ghosts:
        ghostly[labels] = True
    for mixing in state.mixings:
        lost = ~_kept(mixing.outputs, classes, alive) & ghostly[mixing.outputs.clamp(min=0)]
        if bool(lost.any()):
            decided.dropped[mixing.weight] = int(lost.sum())
        target = targets[id(mixing)]
        constant = (mixing.const != 0) & ~mixing.const.isnan()
        if ghosts == "drop" or target is None or not bool(constant.any()):
            continue
        everywhere = torch.ones(len(mixing.outputs), dtype=torch.bool)
        constant &= ~_kept(mixing.inputs, classes, alive) & mixing.read_by(everywhere)
        if not bool(constant.any()):
            continue
        amount = mixing.sum_over(torch.where(constant, mixing.const, 0.0))
        decided.folded[mixing.weight] = int(constant.sum())
        decided.folds.append(replace(target, amount=-amount if target.into_mean else amount))


def _unlike(
    state: State,
    training: State,
    classes: np.ndarray,
    alive: np.ndarray,
    targets: dict[int, Fold | None],
) -> int:
    """How many removed inputs have another value in training, and no BatchNorm to absorb it."""
    count = 0
    for mixing, trained in zip(state.mixings, training.mixings, strict=False):
        gone = ~_kept(mixing.inputs, classes, alive)
        used = mixing.read_by(_kept(mixing.outputs, classes, alive))
        target = targets[id(mixing)]
        alike = trained.const == mixing.const
        if target is not None and target.into_mean:
            alike |= ~trained.const.isnan()
        count += int((gone & used & ~alike).sum())
    return count
