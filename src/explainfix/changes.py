"""What was done to a model's modules since it was built, in order, so that it can be done again.

Weights alone do not say how many channels a layer has left, or that it was parted in two: a model
remembers each such change, a file keeps them, and a newly built model goes through them again.
"""

from typing import Any, Protocol

from torch import nn

from .marks import CHANGES


class Change(Protocol):
    """A change of a model's modules: a dataclass of what JSON can hold."""

    def again_(self, model: nn.Module) -> None:
        """Do it to a newly built model; its numbers are loaded afterwards."""


def changes_of(model: nn.Module) -> list[Any]:
    """How a model was changed since it was built, in order."""
    return list(getattr(model, CHANGES, []))


def remember(model: nn.Module, change: Change) -> None:
    """Note that a change was made."""
    setattr(model, CHANGES, [*changes_of(model), change])
