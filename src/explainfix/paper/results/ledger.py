"""The numbers of finished runs without their weights: one file for all, docs/results/runs.jsonl.

With it an experiment is judged, or one seed is added to it, without training the others again. What
was measured of a run's weights is kept in its folder, and goes with it, into a file of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ...lab.run.checkpoint import writing
from ...lab.run.config import RunConfig
from ...lab.run.folder import Run
from ...lab.run.naming import run_name

T = TypeVar("T")

LEDGER, MEASURED = "runs.jsonl", "measured.json"
DIGITS = 6  # of every number, behind the point
_KEPT = ("parameters", "learned_parameters", "torch")  # of what a run says of itself
_BEGINS = ("model", "weights", "zero_from")  # the options that may name another run


@dataclass(frozen=True)
class Entry:
    """A finished run: a row of numbers per epoch, what it says of itself, what was measured."""

    history: list[dict[str, float]]
    result: dict[str, Any]
    measured: dict[str, Any] = field(default_factory=dict)


def ledger_name(config: RunConfig, others: Iterable[Run] = ()) -> str:
    """The name of a run wherever its data is.

    One that begins with one of `others`, or with a file named after it, is known by the name which
    that one has here: its weights need not be there, nor have the same bits on every machine.

    >>> ledger_name(RunConfig(data="folder:a/b")) == ledger_name(RunConfig(data="folder:c"))
    True
    """
    others = list(others)
    begins: dict[str, Any] = {}
    for option in _BEGINS:
        name = Path(getattr(config, option) or "").name
        for run in others:
            before, found, _ = name.partition(run.folder.name)
            if found:
                begins[option] = f"{before}{ledger_name(run.config, others)}.safetensors"
    return run_name(replace(config, data=config.data.partition(":")[0], **begins))


def read_measured(folder: Path) -> dict[str, Any]:
    """What was measured of the weights of the run in a folder, by name."""
    file = folder / MEASURED
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def note_measured(folder: Path, name: str, value: Any) -> None:
    """Keep what was measured, which JSON can hold, beside the weights."""
    with writing(folder / MEASURED) as temporary:
        temporary.write_text(json.dumps(read_measured(folder) | {name: value}, allow_nan=False))


def read_ledger(file: Path) -> dict[str, Entry]:
    """The runs in a ledger, by `ledger_name`."""

    def history(run: dict[str, Any]) -> list[dict[str, float]]:
        rows = [dict(zip(run["columns"], row, strict=True)) for row in run["rows"]]
        return [{k: v for k, v in row.items() if v is not None} for row in rows]

    def told(run: dict[str, Any]) -> dict[str, Any]:
        return {name: run[name] for name in _KEPT}

    found = _read_lines(file, lambda run: Entry(history(run), told(run)))
    beside = _beside(file)
    measured = _read_lines(beside, lambda run: run["measured"]) if beside.is_file() else {}
    return {name: replace(entry, measured=measured.get(name, {})) for name, entry in found.items()}


def write_ledger(file: Path, runs: Iterable[Run]) -> None:
    """Add finished runs; those of the same name are replaced."""
    known = read_ledger(file) if file.is_file() else {}
    runs = list(runs)
    for run in runs:
        told = {name: run.result[name] for name in _KEPT}
        name = ledger_name(run.config, runs)
        before = known[name].measured if name in known else {}
        known[name] = Entry(list(run.history), told, before | read_measured(run.folder))
    measured = {name: run.measured for name, run in known.items() if run.measured}
    if measured:
        lines = {name: {"measured": value} for name, value in measured.items()}
        _write_lines(_beside(file), lines)
    _write_lines(file, {name: _as_line(run) for name, run in known.items()})


def _beside(file: Path) -> Path:
    """Where what was measured is: larger than all else, and not always wanted."""
    return file.with_name(f"{file.stem}-{MEASURED}l")


def _read_lines(file: Path, read: Callable[[dict[str, Any]], T]) -> dict[str, T]:
    found = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            run = json.loads(line)
            found[run["name"]] = read(run)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of {str(file)!r} is damaged: {error!r}") from None
    return found


def _write_lines(file: Path, lines: Mapping[str, dict[str, Any]]) -> None:
    text = (json.dumps({"name": name, **line}) + "\n" for name, line in sorted(lines.items()))
    with writing(file) as temporary:
        temporary.write_text("".join(text), encoding="utf-8")


def _as_line(run: Entry) -> dict[str, Any]:
    columns = list(dict.fromkeys(name for row in run.history for name in row))
    rows = [[_number(row.get(column)) for column in columns] for row in run.history]
    return {**run.result, "columns": columns, "rows": rows}


def _number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else round(value, DIGITS)
