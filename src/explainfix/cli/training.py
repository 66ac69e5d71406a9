"""The command that trains: its options, and its progress on the screen."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..lab.run.config import RunConfig, make_config, read_config
from ..lab.run.metrics import MAIN_SCORE
from ..lab.run.process import prepare_process
from .app import Json, app, flags_of, option_pair, typed
from .printing import print_json, show_status

if TYPE_CHECKING:
    from ..lab.run.folder import Moment, Run

    Flags = RunConfig
else:
    Flags = flags_of(RunConfig, __name__)


@app.command(name="train")
def train_(
    *,
    config: Path | None = None,
    runs: Path = Path("runs"),
    tune: Annotated[bool, Parameter(negative="")] = False,
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
    tune
        Before the first epoch try for 20 seconds which of channels_last, precision and frugal pay
        here, those that are not given, and take them; tuning.json in the run's folder says why.
    """
    given = (read_config(config) if config else {}) | _typed(flags)
    chosen = make_config(given)
    out = Console(highlight=False, soft_wrap=True)
    shown = not as_json and os.environ.get("RANK", "0") == "0"  # torchrun: once is enough
    if shown:
        out.print(escape(_plan(chosen)))
    from ..lab.run.train import train  # Fabric takes seconds to import

    prepare_process()
    beside = {}
    if tune:
        from ..lab.measure.tuned_run import tune_run

        with show_status("Trying settings"):
            tuned = tune_run(chosen, given, runs=runs)
        chosen, beside = tuned.config, tuned.note
        for sentence in tuned.why if shown else ():
            out.print(escape(sentence))
    display = Display()
    try:
        run = train(
            chosen,
            runs=runs,
            report=None if as_json else display,
            tell=(lambda text: out.print(escape(text))) if shown else None,
            beside=beside,
        )
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped. The same command goes on from the last checkpoint.")
        raise
    finally:
        display.close()
    if as_json and os.environ.get("RANK", "0") == "0":
        print_json({"folder": str(run.folder), **run.result})
    elif shown:
        _print_result(out, run)


def _plan(config: RunConfig) -> str:
    """What is going to be done, in a line."""
    how = ", mixed" if config.mix else ", steered" if config.steer else ""
    filters = "filters learned"
    if config.fix:
        filters = f"filters fixed by {config.fix}{how}"
    elif Path(config.model).exists():  # a file or a run knows which of its filters are fixed
        filters = "filters fixed or learned as in it"
    length = "1 epoch" if config.epochs == 1 else f"{config.epochs} epochs"
    return f"Training {config.model} on {config.data}: {filters}, {length}."


def _print_result(out: Console, run: "Run") -> None:
    fixed = run.result["fixed_layers"]
    checked = f"; all {fixed} fixed layers are as they were fixed" if fixed else ""
    best, count = run.result["best"], run.result["epochs"]
    length = "1 epoch" if count == 1 else f"{count} epochs"
    for split, names in run.result["left_out"].items():
        out.print(f"Left out of {escape(split)}, with one class only: {escape(', '.join(names))}")
    if count < run.config.epochs:
        patience = run.config.patience
        out.print(f"Stopped early: no better score in {patience} evaluations (--patience).")
    out.print(
        f"Best {escape(run.config.evaluate_on[0])} score {best:.4f} in {length}{checked}.\n"
        f"Wrote {escape(str(run.folder))}"
    )


class Display:
    """Progress of a run: a bar on a terminal, a line per epoch anywhere."""

    def __init__(self) -> None:
        self.bar: Progress | None = None  # made when needed: this may be sent to another process
        self.score = ""

    def __call__(self, moment: "Moment") -> None:
        console = Console(highlight=False, soft_wrap=True)
        if moment.row is not None:
            shown = self.bar.console if self.bar else console
            shown.print(self._line(moment, moment.row))
        if console.is_terminal:
            self._move(console, moment)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _line(self, moment: "Moment", row: dict[str, float]) -> str:
        main = MAIN_SCORE.values()
        scores = [f"{k} {v:.4f}" for k, v in row.items() if k.partition(" ")[2] in main]
        self.score = scores[0] if scores else self.score
        scores = [f"{k} {v:.4f}" for k, v in row.items() if k.endswith(" loss")] + scores
        number = f"{row['epoch']:.0f}".rjust(len(str(moment.epochs)))
        parts = [f"epoch {number}/{moment.epochs}", f"loss {row['loss']:.4f}", *scores]
        return "  ".join([*parts, f"{row['seconds']:.1f} s"])

    def _move(self, console: Console, moment: "Moment") -> None:
        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=console, transient=True)
            done = moment.epoch * moment.steps + moment.step - 1
            self.bar.add_task("", total=moment.epochs * moment.steps, completed=done)
            self.bar.start()
        text = f"epoch {moment.epoch + 1}/{moment.epochs}  loss {moment.loss:.4f}  {self.score}"
        done = moment.epoch * moment.steps + moment.step
        self.bar.update(self.bar.task_ids[0], completed=done, description=text)
        if moment.row is not None and moment.epoch + 1 == moment.epochs:
            self.close()


def _typed(flags: Flags | None) -> dict[str, Any]:
    """The options that were typed."""
    given = typed(flags)
    for name in ("data_options", "fix_options"):
        if name in given:
            given[name] = dict(option_pair(text) for text in given[name])
    return given
