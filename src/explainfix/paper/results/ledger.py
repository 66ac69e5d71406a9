"""The numbers of finished runs without their weights: one file for all, docs/results/runs.jsonl.

With it an experiment is judged, or one seed is added to it, without training the others again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...lab.run.checkpoint import writing
from ...lab.run.config import RunConfig
from ...lab.run.folder import Run
from ...lab.run.naming import run_name

LEDGER = "runs.jsonl"
DIGITS = 6  # of every number, behind the point
_KEPT = ("parameters", "learned_parameters", "torch")  # of what a run says of itself


@dataclass(frozen=True)
class Entry:
    """A finished run: a row of numbers per epoch, and what it says of itself."""

    history: list[dict[str, float]]
    result: dict[str, Any]


def ledger_name(config: RunConfig) -> str:
    """The name of a run wherever its data is.

    >>> ledger_name(RunConfig(data="folder:a/b")) == ledger_name(RunConfig(data="folder:c"))
    True
    """
    return run_name(replace(config, data=config.data.partition(":")[0]))


def read_ledger(file: Path) -> dict[str, Entry]:
    """The runs in a ledger, by `ledger_name`."""
    found = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            run = json.loads(line)
            rows = [dict(zip(run["columns"], row, strict=True)) for row in run["rows"]]
            history = [{k: v for k, v in row.items() if v is not None} for row in rows]
            found[run["name"]] = Entry(history, {name: run[name] for name in _KEPT})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of {str(file)!r} is damaged: {error!r}") from None
    return found


def write_ledger(file: Path, runs: Iterable[Run]) -> None:
    """Add finished runs; those of the same name are replaced."""
    known = read_ledger(file) if file.is_file() else {}
    for run in runs:
        known[ledger_name(run.config)] = Entry(list(run.history), {k: run.result[k] for k in _KEPT})
    with writing(file) as temporary:
        temporary.write_text("".join(_lines(known)), encoding="utf-8")


def _lines(runs: Mapping[str, Entry]) -> Iterator[str]:
    for name, run in sorted(runs.items()):
        columns = list(dict.fromkeys(name for row in run.history for name in row))
        rows = [[_number(row.get(column)) for column in columns] for row in run.history]
        yield json.dumps({"name": name, **run.result, "columns": columns, "rows": rows}) + "\n"


def _number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else round(value, DIGITS)
