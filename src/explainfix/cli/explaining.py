"""Commands that look at filters: explain, compare."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..explanation import Comparison, Explanation, compare, explain
from ..report.write import write_page
from ..store import written
from ..untrained import RANDOM
from .app import OUTPUT, Build, Force, Json, Model, app, open_model
from .inputs import Data, measure_saliency, name_silent
from .printing import check_output, new_table, print_json

_KINDS = (".html", ".png", ".svg", ".pdf", ".csv", ".parquet")
_Output = Annotated[Path | None, OUTPUT]


@app.command(name="explain")
def explain_(
    model: Model,
    /,
    *,
    output: _Output = None,
    data: Data | None = None,
    basis: Literal["dct2", "haar", "pca"] = "dct2",
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show which frequencies every spatial layer uses, and what to do about it.

    Parameters
    ----------
    output
        Where to write: a page (.html), a figure (.png, .svg, .pdf) or a table (.csv, .parquet).
    basis
        What to look at the filters through.
    """
    check_output(output, *_KINDS, overwrite=force)
    network = open_model(model, build or Build())
    data = data or Data()
    scores = measure_saliency(network, data) if data.data else None
    why = explain(network, saliency=scores, basis=basis, title=model)
    if output is not None:
        _write(why, output, overwrite=force)
    if as_json:
        print_json(_as_json(why) | {"silent": list(scores.silent) if scores else []})
        return
    out = Console(highlight=False)
    if why.untrained:
        out.print(f"[bold]{RANDOM}[/bold]\n")
    out.print(_table(why))
    out.print(f"\n{why.weighting}.", soft_wrap=True)
    if scores and (silent := name_silent(scores)):
        out.print(escape(silent), soft_wrap=True)
    for said in why.advice():
        out.print(f"\n[bold]{escape(said.title)}.[/bold] {escape(said.text)}")
    for path, reason in why.skipped.items():
        out.print(f"\n[bold]Skipped {escape(path)}[/bold]: {escape(reason)}")
    if output is not None:
        out.print(f"\nWrote {escape(str(output))}.", soft_wrap=True)


@app.command(name="compare")
def compare_(
    before: Model,
    after: Model,
    /,
    *,
    output: _Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare two models: what changed, and are the fixed filters still fixed?

    Parameters
    ----------
    output
        A page (.html) or a table (.csv) to write.
    """
    check_output(output, ".html", ".csv", overwrite=force)
    first, second = open_model(before, Build()), open_model(after, Build())
    difference = compare(first, second, titles=(before, after))
    if output is not None and output.suffix == ".html":
        write_page(difference.before, output, comparison=difference, overwrite=force)
    elif output is not None:
        with written(output, overwrite=force) as temporary:
            difference.table().to_csv(temporary)
    if as_json:
        rows = difference.table().reset_index().to_dict("records")
        print_json(
            {"still_fixed": difference.still_fixed, "answer": difference.answer, "layers": rows}
        )
        return
    out = Console(highlight=False)
    out.print(_comparison_table(difference))
    for path in difference.only_before:
        out.print(f"only before: {escape(path)}")
    for path in difference.only_after:
        out.print(f"only after:  {escape(path)}")
    out.print("\n[bold]Were the fixed filters really fixed?[/bold]")
    out.print(escape(difference.answer))
    if output is not None:
        out.print(f"\nWrote {escape(str(output))}.", soft_wrap=True)


def _write(why: Explanation, output: Path, *, overwrite: bool) -> None:
    if output.suffix == ".html":
        why.to_html(output, overwrite=overwrite)
        return
    with written(output, overwrite=overwrite) as temporary:
        if output.suffix in (".csv", ".parquet"):
            why.save(temporary)
        else:
            why.plot().savefig(temporary)


def _as_json(why: Explanation) -> dict[str, Any]:
    return {
        "model": why.title,
        "basis": why.basis,
        "weighted": why.weighted,
        "untrained": why.untrained,
        "advice": [asdict(said) for said in why.advice()],
        "layers": [
            {
                "layer": path,
                "kernel": list(layer.shape),
                "fixed_by": layer.fixed_by,
                "saliency_share": why.share_of(path),
                "low_share": layer.low_share,
                "low_chance": list(layer.low_chance),
                "ed": why[path].ed.tolist(),
            }
            for path, layer in why.layers.items()
        ],
        "skipped": why.skipped,
    }


def _table(why: Explanation) -> Table:
    """A line per layer: its spectrum as a row of blocks, and its shares."""
    table = new_table("spatial layer", "kernel")
    table.add_column("energy, low to high", no_wrap=True)
    for heading in ("low", "by chance", *(["saliency"] if why.weighted else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for path, layer in why.layers.items():
        low, high = layer.low_chance
        chance = f"{low:.0%}-{high:.0%}"
        cells = [path, "x".join(map(str, layer.shape)), _blocks(why[path].ed.tolist())]
        cells += [f"{layer.low_share:.0%}", chance]
        if why.weighted:
            cells.append(f"{why.share_of(path):.1%}")
        table.add_row(*cells)
    return table


def _blocks(values: list[float], most: int = 13) -> str:
    """Bars of eight heights; long spectra are averaged in runs."""
    step = -(-len(values) // most)
    runs = [values[i : i + step] for i in range(0, len(values), step)]
    means = [sum(run) / len(run) for run in runs]
    top = max(means) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * mean / top))] for mean in means)


def _comparison_table(difference: Comparison) -> Table:
    table = new_table("spatial layer", right=("kernels", "changed", "moved by", "energy moved"))
    table.add_column("fixed by")
    for path, change in difference.layers.items():
        table.add_row(
            path,
            f"{change.kernels:,}",
            "other shape" if change.changed is None else f"{change.changed:,}",
            "" if change.moved is None else f"{change.moved:.1%}",
            f"{change.distance:.1%}",
            difference.before.layers[path].fixed_by or difference.after.layers[path].fixed_by,
        )
    return table
