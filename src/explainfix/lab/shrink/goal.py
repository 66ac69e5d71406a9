"""What is asked of a smaller network, and which size to try next: functions of the rounds done."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...explanation.kind import kinds
from ...registry import unknown
from ..run.config import check_share

Cost = Literal["latency", "params", "macs", "memory"]
COSTS: tuple[Cost, ...] = typing.get_args(Cost)
Runtime = Literal["eager", "onnx"]

WORDS: dict[Cost, str] = {
    "latency": "latency",
    "params": "parameters",
    "macs": "multiply-adds",
    "memory": "memory",
}
_NEAR = 1.1  # sizes nearer to each other than this are not told apart
_BELOW = 0.98  # what is measured is aimed at a little below: it is never met exactly


@dataclass(frozen=True)
class Asked:
    """What is asked for, and how it is looked for.

    Parameters
    ----------
    max_loss
        How much of the score may be lost, on validation (default, with a target: any amount).
    latency
        Go on to this share of the original's time for a batch, measured in turns with it.
    params
        Go on to this share of its parameters.
    macs
        Go on to this share of its multiply-adds.
    memory
        Go on to this share of its memory: the weights, and the most that a pass holds at once.
    epochs
        Epochs of fine-tuning in each round.
    rate
        Their highest learning rate, as a share of that of the original's training. The paper's
        is 2. Which is best differs: try others.
    step
        The share of the size that a round keeps, at most.
    rounds
        Rounds, at most.
    ranking
        The kind of saliency that ranks channels: weight_gradient (Eq. 7), gradient, magnitude,
        batchnorm or random.
    batches
        Training batches for the saliency, and as many for trying candidates.
    steer
        Try networks too whose dense filters keep the frequencies that they need, and no more.
    distil
        While a round is fine-tuned, the share of the loss that is the distance to the outputs of
        the original network, above 0 and up to 1 (default: none, it learns from labels alone).
    finalists
        How many candidates of a round are fine-tuned.
    batch
        Images of a batch whose latency and memory are measured.
    size
        Height and width, or depth too, of these images (default: those of the first image of
        validation).
    runtime
        What runs the networks whose latency is measured: PyTorch as it is, or ONNX Runtime.
    despite_noise
        Go on although the validation images cannot tell so small a loss.
    """

    max_loss: float | None = None
    latency: float | None = None
    params: float | None = None
    macs: float | None = None
    memory: float | None = None
    epochs: int = 10
    rate: float = 1.0
    step: float = 0.6
    rounds: int = 12
    ranking: str = "weight_gradient"
    batches: int = 8
    steer: bool = True
    distil: float | None = None
    finalists: int = 1
    batch: int = 1
    size: tuple[int, ...] | None = None
    runtime: Runtime = "eager"
    despite_noise: bool = False

    def __post_init__(self) -> None:
        given: list[str] = [name for name in COSTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one target, not {' and '.join(given)}")
        if not given and self.max_loss is None:
            raise ValueError(
                "how far? Give max_loss (--max-loss), what may be lost of the score, or a target: "
                "latency, params, macs or memory, as a share of the original's"
            )
        for name in given:
            if not 0 < getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be above 0 and below 1, a share of the original's, "
                    f"not {getattr(self, name)!r}"
                )
        check_share("max_loss", self.max_loss)
        check_share("distil", self.distil)
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be above 0, a share of the original's, not {self.rate!r}")
        if not 0.1 <= self.step <= 0.95:
            raise ValueError(f"step must be from 0.1 to 0.95, not {self.step!r}")
        for name in ("epochs", "rounds", "batches", "finalists", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if self.runtime not in typing.get_args(Runtime):
            raise unknown("runtime", self.runtime, typing.get_args(Runtime))
        kinds.find(self.ranking)

    @property
    def cost(self) -> Cost:
        """What is to become less: the latency, unless a target says otherwise."""
        return next((name for name in COSTS if getattr(self, name) is not None), "latency")

    @property
    def target(self) -> float | None:
        found: float | None = getattr(self, self.cost)
        return found


@dataclass(frozen=True)
class Done:
    """What counts of a round for what comes next: shares of the original's."""

    knob: float  # of what was cut to: parameters or multiply-adds
    cost: float  # of what was asked for, as measured
    good: bool  # whether the loss is within what may be lost
    smallest: bool = False  # whether no channel was left to go


@dataclass(frozen=True)
class Try:
    """The next size: from which round's network (-1: the original), and what to cut it to."""

    parent: int
    aim: float  # of the cost
    knob: float


@dataclass(frozen=True)
class End:
    """Why the search is over; `reached` says whether what was asked for is there."""

    reached: bool
    why: str


def next_move(asked: Asked, done: Sequence[Done]) -> Try | End:
    """The next size to try, or why there is none.

    Sizes go down in equal steps to the target, or on as long as the loss allows. A round that lost
    too much is followed by one half-way back to the last good one, until they are near.

    >>> next_move(Asked(max_loss=0.01, params=0.36), [])
    Try(parent=-1, aim=0.6, knob=0.6)
    >>> lost = [Done(0.6, 0.6, True), Done(0.36, 0.36, False)]
    >>> next_move(Asked(max_loss=0.01, params=0.36), lost).aim
    0.464...
    """
    good = [number for number, each in enumerate(done) if each.good]
    parent = min(good, key=lambda number: done[number].cost, default=-1)
    here = done[parent] if good else Done(1.0, 1.0, True)
    target, what = asked.target, WORDS[asked.cost]
    if target is not None and here.cost <= target:
        return End(True, f"{here.cost:.2f} of the {what}, as was asked for")
    failed = [min(each.cost, here.cost) for each in done if not each.good]
    if failed and here.cost / max(failed) < _NEAR:
        lost = f"more than {asked.max_loss:g} is lost at {max(failed):.2f} of the {what}"
        return End(target is None, lost)
    if here.smallest:
        return End(target is None, f"no channel is left to go at {here.cost:.2f} of the {what}")
    if len(done) >= asked.rounds:
        return End(target is None, f"{asked.rounds} rounds were done (--rounds)")
    if failed:
        aim = math.sqrt(here.cost * max(failed))
    elif target is None:
        aim = here.cost * asked.step
    else:
        far = math.log(target / here.cost) / math.log(asked.step)
        aim = here.cost * (target / here.cost) ** (1 / max(1, math.ceil(far - 1e-9)))
    return Try(parent, aim, _knob(asked, here, aim))


def _knob(asked: Asked, here: Done, aim: float) -> float:
    """The share of parameters or multiply-adds at which the cost should be what is aimed at.

    A cost that is measured follows multiply-adds by a power that the rounds so far tell.
    """
    if asked.cost in ("params", "macs"):
        return aim
    power = 1.0
    if here.knob < 0.95 and here.cost < 0.98:
        power = min(max(math.log(here.cost) / math.log(here.knob), 0.4), 1.5)
    wanted = here.knob * (_BELOW * aim / here.cost) ** (1 / power)
    return float(min(wanted, 0.98 * here.knob))


def images_needed(images: int, half: float, loss: float) -> int:
    """How many images would tell a loss from none, if so many have an interval of ±half.

    >>> images_needed(50, 0.02, 0.01)
    200
    """
    return math.ceil(images * (half / loss) ** 2 - 1e-9)
