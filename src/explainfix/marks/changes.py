"""What was done to a model's modules since it was built, in order, so that it can be done again.

Weights alone do not say how many channels a layer has left, or that it was parted in two: a model
remembers each such change, a file keeps them, and a newly built model goes through them again.
A change is remembered by the smallest module that it happened in, so that the whole model knows
what was done to a part of it, and a part that is taken out of a wrapper what was done to the whole.
"""

import time
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Protocol, Self

from torch import nn

from . import CHANGES


class Change(Protocol):
    """A change of a model's modules: a dataclass of what JSON can hold."""

    def again_(self, model: nn.Module) -> None:
        """Do it to a newly built model; its numbers are loaded afterwards."""

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """The same change, every path of a module or name of a tensor in it given another name."""


def changes_of(model: nn.Module) -> list[Any]:
    """How a model and its parts were changed since it was built, in order."""
    found = [
        (moment, change.renamed(lambda name, path=path: f"{path}.{name}" if path else name))
        for path, module in model.named_modules()
        for moment, change in getattr(module, CHANGES, [])
    ]
    return [change for _, change in sorted(found, key=lambda pair: pair[0])]


def remember(model: nn.Module, change: Change) -> None:
    """Note that a change was made."""
    places: list[list[str]] = []

    def note(name: str) -> str:
        places.append(name.split(".")[:-1])
        return name

    change.renamed(note)
    shared = takewhile(lambda steps: len(set(steps)) == 1, zip(*places, strict=False))
    path = ".".join(steps[0] for steps in shared)
    within = model.get_submodule(path)
    inner = change.renamed(lambda name: name[len(path) + 1 :] if path else name)
    # By the clock, as modules that do not know of each other must agree on an order.
    setattr(within, CHANGES, [*getattr(within, CHANGES, []), (time.time_ns(), inner)])


def hand_over_changes(old: nn.Module, new: nn.Module) -> None:
    """Let what takes a module's place remember what was done to that one."""
    if earlier := getattr(old, CHANGES, []):
        setattr(new, CHANGES, [*getattr(new, CHANGES, []), *earlier])
