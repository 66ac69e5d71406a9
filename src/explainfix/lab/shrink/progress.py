"""What a search tells while it is going on, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .goal import Asked, End, next_move
from .rounds import Round


@dataclass(frozen=True)
class ShrinkMoment:
    """What a search reports: what it is doing, and every round that is done."""

    number: int
    text: str
    done: Round | None = None
    seconds_left: float | None = None  # an estimate, once a round is done


ShrinkReport = Callable[[ShrinkMoment], None]


def seconds_left(asked: Asked, rounds: Sequence[Round]) -> float | None:
    """What the rounds to the target will take if they do what they are to and last as those before.

    Without a target nobody knows how many there will be.
    """
    known = rounds[1:]  # the first is the original
    if not known or asked.target is None:
        return None
    done = [each.done(asked.cost, asked.max_loss) for each in known]
    moves = 0
    while not isinstance(move := next_move(asked, done), End):
        done.append(replace(done[-1], knob=move.knob, cost=0.99 * move.aim, good=True))
        moves += 1
    return moves * sum(each.seconds for each in known) / len(known)
