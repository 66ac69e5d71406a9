"""The command that tries how to train: tune."""

from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from ..fix import fix_
from ..running import example_input
from .app import Build, Json, Model, Whole, app, open_model
from .exporting import read_size
from .printing import describe_size, new_table, print_json, show_status


@app.command(name="tune")
def tune_(
    model: Model,
    /,
    *,
    fix: str | None = None,
    size: str = "224",
    batch_size: Whole = 4,
    seconds: float = 20.0,
    build: Build | None = None,
    as_json: Json = False,
) -> None:
    """Try a few ways to train a model on this machine and say which to take.

    Parameters
    ----------
    fix
        Fix the spatial filters by this rule first (explainfix list filters).
    size
        Height and width of the images, such as 224 or 256x320.
    batch_size
        Images a batch.
    seconds
        How long to try, about.
    """
    if batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, not {batch_size}")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--seconds must be above 0, not {seconds:g}")
    from ..lab.measure.tuning import tune
    from ..lab.run.process import prepare_process

    prepare_process()
    network = open_model(model, build or Build())
    if fix is not None:
        fix_(network, fix)
    example = example_input(network, read_size(size))
    batch = example.expand(batch_size, *example.shape[1:]).clone()
    with show_status("Trying"):
        found = tune(network, batch, seconds=seconds)
    if as_json:
        print_json({"flags": found.flags, **asdict(found)})
        return
    out = Console(highlight=False)
    heading = f"{escape(model)}, {batch_size} x {escape(size)}"
    table = new_table(heading, right=("seconds", "ratio (95%)", "kept"))
    for tried in found.tried:
        kept = describe_size(tried.kept_bytes)
        table.add_row(tried.name, f"{tried.seconds:.3f}", str(tried.step), kept)
    out.print(table)
    out.print()
    for sentence in found.why:
        out.print(sentence)
    advice = " ".join(["explainfix train", *found.flags, "..."]) if found.flags else "as it is"
    out.print(f"\nTrain with: {advice}", soft_wrap=True)
