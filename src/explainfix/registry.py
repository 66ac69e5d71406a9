"""One small registry: names to things, with errors that help."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

T = TypeVar("T")


def unknown(kind: str, value: object, known: Iterable[str], listing: str = "") -> ValueError:
    """The error for a name that is none of `known`: quotes it, then near misses or all of them.

    >>> print(unknown("filter method", "gharr", ["ghaar", "psine"], "explainfix list filters"))
    unknown filter method 'gharr': did you mean 'ghaar'? (explainfix list filters shows all)
    """
    names = list(known)
    near = difflib.get_close_matches(str(value), names, n=3, cutoff=0.6)
    if near:
        hint = "did you mean " + " or ".join(repr(name) for name in near) + "?"
    elif 0 < len(names) <= 12:
        hint = "choose from " + ", ".join(repr(name) for name in names)
    else:
        hint = "no similar name is known"
    return ValueError(
        f"unknown {kind} {value!r}: {hint}" + (f" ({listing} shows all)" if listing else "")
    )


class Registry(dict[str, T]):
    """A dictionary in which a name is given once and a wrong one is answered with near misses."""

    def __init__(self, kind: str, listing: str) -> None:
        super().__init__()
        self.kind, self.listing = kind, listing

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: `@filters.register("ghaar")`."""

        def add(entry: T) -> T:
            if name in self:
                raise ValueError(f"{self.kind} {name!r} is registered already")
            self[name] = entry
            return entry

        return add

    def find(self, name: str) -> T:
        """The entry of that name, or a `ValueError` with near misses."""
        if name not in self:
            raise unknown(self.kind, name, self, self.listing)
        return self[name]


filters: Registry[Callable[..., Any]] = Registry("filter method", "explainfix list filters")
bases: Registry[Callable[..., Any]] = Registry("basis", "")
views: Registry[Callable[..., Any]] = Registry("view", "")  # how results are drawn, see report
openers: Registry[Callable[..., nn.Module]] = Registry("opener", "")  # of runs, see lab.run.folder


class Shown:
    """A result that shows itself in a notebook, by a view of `report`."""

    def _repr_html_(self) -> str:
        text: str = views.find("notebook")(self)
        return text


@dataclass(frozen=True)
class ModelSource:
    """Where models come from: `build(name, num_classes, in_channels, pretrained)`, and names."""

    build: Callable[[str, int | None, int | None, bool], nn.Module]
    names: Callable[[], list[str]]  # none while its package is not installed
    extra: str = ""  # that installs it


models: Registry[ModelSource] = Registry("model source", "explainfix list models")
datasets: Registry[Callable[..., Any]] = Registry("dataset", "explainfix list datasets")
