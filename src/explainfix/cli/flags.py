"""The fields of a config as flags, each of which may be left out."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from .app import read_whole


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
