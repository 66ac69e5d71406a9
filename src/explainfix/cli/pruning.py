"""The command that makes networks smaller: prune."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from ..explanation import explain
from ..prune import channel_prune_
from ..store import save
from .app import OUTPUT, Build, Force, Json, Model, Whole, app, open_model
from .inputs import Data, measure_saliency, name_silent, open_batches
from .printing import check_output, describe_size, print_json, show_status


@Parameter(name="*")
@dataclass(frozen=True)
class How:
    """How much to remove, and how.

    Parameters
    ----------
    zero
        Share of the kernels to zero, such as 0.99.
    target_params
        Instead of --zero: share of the parameters to keep.
    ghosts
        What to do with channels that became constant: drop them as the paper does, or keep the
        output exactly as it was.
    fill
        Fill the zeros that are left, to be trained.
    keep
        Layers to leave alone, by path or pattern such as "layer4.*", or modules with all layers
        in them; give it several times for several.
    keep_at_least
        The smallest number of outputs to leave a layer.
    """

    zero: float | None = None
    target_params: float | None = None
    ghosts: Literal["drop", "keep"] = "drop"
    fill: Annotated[bool, Parameter(negative="--no-fill")] = True
    keep: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    keep_at_least: Whole = 1


@app.command
def prune(
    model: Model,
    /,
    *,
    output: Annotated[Path, OUTPUT],
    report: Path | None = None,
    data: Data | None = None,
    how: How | None = None,
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Zero the least salient kernels, remove every channel that died, and save the rest.

    Parameters
    ----------
    output
        The safetensors file to write.
    report
        A page (.html) to write: the network before, and what went from each layer.
    """
    how = how or How()
    data = data or Data()
    if (how.zero is None) == (how.target_params is None):
        raise ValueError(
            "how much? Give either --zero SHARE, the share of the kernels to zero, such as 0.9, or "
            "--target-params SHARE, the share of the parameters to keep"
        )
    check_output(output, ".safetensors", overwrite=force)
    check_output(report, ".html", overwrite=force)
    example = next(open_batches(data)[0])[0][:1]
    network = open_model(model, build or Build())
    scores = measure_saliency(network, data)
    why = explain(network, saliency=scores, title=model) if report else None
    example = example.to(next(network.parameters()))
    with torch.no_grad(), show_status("Pruning"):
        done = channel_prune_(
            network,
            example,
            scores,
            zero=how.zero,
            target_params=how.target_params,
            fill="fillzero" if how.fill else None,
            ghosts=how.ghosts,
            keep=how.keep,
            keep_at_least=how.keep_at_least,
        )
    save(network, output, overwrite=force)
    if why is not None and report is not None:
        why.to_html(report, pruning=done, overwrite=force)
    if as_json:
        print_json({"output": str(output)} | done.as_dict() | {"silent": list(scores.silent)})
        return
    out = Console(highlight=False)
    if silent := name_silent(scores):
        out.print(escape(silent), soft_wrap=True)
    zeroed, filled = sum(done.zeroed.values()), sum(done.filled.values())
    out.print(f"Zeroed {zeroed:,} kernels ({done.zero_share:.1%}), and cut what died of it.\n")
    out.print(escape(str(done)))
    if filled:
        out.print(f"{filled:,} weights that are still zero were filled: train before use.")
    out.print(
        f"\nWrote {escape(str(output))}, {describe_size(output.stat().st_size)}.", soft_wrap=True
    )
    if report is not None:
        out.print(f"Wrote {escape(str(report))}.", soft_wrap=True)
