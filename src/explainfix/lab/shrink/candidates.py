"""Candidates of a round: the last good network, cut to the next size in several ways.

Each way is one decorated function. A copy of each candidate is trained for a few steps, and the
loss on training images that these steps did not see says which is best. Without any step it would
say less: what is easily mended counts as broken then.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from ...explanation.kind import kinds
from ...explanation.saliency import Saliency, saliency
from ...layers import as_found
from ...mixing.steered import steered_layers
from ...prune import channel_prune_, prune_
from ...prune.channels import Array, Channels, Order, TooSmallError
from ...prune.channels import Cost as Counted
from ...recalibration import recalibrate_
from ...recipe import recipes
from ...registry import Registry
from ...steering import steer_
from ...steering.outcome import SteeredLayer
from ..data.dataset import Dataset, as_outputs
from ..data.loader import Batch, Share, training_steps
from ..run.config import RunConfig
from ..run.devices import make_optimizer
from ..run.evaluation import compute_logits
from ..run.losses import losses
from .cost import size_of

_HALF = 0.5  # of a place's channels, to see how sensitive it is
_SEEN = 2  # batches to see it on
_PASSES = 4  # over the batches that rankings saw, to see how well a candidate learns
_HOPELESS = 1e9  # the loss of one that does not
_ENERGY = 0.9  # of every layer's kernels that the frequencies kept must hold


@dataclass(frozen=True)
class Bench:
    """What candidates are made of and tried on: the network to cut, and training batches."""

    network: nn.Module
    example: Tensor  # an input of one image
    config: RunConfig
    dataset: Dataset
    ranking: str
    counted: Counted  # what is cut to: parameters, or multiply-adds
    amount: float  # how much of it is to be left
    batches: int
    rate: float  # of the steps on trial, as a share of the original's

    @cached_property
    def first(self) -> list[Batch]:
        """The batches that rankings see, and behind them those that candidates are tried on."""
        config = self.config
        steps = training_steps(
            self.dataset, config.train_split, Share(config.batch_size), seed=config.seed, epoch=0
        )
        found = [batch for [batch] in islice(steps, 2 * self.batches)]
        where = next(self.network.parameters())
        return [(x.to(where.device, where.dtype), y.to(where.device)) for x, y in found]

    @property
    def seen(self) -> list[Batch]:
        return self.first[: max(1, min(self.batches, len(self.first) // 2))]

    @property
    def unseen(self) -> list[Batch]:
        return self.first[len(self.seen) :] or self.first

    def scores(self, network: nn.Module) -> Saliency:
        """How much every kernel of a network matters, 1x1 and linear ones too."""
        if kinds.find(self.ranking).of_model is not None:
            example = [self.example]
            return saliency(
                network, example, kind=self.ranking, pointwise=True, seed=self.config.seed
            )
        classes = len(self.dataset.classes)
        known = [(x, as_outputs(y, classes) if y.is_floating_point() else y) for x, y in self.seen]
        return saliency(network, known, kind=self.ranking, pointwise=True)

    def loss(self, network: nn.Module, batches: list[Batch]) -> float:
        """The mean loss over batches, in evaluation."""
        loss = losses.find(self.config.loss or "")(self.dataset.split(self.config.train_split))
        total = 0.0
        with as_found(network), torch.inference_mode():
            network.eval()
            for images, targets in batches:
                logits = compute_logits(network, images)
                total += float(loss(logits, targets.to(logits.dtype)))
        return total / len(batches)

    def settle_(self, network: nn.Module) -> None:
        """Average BatchNorm's statistics anew over the batches that rankings saw."""
        recalibrate_(network, (images for images, _ in self.seen))

    def trial(self, network: nn.Module) -> float:
        """The loss on unseen batches after a few steps on the others, as fine-tuning begins."""
        network, config = copy.deepcopy(network).train(), self.config
        loss = losses.find(config.loss or "")(self.dataset.split(config.train_split))
        optimizer = make_optimizer(replace(config, lr=self.rate * (config.lr or 0.0)), network)
        with torch.random.fork_rng(), torch.enable_grad():
            torch.default_generator.manual_seed(config.seed)  # for dropout and the like
            for images, targets in _PASSES * self.seen:
                optimizer.zero_grad(set_to_none=True)
                logits = compute_logits(network, images)
                loss(logits, targets.to(logits.dtype)).backward()
                if config.clip is not None:
                    nn.utils.clip_grad_norm_(network.parameters(), config.clip)
                optimizer.step()
        self.settle_(network)
        found = self.loss(network, self.unseen)
        return found if math.isfinite(found) else _HOPELESS

    def size(self, network: nn.Module) -> float:
        whole = size_of(network, self.example)[0]
        return float(getattr(whole, self.counted))

    def share(self, network: nn.Module) -> float:
        """The share of a network's size that is to be left; 1 if it is small enough."""
        return min(1.0, self.amount / self.size(network))

    @cached_property
    def channels(self) -> tuple[Channels, Saliency]:
        """The channels of the network, and what its kernels score."""
        return Channels.of(self.network, self.example), self.scores(self.network)


