"""Commands that do the paper's experiments: reproduce."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..lab.run.process import prepare_process
from ..lab.sweep.workers import Workers
from ..paper.results.ledger import read_ledger
from ..paper.setting import SCALES, Scale, Setting, sort_data
from .app import Json, app
from .printing import new_table, print_json, track_progress

if TYPE_CHECKING:
    from ..lab.sweep.sweep import SweepMoment
    from ..paper.results.record import Record

WORDS = {"agrees": "green", "disagrees": "red", "undecided": "yellow", "not tested": "dim"}


def workers_flag(name: str) -> str:
    """A field of `Workers` as its flag."""
    return "workers" if name == "count" else name


@app.command(name="reproduce")
def reproduce_(
    name: str | None = None,
    /,
    *,
    scale: Scale = "smoke",
    data: Annotated[list[str] | None, Parameter(negative="")] = None,
    folder: Path = Path("reproduced"),
    workers: Annotated[
        Workers | None, Parameter(name="*", name_transform=workers_flag, negative="")
    ] = None,
    known: Path | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    check: Annotated[bool, Parameter(negative="")] = False,
    as_json: Json = False,
) -> int:
    """Do an experiment of the paper and say for each of its claims whether ours agrees.

    The same command goes on with what was interrupted; finished runs are not done again.

    Parameters
    ----------
    name
        The experiment (explainfix reproduce --list).
    scale
        Seconds on drawn images; minutes to an hour or so on two cores; or the paper's sizes.
    data
        A dataset, NAME or NAME:PATH; may be repeated, once for microscopy and once for x-rays.
    folder
        Where runs and outcomes are.
    known
        The scores of runs that were done elsewhere (docs/results/runs.jsonl): those are not done
        again, unless their weights are needed.
    force
        Write over an outcome of another version.
    list_
        Show all experiments, what they cost, and what is done.
    check
        Apply the rules again to the scores of all outcomes in --folder, and say what differs.
    """
    from ..paper.reproduce import outcome_folder, reproduce

    if check:
        return _check(folder, as_json=as_json)
    given = sort_data(data or ())
    if list_:
        _list(Setting("cpu", given, folder), as_json=as_json)
        return 0
    if name is None:
        raise ValueError("which experiment? explainfix reproduce --list shows all")
    prepare_process()
    display = Display()
    runs = read_ledger(known) if known else {}
    setting = Setting(scale, given, folder, workers, display, track_progress, runs)
    try:
        record = reproduce(name, setting, force=force)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped. The same command goes on from the last checkpoint.")
        raise
    finally:
        display.close()
    page = outcome_folder(name, setting) / "page.html"
    if as_json:
        print_json({**record, "page": str(page)})
        return 0
    _print_record(record, page)
    return 0


def _print_record(record: "Record", page: Path) -> None:
    out = Console(highlight=False)
    out.print(f"[bold]{escape(record['title'])}[/bold]")
    out.print(f"{escape(record['reference'])}, scale {record['scale']}\n")
    table = new_table("claim", "paper", "ours", "verdict")
    for claim in record["claims"]:
        colour = WORDS[claim["word"]]
        cells = [escape(claim[key]) for key in ("text", "paper", "ours")]
        table.add_row(*cells, f"[{colour}]{claim['word']}[/{colour}]")
    out.print(table)
    if record["notes"]:
        out.print("\n[bold]What differs from the paper[/bold]")
        for note in record["notes"]:
            line = Table.grid(padding=(0, 1))
            line.add_row("-", escape(note))
            out.print(line)
    Console(highlight=False, soft_wrap=True).print(f"\nWrote {escape(str(page))}")


def _check(folder: Path, *, as_json: bool) -> int:
    """Judge outcomes again; 1 if one comes out otherwise."""
    from ..paper.reproduce import check_outcomes

    found = check_outcomes(folder)
    if as_json:
        print_json(found)
        return int(any(found.values()))
    out = Console(highlight=False, soft_wrap=True)
    for file, problems in found.items():
        out.print(f"{escape(file)}: {'as judged' if not problems else 'differs'}")
        for problem in problems:
            out.print(f"  {escape(problem)}")
    return int(any(found.values()))


def _list(setting: Setting, *, as_json: bool) -> None:
    from ..paper import list_experiments

    rows = {name: _describe(name, setting) for name in list_experiments()}
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    for name, row in rows.items():
        costs = ", ".join(f"{scale}: {row['cost'][scale]}" for scale in SCALES)
        lines = [escape(row["title"]), f"[dim]{escape(row['reference'])}; {escape(costs)}[/dim]"]
        lines += [f"done, {scale}: {escape(text)}" for scale, text in row["done"].items()]
        table.add_row(f"[bold]{name}[/bold]", "\n".join(lines))
    Console(highlight=False).print(table)


def _describe(name: str, setting: Setting) -> dict[str, Any]:
    """What `--list` says of an experiment: the last is what exists of it, by scale."""
    from ..paper.reproduce import count_runs, find_experiment, what_exists

    experiment = find_experiment(name)
    done = {}
    for scale in SCALES:
        found = what_exists(experiment, scale, setting.folder)
        if isinstance(found, dict):
            words = [claim["word"] for claim in found["claims"]]
            counts = {word: words.count(word) for word in WORDS if word in words}
            done[scale] = ", ".join(f"{word} {count}" for word, count in counts.items())
        elif found is not None:
            done[scale] = "another version"
        else:
            given = {} if scale == "smoke" else setting.given
            there, of = count_runs(
                experiment, dataclasses.replace(setting, scale=scale, given=given)
            )
            if there:
                done[scale] = f"{there} of {of} runs"
    return {
        "title": experiment.title,
        "reference": experiment.reference,
        "needs": list(experiment.needs),
        "cost": dict(experiment.cost),
        "done": done,
    }


class Display:
    """Progress of a sweep: one line that changes on a terminal, a line per event elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.status: Any = None

    def __call__(self, moment: "SweepMoment") -> None:
        if not self.console.is_terminal:
            self.console.print(escape(moment.line))
            return
        if self.status is None:
            self.status = self.console.status("")
            self.status.start()
        self.status.update(escape(moment.line))

    def close(self) -> None:
        if self.status is not None:
            self.status.stop()
            self.status = None
