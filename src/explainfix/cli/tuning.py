"""The command that tries how to train: tune."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from ..fix import fix_
from ..lab.run.config import Accelerator, put_options, read_config
from ..running import example_input
from .app import Build, Json, Model, Whole, app, open_model
from .exporting import read_size
from .printing import check_output, describe_size, new_table, print_json, show_status

if TYPE_CHECKING:
    from ..lab.measure.tuning import Tuning


@app.command(name="tune")
def tune_(
    model: Model,
    /,
    *,
    fix: str | None = None,
    size: str = "224",
    batch_size: Whole = 4,
    seconds: float = 20.0,
    accelerator: Accelerator = "auto",
    write: Path | None = None,
    build: Build | None = None,
    as_json: Json = False,
) -> None:
    """Try ways to train a model on this machine: which to take, what it gains, what it risks.

    Layouts, precisions, frugality; and torch.compile if there is a compiler, and time for it.

    Parameters
    ----------
    fix
        Fix the spatial filters by this rule first (explainfix list filters).
    size
        Height and width of the images, such as 224 or 256x320.
    batch_size
        Images a batch.
    seconds
        How long to try, about; and as long again for torch.compile, if that may be enough.
    accelerator
        What to run on.
    write
        A TOML file for explainfix train --config: a new one, or one to set what was found in.
    """
    if batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, not {batch_size}")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--seconds must be above 0, not {seconds:g}")
    check_output(write, ".toml", overwrite=True)
    options = {"model": model, "fix": fix, "batch_size": batch_size}
    if write is not None and write.exists():
        read_config(write)  # before anything is tried
        options = {}
    from ..lab.measure.tuning import tune
    from ..lab.run.devices import find_device
    from ..lab.run.process import prepare_process

    prepare_process()
    build = build or Build()
    network = open_model(model, build)
    if fix is not None:
        fix_(network, fix)
    example = example_input(network, read_size(size))
    batch = example.expand(batch_size, *example.shape[1:]).clone().to(find_device(accelerator))
    with show_status("Trying"):
        found = tune(network, batch, seconds=seconds, compiling=True)
    if write is not None:
        options |= {"weights": build.weights} if options else {}
        known = {name: value for name, value in options.items() if value is not None}
        put_options(write, known | found.options)
    if as_json:
        print_json(found.as_dict())
        return
    _print_tuning(f"{model}, {batch_size} x {size}", found, write)


def _print_tuning(heading: str, found: "Tuning", write: Path | None) -> None:
    out = Console(highlight=False)
    table = new_table(escape(heading), right=("seconds", "ratio (95%)", "kept"))
    for tried in found.tried:
        seconds = "" if tried.seconds is None else f"{tried.seconds:.3f}"
        kept = "" if tried.kept_bytes is None else describe_size(tried.kept_bytes)
        table.add_row(tried.name, seconds, str(tried.step or "dropped"), kept)
    out.print(table)
    out.print()
    for sentence in (*found.why, *found.risks):
        out.print(escape(sentence))
    flags = found.flags
    if write is not None:
        flags = [f"--config {write}"]
        out.print(f"Wrote {escape(str(write))}", soft_wrap=True)
    advice = " ".join(["explainfix train", *flags, "..."]) if flags else "as it is"
    out.print(f"\nTrain with: {escape(advice)}", soft_wrap=True)
