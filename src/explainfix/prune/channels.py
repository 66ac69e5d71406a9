"""cut_channels_: whole channels go, the least salient first, until a network is as small as asked.

Which channels there are, and what goes with each, is read from the pass that `prune_` reads:
channels that a sum joins are one, whatever layers write and read them. What reads a channel is
zeroed, and the exact cut does the rest, in any architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..layers import as_found
from ..marks.untrained import teaches_nothing
from ..recipe import recipes_follow
from ..recording.call import Call
from ..registry import unknown
from .liveness import Life, plan_without
from .outcome import PruneReport, count_positions
from .prune import prune_
from .request import AtLeast, Patterns, Request
from .settle import analyse, settle, share_left
from .state import State
from .trust import Trust
from .values import Mixing

Array = NDArray[np.float64]
Cost = Literal["parameters", "multiply_adds"]
Order = Literal["salient", "worth", "even"]
ORDERS: tuple[Order, ...] = ("salient", "worth", "even")

FLOOR = 0.05  # of the channels that share a place: so many stay in any case
_TRIES = 16  # halvings of the number of channels


@dataclass(frozen=True)
class Reading:
    """A weight that reads channels: of each of its inputs the channel, or -1 if that stays."""

    weight: str
    groups: int
    transposed: bool
    channels: NDArray[np.int64]

    @property
    def depthwise(self) -> bool:
        """Whether every input is an output too, the same channel."""
        return self.groups == len(self.channels) > 1


@dataclass(frozen=True)
class Channels:
    """The channels of a network that can go, numbered from 0, and how to let them go.

    `place` numbers the places that channels are in: those that the same layers write and read
    share one. `writes` and `reads` have the channels of every layer's outputs and inputs, by path.
    """

    model: nn.Module
    state: State
    request: Request
    positions: Mapping[str, int]
    of_label: NDArray[np.int64]  # the channel of each label of the state, or -1
    place: NDArray[np.int64]
    writes: Mapping[str, tuple[NDArray[np.int64], int]]
    reads: Mapping[str, Reading]

    @classmethod
    def of(cls, model: nn.Module, example_inputs: Any, keep: Patterns = ()) -> Channels:
        """Record a pass and find them; an error that says why, if all channels stay."""
        request = Request.of(model, "keep", keep, 1)
        call, trust = Call.of(example_inputs), Trust()
        with as_found(model):
            graph = settle(model, call, request, trust).state.graph
        found = cls._found(model, analyse(graph, request, trust), request)
        # What is believed of reshapes and the like is tried where nearly all of it goes.
        with as_found(model), found.without(found.choose(np.zeros(len(found)), len(found))):
            settle(model, call, request, trust)
        return cls._found(model, analyse(graph, request, trust), request)

    @classmethod
    def _found(cls, model: nn.Module, state: State, request: Request) -> Channels:
        life = Life(state)
        if state.pinned:
            life.wake(torch.cat(state.pinned).numpy())
        used = np.zeros(len(life.alive), dtype=bool)
        for mixing in state.mixings:
            labels = mixing.inputs.numpy()
            used[life.classes[labels[labels >= 0]]] = True
        free = used & ~life.alive
        if not free.any():
            raise ValueError(_why_all_stay(state, model))
        number = np.where(free, np.cumsum(free) - 1, -1)

        def channels(labels: Tensor) -> NDArray[np.int64]:
            flat = labels.reshape(-1).numpy()
            known = number[life.classes[np.maximum(flat, 0)]]
            return np.where(flat >= 0, known, -1)

        writes, reads = {}, {}
        for mixing in state.mixings:
            path = mixing.weight.rpartition(".")[0]
            outputs, inputs = channels(mixing.outputs), channels(mixing.inputs)
            writes[path] = outputs, mixing.groups
            reads[path] = Reading(mixing.weight, mixing.groups, _is_turned(mixing), inputs)
        places = [channels(labels) for labels in state.axes.values()]
        places += [channels(each.inputs) for each in state.groupings.values()]
        return cls(
            model, state, request, count_positions(state.graph), number[life.classes],
            _places(places, int(free.sum())), writes, reads,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.place)

    def sums(self, scores: Mapping[str, Tensor]) -> Array:
        """The sum of what each channel's kernels score, those that write it and that read it.

        `scores` are by layer, of shape `weight.shape[:2]`; layers without any add nothing.
        """
        total = np.zeros(len(self) + 1)  # the last is of what stays
        for path, (outputs, groups) in self.writes.items():
            if path not in scores:
                continue
            reading = self.reads[path]
            grid = scores[path].detach().double().cpu().numpy()
            grid = grid.reshape(groups, -1, grid.shape[1])  # (groups, outputs, inputs)
            if reading.transposed:
                grid = grid.swapaxes(1, 2)
            np.add.at(total, outputs, grid.sum(2).reshape(-1))
            if not reading.depthwise:
                np.add.at(total, reading.channels, grid.sum(1).reshape(-1))
        return total[:-1]

    def costs(self, of: Cost) -> Array:
        """What each channel costs as long as all others are there."""
        weights = dict(self.model.named_parameters())
        each = {}
        for path, reading in self.reads.items():
            weight = weights[reading.weight]
            work = self.positions.get(path, 0) if of == "multiply_adds" else 1
            each[path] = torch.full(weight.shape[:2], float(weight[0, 0].numel() * work))
        return self.sums(each)

    def percentiles(self, values: Array) -> Array:
        """The rank of every channel in its place, from above 0 to 1."""
        order = np.lexsort((values, self.place))
        sizes = np.bincount(self.place)
        first = np.cumsum(sizes) - sizes
        ranks = np.empty(len(self))
        ranks[order] = np.arange(len(self)) - first[self.place[order]] + 1
        return np.asarray(ranks / sizes[self.place])

    def ordered(self, scores: Mapping[str, Tensor], order: Order, of: Cost) -> Array:
        """A value for every channel; the lowest go first.

        By "salient" these are the sums of its scores, by "worth" the sums for what it costs, by
        "even" its rank in its place, so that every layer loses the same share.
        """
        if order not in ORDERS:
            raise unknown("order", order, ORDERS)
        values = self.sums(scores)
        if order == "even":
            return self.percentiles(values)
        return values / np.maximum(self.costs(of), 1e-30) if order == "worth" else values

    def choose(self, values: Array, count: int) -> NDArray[np.bool_]:
        """Which channels go if `count` with the lowest values are to; of every place some stay."""
        gone = np.zeros(len(self), dtype=bool)
        gone[np.argsort(values, kind="stable")[:count]] = True
        sizes = np.bincount(self.place)
        left = np.maximum(
            np.bincount(self.place, ~gone, len(sizes)), np.ceil(FLOOR * sizes)
        ).astype(np.int64)
        ranks = np.rint(self.percentiles(values) * sizes[self.place])  # 1 is the lowest
        return np.asarray(ranks <= (sizes - left)[self.place])

    @contextmanager
    def without(self, gone: NDArray[np.bool_]) -> Iterator[None]:
        """The network as it is without these channels, for a moment: nothing reads them."""
        weights = dict(self.model.named_parameters())
        held = {r.weight: weights[r.weight].detach().clone() for r in self.reads.values()}
        try:
            self._zero(self.model, gone)
            yield
        finally:
            with torch.no_grad():
                for name, old in held.items():
                    weights[name].copy_(old)

    def zero_(self, gone: NDArray[np.bool_], model: nn.Module | None = None) -> None:
        """Zero what reads these channels, here or in a copy of the model: `prune_` then cuts them.

        Fixed layers stay fixed, as they are then.
        """
        model = self.model if model is None else model
        with recipes_follow(model):
            self._zero(model, gone)

    def _zero(self, model: nn.Module, gone: NDArray[np.bool_]) -> None:
        table = np.append(gone, False)
        weights = dict(model.named_parameters())
        with torch.no_grad():
            for reading in self.reads.values():
                columns = torch.from_numpy(table[reading.channels])
                if not columns.any() or reading.depthwise:
                    continue
                weight = weights[reading.weight]
                grid = weight.unflatten(0, (reading.groups, -1))
                grid = grid if reading.transposed else grid.transpose(1, 2)
                grid[columns.reshape(reading.groups, -1).to(weight.device)] = 0

    def left(self, gone: NDArray[np.bool_], of: Cost) -> float:
        """The share of the cost that a cut without these channels leaves."""
        by_label = np.append(gone, False)[self.of_label]
        decided = plan_without(self.state, by_label, self.request.at_least)
        positions = self.positions if of == "multiply_adds" else None
        return share_left(self.model, decided, positions)

    def search(self, values: Array, share: float, of: Cost) -> NDArray[np.bool_]:
        """The fewest channels, lowest values first, without which the cost is that share."""
        low, high = 0, len(self)
        least = self.left(self.choose(values, high), of)
        if least > share:
            raise TooSmallError(least, share, of)
        for _ in range(_TRIES):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            fits = self.left(self.choose(values, middle), of) <= share
            low, high = (low, middle) if fits else (middle, high)
        return self.choose(values, high)


class TooSmallError(ValueError):
    """A network cannot be made as small as the share that was asked; `least` stays."""

    def __init__(self, least: float, share: float, of: Cost) -> None:
        self.least, self.share = least, share
        what = "multiply-adds" if of == "multiply_adds" else of
        super().__init__(
            f"with one channel of twenty left in every layer {least:.1%} of the {what} stay, more "
            f"than the {share:.1%} that were asked for"
        )


@teaches_nothing
def cut_channels_(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...] | dict[str, Any],
    scores: Mapping[str, Tensor],
    *,
    share: float,
    of: Cost = "parameters",
    order: Order = "worth",
    keep: Patterns = (),
    keep_at_least: AtLeast = 1,
) -> PruneReport:
    """Cut the least salient channels until that share of the parameters or multiply-adds is left.

    `scores` are those of `saliency(..., pointwise=True)`; a channel's is the sum over all kernels
    that write or read it. By "salient" the lowest sums go, by "worth" the lowest for what they
    cost, by "even" the same share of every layer. Without the channels nothing else changes: no
    constant is dropped, nothing is filled. On any error the model is as it was.

    >>> from explainfix import saliency
    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 3))
    >>> x = torch.randn(4, 1, 16, 16)
    >>> report = cut_channels_(model, x[:1], saliency(model, [x], pointwise=True), share=0.5)
    >>> report.params_kept <= 0.5
    True
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share to keep must be above 0 and at most 1, not {share!r}")
    found = Channels.of(model, example_inputs, keep)
    gone = found.search(found.ordered(scores, order, of), share, of)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    try:
        found.zero_(gone)
        return prune_(model, example_inputs, keep=keep, keep_at_least=keep_at_least)
    except BaseException:
        with torch.no_grad(), recipes_follow(model):
            for name, parameter in model.named_parameters():
                parameter.copy_(before[name])
        raise


def _is_turned(mixing: Mixing) -> bool:
    return mixing.node.name == "convolution" and bool(mixing.node.args[6])


def _places(axes: list[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Number the places: channels that are on the same axes of the same tensors share one."""
    marks = np.random.default_rng(0).integers(2**62, size=len(axes), dtype=np.int64)
    sums = np.zeros(count + 1, dtype=np.int64)  # a sum of random marks says which axes they were
    for channels, mark in zip(axes, marks, strict=True):
        sums[np.unique(channels)] ^= mark
    return np.asarray(np.unique(sums[:-1], return_inverse=True)[1], dtype=np.int64)


def _why_all_stay(state: State, model: nn.Module) -> str:
    """Which operations keep all channels of a network."""
    named = [f"{operation} in {where!r}" for operation, where in state.barred]
    if not named:
        return (
            f"every channel of this {type(model).__name__} stays: each is an input or an output of "
            "the network, or of a layer that was to be kept"
        )
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    said = f"{', '.join(named[:3])}{more}"
    return f"every channel of this {type(model).__name__} stays, because of {said}"
