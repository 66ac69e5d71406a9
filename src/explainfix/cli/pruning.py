"""The command that makes networks smaller: prune."""

from pathlib import Path
from typing import Annotated, Literal

import torch
from rich.console import Console
from rich.markup import escape

from ..lab.arrays import read_arrays
from ..prune import channel_prune_
from ..store import check_free, save
from .app import OUTPUT, Build, Force, Json, Model, app, open_model, print_json
from .explaining import Data, measure_saliency


@app.command
def prune(
    model: Model,
    /,
    *,
    output: Annotated[Path, OUTPUT],
    data: Data | None = None,
    zero: float | None = None,
    target_params: float | None = None,
    ghosts: Literal["drop", "keep"] = "drop",
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Zero the least salient kernels, remove every channel that died, and save the rest.

    Parameters
    ----------
    output
        The safetensors file to write.
    zero
        Share of the kernels to zero, such as 0.99.
    target_params
        Instead of --zero: share of the parameters to keep.
    ghosts
        What to do with channels that became constant: drop them as the paper does, or keep the
        output exactly as it was.
    """
    if data is None or data.data is None:
        raise ValueError("pruning needs data to tell which kernels matter: give --data FILE")
    check_free(output, overwrite=force)
    network = open_model(model, build or Build())
    scores = measure_saliency(network, data.data, data)
    example = read_arrays(data.data)[0][:1].to(next(network.parameters()))
    with torch.no_grad():
        report = channel_prune_(
            network, example, scores, zero=zero, target_params=target_params, ghosts=ghosts
        )
    save(network, output, overwrite=force)
    if as_json:
        layers = report.table().reset_index().to_dict("records")
        summary = {
            "output": str(output),
            "zero": report.zero_share,
            "parameters_before": report.parameters_before,
            "parameters_after": report.parameters_after,
            "folded": report.folded,
            "ghosts_dropped": report.ghosts_dropped,
            "difference": report.difference,
            "layers": layers,
        }
        print_json(summary)
        return
    out = Console(highlight=False, soft_wrap=True)
    zeroed = sum(report.zeroed.values())
    out.print(f"Zeroed {zeroed:,} kernels ({report.zero_share:.1%}).\n{escape(str(report))}")
    out.print(f"Wrote {escape(str(output))}, {output.stat().st_size / 1e6:.1f} MB.")
