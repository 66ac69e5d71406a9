"""The command that hands networks on: export."""

import contextlib
import io
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.markup import escape

from ..export import export_onnx
from ..running import example_input
from .app import OUTPUT, Build, Force, Json, Model, app, open_model
from .printing import check_output, describe_size, print_json, show_status


@app.command
def export(
    model: Model,
    /,
    *,
    output: Annotated[Path, OUTPUT],
    size: str = "224",
    check: bool = True,
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model to an ONNX file, for batches and images of any size where it can be.

    Parameters
    ----------
    output
        The .onnx file to write.
    size
        Height and width of the example to export with, such as 224 or 256x320.
    check
        Compare with PyTorch before the file is written.
    """
    check_output(output, ".onnx", overwrite=force)
    lengths = read_size(size)
    network = open_model(model, build or Build())
    example = example_input(network, lengths)
    with show_status("Exporting" + (" and checking" if check else "")), _silence():
        report = export_onnx(network, output, example, check=check, overwrite=force)
    if as_json:
        print_json({"output": str(output), "difference": report.difference} | asdict(report))
        return
    out = Console(highlight=False, soft_wrap=True)
    out.print(escape(str(report)))
    out.print(
        f"Wrote {escape(str(output))}, {describe_size(report.bytes)}, ONNX opset {report.opset}."
    )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """PyTorch's exporter logs and prints; none of it is for the user's terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def read_size(size: str) -> list[int]:
    """224 or 256x320 as numbers."""
    try:
        return [int(length) for length in size.lower().split("x")]
    except ValueError:
        raise ValueError(f"--size {size!r} is no size such as 224 or 256x320") from None
