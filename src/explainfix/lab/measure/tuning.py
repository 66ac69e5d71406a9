"""Which settings train a network fastest on this machine? Tried for a few seconds, not guessed."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...backward.recompute import make_frugal_, undo_frugal_
from ...backward.saved import kept_for_backward
from .timing import Ratio, Timing, take_turns, training_step

FREE = 1.02  # a saving of memory may make a step this much longer
PLAIN, LAST, FRUGAL, BOTH = "as it is", "channels last", "frugal", "channels last, frugal"


@dataclass(frozen=True)
class Tried:
    """One way to train: its settings, its step as a share of the first's, and what it keeps."""

    name: str
    step: Ratio
    seconds: float
    kept_bytes: int


@dataclass(frozen=True)
class Tuning:
    """What was chosen and why, and everything that was tried."""

    channels_last: bool
    frugal: bool
    why: tuple[str, ...]
    tried: tuple[Tried, ...]

    @property
    def flags(self) -> list[str]:
        """What to give to `explainfix train`."""
        wanted = {"--channels-last": self.channels_last, "--frugal": self.frugal}
        return [flag for flag, chosen in wanted.items() if chosen]


def tune(model: nn.Module, x: Tensor, *, seconds: float = 20.0) -> Tuning:
    """Try training steps on copies of a model with a batch `x`; the model stays as it is.

    Channels last is chosen if it is faster beyond doubt, frugality if it saves memory and makes
    a step at most 2% longer.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"{type(model).__name__} has no parameter left to learn")
    ways = {PLAIN: _way(model, x)}
    if x.dim() == 4:
        ways[LAST] = _way(model, x, last=True)
    ways[FRUGAL] = _way(model, x, frugal=True)
    if x.dim() == 4:
        ways[BOTH] = _way(model, x, last=True, frugal=True)
    kept = {name: kept_for_backward(network, images) for name, (network, images) in ways.items()}
    raced = take_turns(
        {name: training_step(network, images) for name, (network, images) in ways.items()},
        seconds=seconds,
    )
    tried = tuple(Tried(n, raced.ratio(n), raced.seconds(n), kept[n]) for n in ways)
    last, why_last = _choose_layout(raced)
    frugal, why_frugal = _choose_memory(raced, kept, BOTH if last else FRUGAL)
    return Tuning(last, frugal, (why_last, why_frugal), tried)


def _way(
    model: nn.Module, x: Tensor, *, last: bool = False, frugal: bool = False
) -> tuple[nn.Module, Tensor]:
    network = copy.deepcopy(model).train()
    (make_frugal_ if frugal else undo_frugal_)(network)
    if last:
        network = network.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    return network, x


def _choose_layout(raced: Timing) -> tuple[bool, str]:
    if LAST not in raced.times:
        return False, "Channels last is for images: inputs with two axes beside the channels."
    ratio = raced.ratio(LAST)
    if ratio.high < 1:
        return True, f"Channels last: a step takes {ratio} of the time."
    return False, f"Not channels last: a step would take {ratio} of the time."


def _choose_memory(raced: Timing, kept: dict[str, int], way: str) -> tuple[bool, str]:
    without = LAST if way == BOTH else PLAIN
    ratio, share = raced.ratio(way, without), kept[way] / kept[without]
    if share > 0.99:
        return False, "Not frugal: there is nothing to save."
    said = f"{share:.2f} of the memory kept for backward, in {ratio} of the time"
    if ratio.middle <= FREE:
        return True, f"Frugal: {said}."
    return False, f"Not frugal: {said}, and more than {FREE - 1:.0%} longer is not free."
