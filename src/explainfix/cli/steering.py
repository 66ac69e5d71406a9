"""Commands that part convolutions and put them together again: steer, merge."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from ..registry import bases
from ..steering import merge_, steer_
from ..steering.energy import Order
from ..steering.steer import Start
from ..store import save
from .app import OUTPUT, Build, Force, Json, Model, Whole, app, open_guide, open_model
from .fixing import Rule, read_options
from .inputs import Data, measure_saliency
from .printing import check_output, describe_size, new_table, print_json


@Parameter(name="*")
@dataclass(frozen=True)
class Keep:
    """Which filters to keep.

    Parameters
    ----------
    filters
        How many filters each input channel gets (default: a whole basis, or one that is drawn).
    energy
        Instead of --filters: the share of a layer's energy that its filters must hold, as in
        0.95; weighted by saliency if --data is given.
    order
        Of a basis keep the constant filter and those with the most energy, those with the most
        energy alone, or the lowest frequencies.
    start
        How the 1x1 of drawn filters begins: fitted to the kernels that were there, or fresh.
    """

    filters: Whole | None = None
    energy: float | None = None
    order: Order = "mean"
    start: Start = "fitted"


@app.command
def steer(
    model: Model,
    /,
    *,
    output: Annotated[Path, OUTPUT],
    method: str = "dct2",
    keep: Keep | None = None,
    rule: Rule | None = None,
    data: Data | None = None,
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn dense convolutions into fixed filters and a learned 1x1 that steers them, and save.

    Parameters
    ----------
    method
        A basis (dct2, haar, pca), or a rule that draws filters (explainfix list filters).
    output
        The safetensors file to write.
    """
    keep, rule, data = keep or Keep(), rule or Rule(), data or Data()
    check_output(output, ".safetensors", overwrite=force)
    network = open_model(model, build or Build())
    options = read_options(rule.option or [])
    if method not in bases:
        options["scale"] = rule.scale
    if rule.guide:  # a basis takes none, and says so
        options["guide"] = open_guide(rule.guide)
    report = steer_(
        network,
        method,
        filters=keep.filters,
        energy=keep.energy,
        order=keep.order,
        start=keep.start,
        saliency=measure_saliency(network, data) if data.data else None,
        layers=rule.layers,
        seed=rule.seed,
        **options,
    )
    save(network, output, overwrite=force)
    if as_json:
        print_json({"output": str(output), **report.as_dict()})
        return
    headings = ("kernel", "filters", "weights", "multiply-adds", "energy lost")
    table = new_table("layer", right=headings)
    for path, layer in report.layers.items():
        table.add_row(
            path,
            "x".join(map(str, layer.kernel)),
            str(layer.filters),
            f"{layer.params_after / layer.params_before:.0%}",
            f"{layer.macs_after / layer.macs_before:.0%}",
            f"{layer.share_lost:.2%}",
        )
    out = Console(highlight=False)
    out.print(table)
    out.print(f"\n{escape(str(report))}.", soft_wrap=True)
    if report.left:
        path, why = next(iter(report.left.items()))
        out.print(f"Left as they are: {len(report.left)}, such as {path}: {why}.", soft_wrap=True)
    out.print(
        f"Wrote {escape(str(output))}, {describe_size(output.stat().st_size)}.", soft_wrap=True
    )


@app.command
def merge(
    model: Model,
    /,
    *,
    output: Annotated[Path, OUTPUT],
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn steered and mixed layers into ordinary convolutions that compute the same, and save.

    Parameters
    ----------
    output
        The safetensors file to write.
    """
    check_output(output, ".safetensors", overwrite=force)
    network = open_model(model, build or Build())
    merged = merge_(network)
    save(network, output, overwrite=force)
    if as_json:
        print_json({"output": str(output), "merged": merged})
        return
    Console(highlight=False).print(
        f"Merged {len(merged)} layers into ordinary convolutions.\n"
        f"Wrote {escape(str(output))}, {describe_size(output.stat().st_size)}.",
        soft_wrap=True,
    )
