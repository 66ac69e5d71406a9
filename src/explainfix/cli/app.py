"""What all commands share: the app, opening models, progress, printing."""

import json
import tomllib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.progress import track
from torch import nn

from .. import __version__
from ..zoo.opening import open_guide as zoo_open_guide
from ..zoo.opening import open_network

T = TypeVar("T")

app = cyclopts.App(
    name="explainfix",
    help="See, fix and prune the spatial filters of any CNN.",
    version=__version__,
    help_format="plaintext",
)
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for machines.")]
OUTPUT = Parameter(name=["--output", "-o"])
Force = Annotated[bool, Parameter(negative="", help="Overwrite the output file.")]
Model = Annotated[
    str,
    Parameter(
        help="A model's name (explainfix list models), NAME@FILE for the weights in a .pth or "
        "safetensors file, or a file that explainfix saved."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Build:
    """How to build a model that is given by name.

    Parameters
    ----------
    weights
        'pretrained', or a safetensors or .pth file (default: random).
    num_classes
        Number of outputs (default: the model's own).
    in_channels
        Number of input channels (default: the model's own).
    """

    weights: str | None = None
    num_classes: int | None = None
    in_channels: int | None = None


def open_model(model: str, build: Build) -> nn.Module:
    """The model of a name, with the weights of a file (NAME@FILE), or in a file `save` wrote."""
    return open_network(model, **asdict(build), progress=_regenerating)


def open_guide(guide: str) -> nn.Module | str:
    """The same for a guide: without weights of its own it has pretrained ones."""
    return zoo_open_guide(guide, progress=_regenerating)


def _regenerating(paths: Iterable[T]) -> Iterable[T]:
    return track_progress(paths, "Regenerating filters")


def track_progress(items: Iterable[T], title: str, total: int | None = None) -> Iterable[T]:
    """A progress bar, on a terminal only, gone when done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return items
    if total is None:
        known = list(items)
        items, total = known, len(known)
    return track(items, title, total, console=console, transient=True)


def show_status(title: str) -> AbstractContextManager[object]:
    """A line that says what is being done, on a terminal only, gone when done."""
    console = Console(stderr=True)
    return console.status(title) if console.is_terminal else nullcontext()


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def option_pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as TOML would read it, or as a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"the option {text!r} is not of the form NAME=VALUE")
    try:
        return name.replace("-", "_"), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.replace("-", "_"), value
