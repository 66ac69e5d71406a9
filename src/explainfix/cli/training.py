"""Commands that train and use models: train, evaluate, predict."""

import dataclasses
import time
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..lab.config import RunConfig, make_config, read_config
from .app import Json, app, print_json

if TYPE_CHECKING:
    from ..lab.metrics import Scores
    from ..lab.training import Moment

    Flags = RunConfig
else:

    def _flag(entry: dataclasses.Field, kind: Any) -> tuple[str, Any, Any]:
        """A field of the config as a flag that may be left out; tables as NAME=VALUE pairs."""
        table = typing.get_origin(kind) is Mapping
        how = Parameter(
            name="--" + entry.name.replace("_", "-").removesuffix("s") if table else None,
            negative=None if kind is bool else "",
        )
        marked = Annotated[(list[str] if table else kind) | None, how]
        return entry.name, marked, field(default=None)

    _hints = typing.get_type_hints(RunConfig)
    Flags = Parameter(name="*")(
        dataclasses.make_dataclass(
            "Flags",
            [_flag(entry, _hints[entry.name]) for entry in dataclasses.fields(RunConfig)],
            namespace={"__doc__": RunConfig.__doc__, "__module__": __name__},
        )
    )


@app.command(name="train")
def train_(
    *,
    config: Path | None = None,
    runs: Path = Path("runs"),
    flags: Flags | None = None,
    as_json: Json = False,
) -> None:
    """Train a network, fixed or not; the same command goes on with a run that was interrupted.

    Parameters
    ----------
    config
        A TOML file with any of the options below, spelled with underscores; flags override it.
    runs
        Where the run's folder is; its name comes from its options.
    """
    options = read_config(config) if config else {}
    chosen = make_config(options | _given(flags))
    from ..lab.training import train  # Fabric takes seconds to import

    run = train(chosen, runs=runs, report=None if as_json else Display())
    if as_json:
        print_json({"folder": str(run.folder), **run.result})
        return
    out = Console(highlight=False, soft_wrap=True)
    fixed = run.result["fixed_layers"]
    checked = f"; all {fixed} fixed layers are as they were fixed" if fixed else ""
    out.print(
        f"Best {escape(run.config.evaluate_on[0])} score {run.result['best']:.4f} "
        f"in {run.result['epochs']} epochs{checked}.\nWrote {escape(str(run.folder))}"
    )


class Display:
    """Progress of a run: a bar on a terminal, a line per epoch anywhere."""

    def __init__(self) -> None:
        self.bar: Progress | None = None  # made when first needed: a process may be spawned yet
        self.seconds: list[float] = []

    def __call__(self, moment: "Moment") -> None:
        console = Console(highlight=False, soft_wrap=True)
        if console.is_terminal:
            self._move(console, moment)
        if moment.row is not None:
            row = moment.row
            scores = [f"{name} {value:.4f}" for name, value in row.items() if " dice" in name]
            console.print(
                f"epoch {row['epoch']:.0f}/{moment.epochs}  loss {row['loss']:.4f}  "
                + "  ".join(scores)
                + f"  {row['seconds']:.1f} s"
            )

    def _move(self, console: Console, moment: "Moment") -> None:
        pass


def _given(flags: Flags | None) -> dict[str, Any]:
    """The options that were typed."""
    if flags is None:
        return {}
    given = {k: v for k, v in vars(flags).items() if v is not None}
    for name in ("data_options", "fix_options"):
        if name in given:
            given[name] = dict(_pair(text) for text in given[name])
    return given


def _pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as TOML would read it, or as a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"the option {text!r} is not of the form NAME=VALUE")
    try:
        return name.replace("-", "_"), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.replace("-", "_"), value
