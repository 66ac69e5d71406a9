"""The shell's door: parses, calls, prints. Exit code 0, or 2 with one line for a user's mistake."""

import inspect
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from torch import nn

from . import __version__
from .fix import Scale, fix_, list_filters, method_options, recipes
from .layers import spatial_layers
from .registry import filters
from .store import check_free, load, save
from .zoo import create_model, list_models

app = cyclopts.App(
    name="explainfix",
    help="See, fix and prune the spatial filters of any CNN.",
    version=__version__,
    help_format="plaintext",
)
_Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for machines.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Build:
    """How to build a model that is given by name.

    Parameters
    ----------
    weights
        'pretrained', or a safetensors or .pth file (default: random).
    num_classes
        Number of outputs (default: the model's own).
    in_channels
        Number of input channels (default: the model's own).
    """

    weights: str | None = None
    num_classes: int | None = None
    in_channels: int | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Rule:
    """How to set the filters.

    Parameters
    ----------
    seed
        Same seed, same filters.
    scale
        Norm of the kernels: the method's own, or Kaiming's for networks without BatchNorm.
    guide
        What guides guidedsteer, by default the model itself: a saved file, or the name of a
        model with pretrained weights.
    layers
        Only these layers: a path or a pattern such as 'layer4.*'; may be repeated.
    option
        An option of the method, NAME=VALUE; may be repeated.
    """

    seed: int = 0
    scale: Scale = "paper"
    guide: str | None = None
    layers: Annotated[list[str] | None, Parameter(negative="")] = None
    option: Annotated[list[str] | None, Parameter(name=["--option", "-O"], negative="")] = None


@app.command
def fix(
    model: str,
    /,
    *,
    method: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    rule: Rule | None = None,
    build: Build | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
    as_json: _Json = False,
) -> None:
    """Set and freeze all spatial filters of a model, and save it.

    Parameters
    ----------
    model
        A model's name (explainfix list models) or a file that explainfix saved.
    method
        The rule for the filters (explainfix list filters).
    output
        The safetensors file to write.
    force
        Overwrite the output file.
    """
    rule = rule or Rule()
    filters.find(method)
    check_free(output, overwrite=force)
    network = _open(model, build or Build())
    recipe = fix_(
        network,
        method,
        seed=rule.seed,
        scale=rule.scale,
        guide=_open_guide(rule.guide) if rule.guide else None,
        layers=rule.layers,
        progress=lambda paths: _track(paths, f"Fixing by {method}"),
        **_options(rule.option or []),
    )
    save(network, output, overwrite=force)
    spatial, total = _parameter_counts(network)
    layers, size = len(spatial_layers(network)), output.stat().st_size
    if as_json:
        counts = {"spatial_parameters": spatial, "parameters": total, "bytes": size}
        _print_json({"output": str(output), **asdict(recipe), **counts})
        return
    Console(highlight=False).print(
        f"Fixed [bold]{len(recipe.digests)}[/bold] of {layers} spatial layers "
        f"by [bold]{method}[/bold], seed {recipe.seed}.\n"
        f"Spatial: {spatial:,} of {total:,} parameters ({spatial / total:.1%}).\n"
        f"Wrote {escape(str(output))}, {size / 1e6:.1f} MB.",
        soft_wrap=True,
    )


@app.command(name="list")
def list_(
    what: Literal["filters", "models"] | None = None,
    pattern: str = "*",
    /,
    *,
    as_json: _Json = False,
) -> None:
    """List the methods and models there are.

    Parameters
    ----------
    what
        Only these (default: the methods, and how many models there are).
    pattern
        Only models that match, such as 'timm:resnet*'.
    """
    described = {name: _describe(name) for name in list_filters()}
    names = [] if what == "filters" else list_models(pattern)
    if what == "models" and not names:
        raise ValueError(f"no model matches {pattern!r}; explainfix list models shows all")
    if as_json:
        everything: dict[str, Any] = {"filters": described, "models": names}
        _print_json({what: everything[what]} if what else everything)
    elif what == "models":
        print("\n".join(names))
    else:
        _print_filters(described)
    if what is None and not as_json:
        counts = Counter(name.split(":")[0] for name in names)
        listed = ", ".join(f"{n} {s}:NAME" if n > 1 else s for s, n in counts.items())
        Console(highlight=False).print(
            f"\n[bold]models[/bold]       {listed}, FILE.py:FACTORY\n"
            "all of them: explainfix list models; some: explainfix list models 'timm:res*'"
        )


