"""The command for continuous integration: check."""

import time
import tomllib
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from ..explanation import Explanation, Thresholds, check
from ..marks.untrained import RANDOM
from ..report.junit import junit_text
from ..store import written
from .app import Build, Force, Json, Model, app, open_model
from .printing import check_output, new_table, print_json


@app.command(name="check")
def check_(
    model: Model,
    /,
    *,
    baseline: Path | None = None,
    config: Path | None = None,
    junit: Annotated[Path | None, Parameter(name="--junit")] = None,
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Check a model's filters, without data: dead layers, idle kernels, moved filters, drift.

    The exit code is 0 if all is well and 1 if a check failed.

    Parameters
    ----------
    baseline
        An explanation of the model as it should be (explainfix explain MODEL -o FILE.json); also
        .csv and .parquet.
    config
        A TOML file with thresholds: idle, idle_norm, drift, ignore.
    junit
        A JUnit file (.xml) to write.
    """
    check_output(junit, ".xml", overwrite=force)
    thresholds = _read_thresholds(config) if config else Thresholds()
    before = Explanation.load(baseline) if baseline else None
    network = open_model(model, build or Build())
    start = time.perf_counter()
    report = check(network, baseline=before, thresholds=thresholds, title=model)
    seconds = time.perf_counter() - start
    if junit is not None:
        with written(junit, overwrite=force) as temporary:
            temporary.write_text(junit_text(report, seconds), encoding="utf-8")
    if as_json:
        print_json(report.as_dict() | {"seconds": seconds})
        return int(not report.ok)
    out = Console(highlight=False)
    if report.untrained:
        out.print(f"[bold]{RANDOM}[/bold]\n")
    out.print(f"[bold]{escape(report.verdict)}[/bold]")
    if report.failures:
        table = new_table("check")
        table.add_column("spatial layer", overflow="fold")
        table.add_column("what is wrong")
        for finding in report.failures:
            table.add_row(finding.check, escape(finding.layer), escape(finding.text))
        out.print()
        out.print(table)
    if before is None:
        out.print("\nDrift was not checked: no baseline was given.")
    if junit is not None:
        out.print(f"\nWrote {escape(str(junit))}.", soft_wrap=True)
    return int(not report.ok)


def _read_thresholds(config: Path) -> Thresholds:
    try:
        return Thresholds.of(tomllib.loads(config.read_text(encoding="utf-8")))
    except ValueError as problem:  # TOML's own mistakes among them
        raise ValueError(f"{str(config)!r}: {problem}") from None
