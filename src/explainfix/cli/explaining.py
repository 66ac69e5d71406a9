"""Commands that look at filters: explain, compare, drift."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..explanation import Comparison, Explanation, compare, explain
from ..explanation.compare import as_change
from ..lab.run.history import SPECTRA
from ..marks.untrained import RANDOM
from ..report.write import write_page
from ..store import written
from ..table import as_csv
from ..watch import Timeline
from .app import OUTPUT, Build, Force, Json, Model, app, open_model
from .inputs import Data, measure_saliency, name_silent
from .printing import check_output, new_table, print_json

_KINDS = (".html", ".png", ".svg", ".pdf", ".json", ".csv", ".parquet")
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
        Where to write: a page (.html), a figure (.png, .svg, .pdf) or the numbers (.json,
        .csv, .parquet), which `explainfix check --baseline` reads.
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
        advice = [asdict(said) for said in why.advice()]
        unreached = list(scores.silent) if scores else []
        print_json(why.as_dict() | {"advice": advice, "silent": unreached})
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
    require_fixed: Annotated[bool, Parameter(negative="")] = False,
    max_change: float | None = None,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Compare two models: are the fixed filters still fixed, and what changed?

    The exit code is 1 if a rule that was asked for is broken.

    Parameters
    ----------
    output
        A page (.html) or a table (.csv) to write.
    require_fixed
        Fail if a fixed layer is not as its recipe says, or lost its recipe.
    max_change
        Fail if a layer's kernels moved by more, relative to their size, such as 0.1; where
        shapes differ, if more of its energy moved.
    """
    check_output(output, ".html", ".csv", overwrite=force)
    if max_change is not None and not max_change >= 0:
        raise ValueError(f"--max-change must be at least 0, not {max_change}")
    first, second = open_model(before, Build()), open_model(after, Build())
    difference = compare(first, second, titles=(before, after))
    broken = difference.broken(require_fixed=require_fixed, max_change=max_change)
    if output is not None and output.suffix == ".html":
        write_page(difference.before, output, comparison=difference, overwrite=force)
    elif output is not None:
        with written(output, overwrite=force) as temporary:
            temporary.write_text(as_csv(difference.as_dict()["layers"]), encoding="utf-8")
    if as_json:
        print_json(difference.as_dict() | {"broken": broken})
        return int(bool(broken))
    out = Console(highlight=False)
    if difference.warning:
        out.print(f"[bold]{escape(difference.warning)}[/bold]\n")
    out.print(f"[bold]{escape(difference.verdict)}[/bold]")
    out.print(f"\nA: {escape(before)}\nB: {escape(after)}\n", soft_wrap=True)
    if difference.changed:
        out.print("How far kernels moved; how many; both spectra, from low to high frequency.")
        out.print(_comparison_table(difference))
    for path, why in difference.not_compared.items():
        out.print(f"not compared: {escape(path)}, {escape(why)}")
    for rule in broken:
        out.print(f"[bold red]failed:[/bold red] {escape(rule)}")
    if output is not None:
        out.print(f"\nWrote {escape(str(output))}.", soft_wrap=True)
    return int(bool(broken))


@app.command(name="drift")
def drift_(
    run: Path, /, *, output: _Output = None, force: Force = False, as_json: Json = False
) -> None:
    """Show how the spectra of every spatial layer moved while a network trained.

    Parameters
    ----------
    run
        A run's folder, or a timeline that explainfix.watch.Watch wrote (.json).
    output
        A page with a slider over the training (.html), or the numbers (.csv, .json).
    """
    check_output(output, ".html", ".csv", ".json", overwrite=force)
    line = _open_timeline(run)
    if output is not None and output.suffix == ".html":
        line.to_html(output, overwrite=force)
    elif output is not None:
        with written(output, overwrite=force) as temporary:
            if output.suffix == ".csv":
                temporary.write_text(as_csv(line.rows()), encoding="utf-8")
            else:
                line.save(temporary, overwrite=True)
    if as_json:
        print_json(line.as_dict() | {"verdict": line.verdict})
        return
    out = Console(highlight=False)
    out.print(f"[bold]{escape(line.verdict)}[/bold]\n")
    out.print(_drift_table(line))
    if output is not None:
        out.print(f"\nWrote {escape(str(output))}.", soft_wrap=True)


