"""The command that makes a trained network smaller at a loss that is named: shrink."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from ..lab.run.config import RunConfig, make_config, read_config
from ..lab.run.folder import CONFIG
from ..lab.run.process import prepare_process
from ..lab.shrink.goal import COSTS, Asked
from ..lab.shrink.outcome import signed
from ..lab.sweep.progress import duration
from ..lab.sweep.workers import Workers
from ..store import save
from ..zoo.opening import split_run
from .app import OUTPUT, Force, Json, Model, Whole, app, flags_of, option_pair, typed
from .inputs import Options
from .printing import check_output, describe_size, print_json
from .reproducing import workers_flag

ROW = "{:<9}{:<12}{:>8}{:>8}{:>8}{:>8}{:>8}{:>27}  {}".format
HEADING = ROW("round", "cut by", *COSTS, "score", "change (95%)", "").rstrip()

if TYPE_CHECKING:
    from ..lab.shrink.outcome import Shrunk
    from ..lab.shrink.progress import ShrinkMoment
    from ..lab.shrink.rounds import Round

    Flags = Asked
else:
    Flags = flags_of(Asked, __name__)


@Parameter(name="*")
@dataclass(frozen=True)
class Training:
    """How the network is trained, if it is not yet, and fine-tuned.

    Parameters
    ----------
    config
        A TOML file with any options of explainfix train; the flags here override it.
    data
        A dataset's name, or NAME:PATH (default: that of the run).
    data_option
        Options of the dataset, as in size=64.
    fix
        Fix the spatial filters by this rule first, and train (explainfix list filters).
    train_epochs
        Epochs of a network that is not trained yet.
    batch_size
        Images a batch.
    lr
        The learning rate; --rate says what share of it rounds have.
    seed
        Seed of the weights, the order of the data and the augmentations.
    """

    config: Path | None = None
    data: str | None = None
    data_option: Options = None
    fix: str | None = None
    train_epochs: Whole | None = None
    batch_size: Whole | None = None
    lr: float | None = None
    seed: Whole | None = None


@app.command(name="shrink")
def shrink_(
    model: Model,
    /,
    *,
    output: Annotated[Path, OUTPUT],
    report: Path | None = None,
    runs: Path = Path("runs"),
    training: Training | None = None,
    flags: Flags | None = None,
    workers: Annotated[
        Workers | None, Parameter(name="*", name_transform=workers_flag, negative="")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a network smaller and faster, round by round, at a loss that you name.

    A network that is not trained yet is trained first. The smallest that is good enough on
    validation is chosen, and scored once on test. The same command goes on with a search that was
    interrupted.

    Parameters
    ----------
    output
        The safetensors file to write.
    report
        A page (.html) to write: scores against costs, and what went from each layer.
    runs
        Where the folder of the search is; its name comes from the options.
    """
    asked = Asked(**typed(flags))
    check_output(output, ".safetensors", overwrite=force)
    check_output(report, ".html", overwrite=force)
    begin = _what_to_shrink(model, training or Training())
    from ..lab.shrink.search import shrink

    prepare_process()
    display = Display(asked, shown=not as_json)
    try:
        with display:
            found = shrink(
                begin, asked, runs=runs, workers=workers or Workers(), report=display.tell
            )
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped. The same command goes on with the round it was at.")
        raise
    if found.chosen:
        save(found.model(), output, overwrite=force)
    if report is not None:
        found.to_html(report, overwrite=force)
    if as_json:
        print_json({"output": str(output) if found.chosen else None, **found.as_dict()})
    else:
        _print_result(found, output, report)
    if not found.reached:
        kept = f"; {str(output)!r} is the best there is" if found.chosen else ""
        raise ValueError(f"{found.end.why}{kept}")


def _what_to_shrink(model: str, training: Training) -> str | RunConfig:
    """A run's folder, or the options of one to be trained or fine-tuned."""
    given = read_config(training.config) if training.config else {}
    changes = {
        name: getattr(training, name)
        for name in ("data", "fix", "batch_size", "lr", "seed")
        if getattr(training, name) is not None
    }
    if training.data_option is not None:
        changes["data_options"] = dict(option_pair(text) for text in training.data_option)
    if training.train_epochs is not None:
        changes["epochs"] = training.train_epochs
    given |= changes
    if run := split_run(model):
        if not given:
            return model
        # What was done to its network before the first step is done.
        before = ("fix", "steer", "mix", "zero", "prune", "weights")
        theirs = read_config(run[0] / CONFIG)
        given = {k: v for k, v in theirs.items() if not k.startswith(before)} | given
    elif "data" not in given:
        raise ValueError(
            f"{model!r} is no run's folder: say what it is trained on, --data NAME or NAME:PATH "
            "(explainfix list datasets)"
        )
    return make_config(given | {"model": model})


def _print_result(found: "Shrunk", output: Path, report: Path | None) -> None:
    out = Console(highlight=False, soft_wrap=True)
    tested = found.tested
    if tested is not None:
        out.print(
            f"On {tested.images} images of {tested.split}: {tested.change.name} "
            f"{tested.small.value:.4f}, the original {tested.original.value:.4f}."
        )
    out.print(f"[bold]{escape(str(found))}[/bold]")
    if found.reached:
        out.print(f"The search ended: {escape(found.end.why)}.")
    if found.chosen:
        size = describe_size(output.stat().st_size)
        out.print(f"Wrote {escape(str(output))}, {size}.")
    if report is not None:
        out.print(f"Wrote {escape(str(report))}.")
    out.print(f"All rounds are in {escape(str(found.folder))}")


class Display:
    """A table with a row for every round: live on a terminal, a line at a time elsewhere."""

    def __init__(self, asked: Asked, *, shown: bool) -> None:
        self.asked, self.shown = asked, shown
        self.console = Console(highlight=False)
        self.rows: dict[int, Round] = {}
        self.text = ""
        self.left: float | None = None
        self.live: Live | None = None

    def __enter__(self) -> "Display":
        if self.shown and self.console.is_terminal:
            self.live = Live(self._drawn(), console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *problem: Any) -> None:
        if self.live is not None:
            self.text, self.left = "", None
            self.live.update(self._drawn(), refresh=True)
            self.live.stop()

    def tell(self, moment: "ShrinkMoment") -> None:
        if not self.shown:
            return
        self.text, self.left = f"round {moment.number}: {moment.text}", moment.seconds_left
        if moment.done is not None:
            self.rows[moment.number] = moment.done
        if self.live is not None:
            self.live.update(self._drawn())
        elif moment.done is not None:
            lines = [] if len(self.rows) > 1 else [HEADING]
            self.console.print("\n".join([*lines, self._line(moment.done)]), soft_wrap=True)

    def _drawn(self) -> Text:
        left = f", {duration(self.left)} left" if self.left else ""
        lines = [HEADING, *(self._line(each) for each in self.rows.values())]
        return Text("\n".join([*lines, f"{self.text}{left}"]))

    def _line(self, each: "Round") -> str:
        change = signed(each.change) if each.number else ""
        shares = [f"{each.costs.shares[cost]:.3f}" for cost in COSTS]
        lost = "" if each.is_good(self.asked.max_loss) else "too much"
        name = each.number or "original"
        return ROW(name, each.way, *shares, f"{each.score:.4f}", change, lost).rstrip()