Way = Callable[[Bench], nn.Module | None]
ways: Registry[Way] = Registry("way", "")


@dataclass(frozen=True)
class Candidate:
    """A network that was cut in a way, as it is to be fine-tuned, and its loss on trial."""

    way: str
    network: nn.Module
    loss: float
    smallest: bool = False


def make_candidates(bench: Bench, *, steer: bool = True) -> Iterator[Candidate]:
    """Every way's network, cut and tried. A way that has nothing to offer is left out.

    If the size cannot be reached by a way, it goes as far as it can.
    """
    for way, make in ways.items():
        if way == "frequencies" and not steer:
            continue
        smallest = False
        try:
            network = make(bench)
        except TooSmallError as error:
            more = bench.amount * 1.02 * error.least / error.share
            network, smallest = make(replace(bench, amount=more)), True
        if network is not None:
            with torch.no_grad():
                prune_(network, bench.example)
            bench.settle_(network)
            yield Candidate(way, network, bench.trial(network), smallest)


def _without(
    bench: Bench,
    found: Channels,
    value: Callable[[Channels], Array],
) -> nn.Module:
    """A copy of a network in which nothing reads the channels of lowest value."""
    network = copy.deepcopy(found.model)
    share = bench.share(network)
    if share < 1:
        found.zero_(found.search(value(found), share, bench.counted), network)
    return network


def _by_order(order: Order) -> Way:
    def way(bench: Bench) -> nn.Module:
        found, scores = bench.channels
        return _without(bench, found, lambda c: c.ordered(scores, order, bench.counted))

    return way


ways.register("salient")(_by_order("salient"))  # over all layers, the lowest saliency goes
ways.register("worth")(_by_order("worth"))  # the lowest saliency for what it costs
ways.register("even")(_by_order("even"))  # the same share of every layer


@ways.register("sensitive")
def sensitive(bench: Bench) -> nn.Module:
    """Layers lose by how much the loss moves when their least salient half goes.

    If it grows with the square of the share that goes, the next channel of a place costs in
    proportion to the place's sensitivity and to its rank there.
    """
    found, scores = bench.channels
    ranks, batches = found.percentiles(found.sums(scores)), bench.seen[:_SEEN]
    before = bench.loss(found.model, batches)
    sizes = np.bincount(found.place)
    moved = np.zeros(len(sizes))
    for place in range(len(sizes)):
        with found.without((found.place == place) & (ranks <= _HALF)):
            moved[place] = bench.loss(found.model, batches) - before
    moved = np.maximum(moved, 1e-4 * max(moved.max(), 1e-12))
    each = (moved / sizes)[found.place] * ranks
    value = np.asarray(each / np.maximum(found.costs(bench.counted), 1e-30))
    return _without(bench, found, lambda _: value)


@ways.register("frequencies")
def frequencies(bench: Bench) -> nn.Module | None:
    """Dense filters keep the frequencies that hold most of their energy; then channels go, evenly.

    Only where that makes a layer smaller, and once.
    """
    if steered_layers(bench.network) or recipes(bench.network):
        return None
    network, tried = copy.deepcopy(bench.network), copy.deepcopy(bench.network)
    layers: Mapping[str, SteeredLayer] = {}
    with suppress(ValueError):  # no layer is dense
        layers = steer_(tried, "dct2", energy=_ENERGY).layers
    kind = "macs" if bench.counted == "multiply_adds" else "params"
    smaller = [
        path
        for path, layer in layers.items()
        if getattr(layer, f"{kind}_after") < 0.9 * getattr(layer, f"{kind}_before")
    ]
    if not smaller:
        return None
    steer_(network, "dct2", energy=_ENERGY, layers=smaller)
    if bench.share(network) == 1:
        return network
    scores = bench.scores(network)
    found = Channels.of(network, bench.example)
    return _without(bench, found, lambda c: c.ordered(scores, "even", bench.counted))


@ways.register("kernels")
def kernels(bench: Bench) -> nn.Module | None:
    """The paper's way with fixed filters: kernels are zeroed, what died is cut, zeros filled."""
    fixed, by_gradient = recipes(bench.network), kinds.find(bench.ranking).of_gradient
    if not fixed or by_gradient is None or steered_layers(bench.network):
        return None
    network = copy.deepcopy(bench.network)
    chosen = {path: bench.channels[1][path] for path in fixed}
    by_macs, share = bench.counted == "multiply_adds", bench.share(network)
    with suppress(ValueError):  # kernels alone do not make it as small
        channel_prune_(
            network,
            bench.example,
            chosen,
            target_macs=share if by_macs else None,
            target_params=None if by_macs else share,
            seed=bench.config.fix_seed,
        )
        return network
    return None
