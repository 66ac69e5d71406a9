"""What all commands share: the app, its common options, opening models, configs as flags."""

import dataclasses
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter, Token
from torch import nn

from .. import __version__
from ..lab.run import folder as folder  # registers how a run is opened
from ..zoo.opening import open_guide as zoo_open_guide
from ..zoo.opening import open_network
from .printing import track_progress

app = cyclopts.App(
    name="explainfix",
    help="See, fix and prune the spatial filters of any CNN.",
    version=__version__,
    help_format="plaintext",
)
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for machines.")]
REGENERATING = partial(track_progress, title="Regenerating filters")
OUTPUT = Parameter(name=["--output", "-o"])
Force = Annotated[bool, Parameter(negative="", help="Overwrite the output file.")]
Model = Annotated[
    str,
    Parameter(
        help="A model's name (explainfix list models) or FILE.py:FACTORY; with @FILE for the "
        "weights in a file, a checkpoint or one that explainfix saved; a file that explainfix "
        "saved; or a run's folder, RUN or RUN@last."
    ),
]


def read_whole(kind: object, tokens: Sequence[Token]) -> int:
    """What was typed as a whole number; cyclopts by itself would round 4.5."""
    [token] = tokens
    try:
        return int(token.value)
    except ValueError:
        raise ValueError(f"a whole number is needed, not {token.value!r}") from None


Whole = Annotated[int, Parameter(converter=read_whole)]


@Parameter(name="*")
@dataclass(frozen=True)
class Build:
    """How to build a model that is given by name.

    Parameters
    ----------
    weights
        'pretrained', or a file: a checkpoint, safetensors, or one that explainfix saved (default:
        random).
    num_classes
        Number of outputs (default: the model's own).
    in_channels
        Number of input channels (default: the model's own).
    """

    weights: str | None = None
    num_classes: Whole | None = None
    in_channels: Whole | None = None


def open_model(model: str, build: Build) -> nn.Module:
    """The model that this names, see `open_network`."""
    return open_network(model, **asdict(build), progress=REGENERATING)


def open_guide(guide: str) -> nn.Module | str:
    """The same for a guide: without weights of its own it has pretrained ones."""
    return zoo_open_guide(guide, progress=REGENERATING)


def option_pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as TOML would read it, or as a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"the option {text!r} is not of the form NAME=VALUE")
    try:
        return name.replace("-", "_"), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.replace("-", "_"), value


def flags_of(config: type, module: str) -> Any:
    """A dataclass with a flag for every field of another, `None` where none was typed."""
    hints = typing.get_type_hints(config)
    fields = [_flag(entry, hints[entry.name]) for entry in dataclasses.fields(config)]
    named = {"__doc__": config.__doc__, "__module__": module}
    return Parameter(name="*")(dataclasses.make_dataclass("Flags", fields, namespace=named))


def typed(flags: Any) -> dict[str, Any]:
    """The options that were typed."""
    every = vars(flags) if flags is not None else {}
    return {name: value for name, value in every.items() if value is not None}


def _flag(entry: "dataclasses.Field[Any]", kind: Any) -> tuple[str, Any, Any]:
    """A field as a flag; tables as NAME=VALUE pairs."""
    table = typing.get_origin(kind) is Mapping
    several = table or _is_several(kind)
    how = Parameter(
        name="--" + entry.name.replace("_", "-").removesuffix("s") if table else None,
        negative=None if kind is bool else "",
        consume_multiple=several,
        show_default=_shown(entry.default),
        converter=read_whole if kind in (int, int | None) else None,
    )
    marked: Any = Annotated[(list[str] if table else kind) | None, how]
    return entry.name, marked, dataclasses.field(default=None)


def _is_several(kind: Any) -> bool:
    every = (kind, *typing.get_args(kind))
    return any(typing.get_origin(part) is tuple for part in every)


def _shown(default: Any) -> str | bool:
    """A default as one would type it; those that depend on the task are in the text."""
    if isinstance(default, tuple):
        return " ".join(default) or False
    if isinstance(default, bool):
        return "yes" if default else "no"
    return False if default is None or default is dataclasses.MISSING else str(default)
