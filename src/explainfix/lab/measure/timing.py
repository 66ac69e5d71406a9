"""Which is faster? Contestants take turns in one process until their ratios are known well."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...running import tensors_in
from ..run.devices import in_one_kernel


@dataclass(frozen=True)
class Ratio:
    """A contestant's time as a share of the first one's: the median over rounds, with a 95%
    bootstrap interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"


@dataclass(frozen=True)
class Timing:
    """Every contestant's seconds, round by round."""

    times: dict[str, list[float]]

    def seconds(self, name: str) -> float:
        return statistics.median(self.times[name])

    def ratio(self, name: str, to: str | None = None) -> Ratio:
        """`name` against `to`, or the first contestant, paired by round."""
        base = self.times[to or next(iter(self.times))]
        ratios = np.divide(self.times[name], base)
        draws = np.random.default_rng(0).integers(len(ratios), size=(1000, len(ratios)))
        low, high = np.quantile(np.median(ratios[draws], axis=1), [0.025, 0.975])
        return Ratio(float(np.median(ratios)), float(low), float(high))


def take_turns(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 25,
    narrow: float = 0.04,
    seconds: float = float("inf"),
    least: int = 2,
) -> Timing:
    """Let each do its thing in every round, in a new order, until all ratios' intervals are
    narrower than `narrow`, or for that many rounds or seconds, but at least in `least` rounds. The
    first round does not count."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    done = Timing(times)
    shuffled, began = random.Random(0), time.monotonic()
    for number in range(rounds + 1):
        for name in shuffled.sample(list(contestants), len(contestants)):
            started = time.perf_counter()
            contestants[name]()
            if number:
                times[name].append(time.perf_counter() - started)
        if number >= least and time.monotonic() - began > seconds:
            break
        if number >= 7:
            ratios = [done.ratio(name) for name in contestants]
            if all(ratio.high - ratio.low < narrow for ratio in ratios):
                break
    return done


def time_training(
    networks: Mapping[str, nn.Module], x: Tensor, *, rounds: int = 25, narrow: float = 0.04
) -> Timing:
    """Steps of training on a batch; the networks learn by it."""
    steps = {name: training_step(network, x) for name, network in networks.items()}
    return take_turns(steps, rounds=rounds, narrow=narrow)


def training_step(
    network: nn.Module,
    x: Tensor,
    *,
    autocast: torch.dtype | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Callable[[], None]:
    """A function that does one step of Adam on a batch; the loss is the outputs' mean square.

    With `autocast` the forward pass is in that precision where PyTorch deems it safe. An
    `optimizer` takes the place of the one that training would have.
    """
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = optimizer or torch.optim.Adam(learned, 1e-4, fused=in_one_kernel(learned))
    network.train()
    precision = torch.autocast(x.device.type, autocast) if autocast else nullcontext()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision:
            outputs = tensors_in(network(x))
        sum(output.square().mean() for output in outputs).backward()  # type: ignore[union-attr]
        optimizer.step()
        if x.device.type != "cpu":  # which only queues the work
            torch.accelerator.synchronize(x.device)

    return step