def _print_filters(described: dict[str, dict[str, Any]]) -> None:
    table = Table("filters", "", box=None, pad_edge=False, header_style="bold")
    for name, entry in described.items():
        lines = [entry["summary"]]
        for option, values in entry["options"].items():
            choices = "|".join(str(value).lower() for value in values)
            lines.append(f"[dim]--option {option}={choices}[/dim]")
        table.add_row(name, "\n".join(lines))
    Console(highlight=False).print(table)


@dataclass(frozen=True)
class LayerRow:
    """One line of `explainfix info`."""

    layer: str
    kernel: tuple[int, ...]
    parameters: int
    fixed_by: str | None


@app.command
def info(
    model: str,
    /,
    *,
    build: Build | None = None,
    as_json: _Json = False,
) -> None:
    """Show the spatial layers of a model: kernels, parameters, and how they were fixed.

    Parameters
    ----------
    model
        A model's name (explainfix list models) or a file that explainfix saved.
    """
    network = _open(model, build or Build())
    spatial, total = _parameter_counts(network)
    fixed = recipes(network)
    rows = [
        LayerRow(
            path,
            layer.kernel_size,
            layer.weight.numel(),
            fixed[path].method if path in fixed else None,
        )
        for path, layer in spatial_layers(network).items()
    ]
    if as_json:
        counts = {"parameters": total, "spatial_parameters": spatial}
        _print_json({"model": model, **counts, "spatial_layers": [asdict(row) for row in rows]})
        return
    table = Table("spatial layer", box=None, pad_edge=False, header_style="bold")
    for heading in ("kernel", "kernels", "parameters", "share"):
        table.add_column(heading, justify="right")
    table.add_column("fixed by" if fixed else "")
    for row in rows:
        table.add_row(
            row.layer,
            "x".join(map(str, row.kernel)),
            f"{row.parameters // math.prod(row.kernel):,}",
            f"{row.parameters:,}",
            f"{row.parameters / total:.2%}",
            row.fixed_by,
        )
    out = Console(highlight=False)
    out.print(table)
    out.print(
        f"\n[bold]{escape(model)}[/bold]: {total:,} parameters, "
        f"{spatial:,} ({spatial / total:.1%}) in {len(rows)} spatial layers, {len(fixed)} fixed"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        return _mistake(str(error))
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, BrokenPipeError):  # the reader, `head` say, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _mistake(_in_words(error))
    except KeyboardInterrupt:
        return 130
    return 0


def _mistake(message: str) -> int:
    line = " ".join(message.split())
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]error:[/bold red] {escape(line)}"
    )
    return 2


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{str(error.filename)!r}: {error.strerror}"
    return str(error)


def _open(model: str, build: Build) -> nn.Module:
    """The model of a name, or in a file that `save` wrote."""
    if not model.endswith(".safetensors"):
        return create_model(model, **asdict(build))
    if build != Build():
        raise ValueError(
            f"{model!r} is a saved model and complete: it takes no --weights, --num-classes or "
            "--in-channels"
        )
    return load(model, progress=lambda paths: _track(paths, "Regenerating filters"))


def _open_guide(guide: str) -> nn.Module:
    saved = guide.endswith(".safetensors")
    return _open(guide, Build() if saved else Build(weights="pretrained"))


def _options(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; true and false become booleans."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--option {pair!r} is not of the form NAME=VALUE")
        options[name.replace("-", "_")] = {"true": True, "false": False}.get(value.lower(), value)
    return options


def _describe(method: str) -> dict[str, Any]:
    """What a method is, from the first line of its file, and its options."""
    text = inspect.getdoc(inspect.getmodule(filters.find(method))) or ""
    return {
        "summary": text.splitlines()[0].partition(": ")[2],
        "options": {name: list(values) for name, values in method_options(method).items()},
    }


def _parameter_counts(model: nn.Module) -> tuple[int, int]:
    spatial = sum(layer.weight.numel() for layer in spatial_layers(model).values())
    return spatial, sum(parameter.numel() for parameter in model.parameters())


def _track(paths: Iterable[str], title: str) -> Iterable[str]:
    """A progress bar over layers, on a terminal only, gone when done."""
    console = Console(stderr=True)
    known = list(paths)
    return track(known, title, console=console, transient=True, disable=not console.is_terminal)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))
