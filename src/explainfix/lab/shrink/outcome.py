"""What came of shrinking a network: every round, the one that was chosen, and its test score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from ...registry import Shown, views
from ...table import as_frame
from ...zoo.opening import open_network
from ..run.metrics import Score
from .goal import WORDS, Asked, End
from .rounds import Round

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class OnTest:
    """Scores on images that chose nothing: of both networks, and their paired difference."""

    split: str
    images: int
    original: Score
    small: Score
    change: Score


@dataclass(frozen=True, repr=False)
class Shrunk(Shown):
    """The outcome: `rounds`, the original first, and the number of the one that was `chosen`.

    `end` says why the search ended, and whether all that was asked for is there. `tested` is
    `None` if the data has no test images.
    """

    folder: Path
    title: str
    lr: float  # of the original's training
    asked: Asked
    rounds: Sequence[Round]
    chosen: int
    end: End
    tested: OnTest | None

    @property
    def original(self) -> Round:
        return self.rounds[0]

    @property
    def small(self) -> Round:
        """The network that was chosen."""
        return self.rounds[self.chosen]

    @property
    def reached(self) -> bool:
        """Whether there is a smaller network, and as small as was asked for."""
        return self.end.reached and self.chosen > 0

    def model(self, number: int | None = None) -> nn.Module:
        """The network that was chosen, or that of another round."""
        return open_network(self.rounds[self.chosen if number is None else number].model)

    def table(self) -> pd.DataFrame:
        """A row per round: what it costs, as shares of the original's, and its score."""
        rows = [
            {
                "round": each.number,
                "way": each.way,
                **each.costs.shares,
                "score": each.score,
                "change": each.change.value,
                "low": each.change.low,
                "high": each.change.high,
                "within": each.is_good(self.asked.max_loss),
                "chosen": each.number == self.chosen,
            }
            for each in self.rounds
        ]
        return as_frame(rows, "round")

    def as_dict(self) -> dict[str, Any]:
        """All of it but the layers, as JSON can hold it."""
        rounds = [asdict(each) for each in self.rounds]
        return {
            "folder": str(self.folder),
            "said": str(self),
            "reached": self.reached,
            "end": self.end.why,
            "chosen": self.chosen,
            "tested": None if self.tested is None else asdict(self.tested),
            "rounds": [{k: v for k, v in each.items() if k != "layers"} for each in rounds],
        }

    def to_html(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the page: scores against costs, and what went from each layer."""
        views.find("shrunk")(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        return f"Shrunk: {self}"

    def __str__(self) -> str:
        if not self.chosen:
            return f"No smaller network was found: {self.end.why}."
        shares = [
            f"{self.small.costs.shares[cost]:.2f} of the {word}" for cost, word in WORDS.items()
        ]
        name = self.small.change.name
        score = name.upper() if name == "auc" else name.capitalize()
        if self.tested is None:
            return f"{', '.join(shares)}, {score} {signed(self.small.change)} on validation"
        return f"{', '.join(shares)}, {score} {signed(self.tested.change)} on {self.tested.split}"


def signed(change: Score) -> str:
    """A difference with its interval, as one writes it.

    >>> signed(Score("auc", -0.0042, -0.0111, 0.003))
    '-0.004 (-0.011 to +0.003)'
    """
    low, high = change.low or 0.0, change.high or 0.0
    return f"{change.value:+.3f} ({low:+.3f} to {high:+.3f})"