def _open_timeline(path: Path) -> Timeline:
    if not path.is_dir():
        return Timeline.load(path)
    if not (path / SPECTRA).is_file():
        raise FileNotFoundError(
            f"{str(path)!r} holds no {SPECTRA}, which training writes into the folder of a run "
            "whose network has spatial layers"
        )
    return Timeline.load(path / SPECTRA)


def _drift_table(line: Timeline) -> Table:
    """A line per layer: its spectrum at first and at last, on one scale, and how far it moved."""
    table = new_table()
    table.add_column("spatial layer", overflow="fold")  # a name is never cut
    for heading in (line.snapshots[0].name, line.snapshots[-1].name):
        table.add_column(heading, no_wrap=True)
    for heading in ("drift", "low"):
        table.add_column(heading, justify="right", no_wrap=True)
    any_fixed = any(layer.fixed_by for layer in line.layers.values())
    if any_fixed:
        table.add_column("fixed by")
    for path, layer in line.layers.items():
        shares = line.shares(path).nan_to_num()
        pair = [shares[0].tolist(), shares[-1].tolist()]
        top = max(value for ends in pair for value in _averaged(ends, 9))
        low = line.low_share(path)
        table.add_row(
            path or "(the model)",
            *(_blocks(ends, top=top, most=9) for ends in pair),
            as_change(float(line.drift(path)[-1])),
            f"{float(low[0]):.0%} → {float(low[-1]):.0%}",
            *([layer.fixed_by] if any_fixed else []),
        )
    return table


def _write(why: Explanation, output: Path, *, overwrite: bool) -> None:
    if output.suffix == ".html":
        why.to_html(output, overwrite=overwrite)
        return
    with written(output, overwrite=overwrite) as temporary:
        if output.suffix in (".json", ".csv", ".parquet"):
            why.save(temporary)
        else:
            why.plot().savefig(temporary)


def _table(why: Explanation) -> Table:
    """A line per layer: its spectrum as a row of blocks, and its shares."""
    table = new_table()
    table.add_column("spatial layer", overflow="fold")  # a name is never cut
    table.add_column("kernel")
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


def _blocks(values: list[float], *, top: float | None = None, most: int = 13) -> str:
    """Bars of eight heights, the highest at `top`; long spectra are averaged in runs."""
    means = _averaged(values, most)
    top = top or max(means) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * mean / top))] for mean in means)


def _averaged(values: list[float], most: int) -> list[float]:
    step = -(-len(values) // most)
    runs = [values[i : i + step] for i in range(0, len(values), step)]
    return [sum(run) / len(run) for run in runs]


def _comparison_table(difference: Comparison) -> Table:
    """A line per layer that changed, the most changed first: both spectra on one scale."""
    table = new_table()
    table.add_column("spatial layer", overflow="fold")  # a name is never cut
    for heading in ("change", "kernels"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("A", "B"):
        table.add_column(heading, no_wrap=True)
    any_fixed = any(difference.fixed_by(path) for path in difference.changed)
    if any_fixed:
        table.add_column("fixed by")
    for path in difference.changed:
        change = difference.layers[path]
        pair = [
            [value / max(sum(ed), 1e-300) for value in ed]
            for ed in (why[path].ed.tolist() for why in (difference.before, difference.after))
        ]
        top = max(value for shares in pair for value in _averaged(shares, 9))
        table.add_row(
            path,
            as_change(change.change),
            "other" if change.changed is None else f"{change.changed / change.kernels:.0%}",
            *(_blocks(shares, top=top, most=9) for shares in pair),
            *([difference.fixed_by(path)] if any_fixed else []),
        )
    same = len(difference.layers) - len(difference.changed)
    if same:
        table.caption = f"and {same} layers that did not change"
        table.caption_justify = "left"
    return table
