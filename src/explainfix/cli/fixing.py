"""Commands that set filters and describe models: fix, list, info."""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from torch import nn

from ..fix import KernelScale, fix_, list_filters, method_options, overflow_risk
from ..layers import spatial_layers
from ..marks.untrained import RANDOM, is_untrained
from ..mixing.mix import unmixed_layers
from ..mixing.steered import steered_layers
from ..recipe import can_regenerate, recipes
from ..registry import datasets, filters, models
from ..store import save
from ..zoo import list_models
from .app import OUTPUT, Build, Force, Json, Model, Whole, app, open_guide, open_model
from .printing import check_output, describe_size, new_table, print_json, track_progress


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
        What guides guidedsteer, by default the model itself: a saved file, the name of a model
        with pretrained weights, or 'imagenet', which ships with explainfix.
    layers
        Only these layers: a path or a pattern such as 'layer4.*'; may be repeated.
    option
        An option of the method, NAME=VALUE; may be repeated.
    """

    seed: Whole = 0
    scale: KernelScale = "paper"
    guide: str | None = None
    layers: Annotated[list[str] | None, Parameter(negative="")] = None
    option: Annotated[list[str] | None, Parameter(name=["--option", "-O"], negative="")] = None


@app.command
def fix(
    model: Model,
    /,
    *,
    method: str,
    output: Annotated[Path, OUTPUT],
    mix: Annotated[bool, Parameter(negative="")] = False,
    rule: Rule | None = None,
    build: Build | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Set and freeze all spatial filters of a model, and save it.

    Parameters
    ----------
    method
        The rule for the filters (explainfix list filters).
    output
        The safetensors file to write.
    mix
        Put a learned 1x1 behind the layers that nothing learned mixes.
    """
    rule = rule or Rule()
    filters.find(method)
    check_output(output, ".safetensors", overwrite=force)
    network = open_model(model, build or Build())
    recipe = fix_(
        network,
        method,
        seed=rule.seed,
        scale=rule.scale,
        guide=open_guide(rule.guide) if rule.guide else None,
        layers=rule.layers,
        mix=mix,
        progress=lambda paths: track_progress(paths, f"Fixing by {method}"),
        **read_options(rule.option or []),
    )
    save(network, output, overwrite=force)
    spatial, total = _parameter_counts(network)
    learned = sum(p.numel() for p in network.parameters() if p.requires_grad)
    mixed, unmixed = list(steered_layers(network)), _unmixed(network, ())
    layers, size = len(spatial_layers(network)), output.stat().st_size
    warning, missing = _warning(network, rule.scale), _of_mixing(network, unmixed)
    if as_json:
        counts = {"spatial_parameters": spatial, "parameters": total, "learned_parameters": learned}
        said = {"mixed": mixed, "unmixed": unmixed, "bytes": size, "warning": warning or None}
        print_json({"output": str(output), **asdict(recipe), **counts, **said})
        return
    Console(highlight=False).print(
        f"Fixed [bold]{len(recipe.digests)}[/bold] of {layers} spatial layers "
        f"by [bold]{method}[/bold], seed {recipe.seed}"
        + (f", {len(mixed)} of them mixed by a learned 1x1" if mixed else "")
        + f".\nLeft to learn: {learned:,} of {total:,} parameters ({learned / total:.1%}).\n"
        f"Wrote {escape(str(output))}, {describe_size(size)}."
        + (f"\n[bold]Note[/bold]: {warning}" if warning else "")
        + (f"\n[bold]Note[/bold]: {missing}" if missing else ""),
        soft_wrap=True,
    )


def _unmixed(network: nn.Module, supposed: Iterable[str]) -> list[str]:
    """The fixed layers that nothing learned mixes, as far as the network runs on noise."""
    with suppress(ValueError):
        return unmixed_layers(network, suppose_fixed=list(supposed))
    return []


def _of_mixing(network: nn.Module, unmixed: list[str]) -> str:
    """What it means that nothing learned mixes these layers, and what to do about it."""
    weights = sum(spatial_layers(network)[path].weight.numel() for path in unmixed)
    share = weights / sum(p.numel() for p in network.parameters())
    if share < 0.01:
        return ""
    several = f"{len(unmixed)} layers with" if len(unmixed) > 1 else "1 layer with"
    return (
        f"no learned pointwise mixing between spatial layers, {several} {share:.0%} of the weights:"
        " fix with --mix, or use explainfix steer."
    )


def _warning(network: nn.Module, scale: KernelScale) -> str:
    """What to do before the fixed network runs in eval mode, if anything."""
    new = any(can_regenerate(recipe) for recipe in recipes(network).values())
    why = overflow_risk(network) if scale == "paper" and new else ""
    if "BatchNorm" in why:
        why += (
            "; outputs in eval mode may overflow until it has: train, or run a few batches in "
            "train mode, or use --scale fan_in."
        )
    elif why:
        why += "; outputs may overflow: use --scale fan_in."
    return why


@app.command(name="list")
def list_(
    what: Literal["filters", "models", "datasets"] | None = None,
    pattern: str = "*",
    /,
    *,
    as_json: Json = False,
) -> None:
    """List the methods, models and datasets there are.

    Parameters
    ----------
    what
        Only these (default: the methods, and how many models there are).
    pattern
        Only models that match, such as 'timm:resnet*'.
    """
    described = {name: _describe(name) for name in list_filters()}
    names = list_models(pattern) if what in ("models", None) else []
    data = _describe_datasets() if what in ("datasets", None) else {}
    if what == "models" and not names:
        raise ValueError(f"no model matches {pattern!r}; explainfix list models shows all")
    if as_json:
        everything: dict[str, Any] = {"filters": described, "models": names, "datasets": data}
        print_json({what: everything[what]} if what else everything)
    elif what == "models":
        print("\n".join(names))
    elif what == "datasets":
        _print_described("datasets", data, flag="--data-option")
    else:
        _print_described("filters", described, flag="--option")
    if what is None and not as_json:
        counts = Counter(name.split(":")[0] for name in names)
        listed = ", ".join(f"{n} {s}:NAME" if n > 1 else s for s, n in counts.items())
        Console(highlight=False).print(
            f"\n[bold]models[/bold]       {listed}, FILE.py:FACTORY\n"
            "all of them: explainfix list models; some: explainfix list models 'timm:res*'\n"
            f"{_missing_sources(counts)}"
            f"\n[bold]datasets[/bold]     {', '.join(data)}\n"
            "their options: explainfix list datasets"
        )


def _missing_sources(there: Iterable[str]) -> str:
    """How to install the sources that have no models yet, a line each."""
    lines = (
        f"{source}:NAME with: pip install 'explainfix[{entry.extra}]'\n"
        for source, entry in models.items()
        if entry.extra and source not in there
    )
    return escape("".join(lines))


def _print_described(what: str, described: dict[str, dict[str, Any]], *, flag: str) -> None:
    table = new_table(what, "")
    for name, entry in described.items():
        lines = [entry["summary"]]
        for option, values in entry["options"].items():
            choices = "|".join(str(value).lower() for value in values)
            lines.append(f"[dim]{flag} {option}={choices}[/dim]")
        table.add_row(name, "\n".join(lines))
    Console(highlight=False).print(table)


@app.command
def info(model: Model, /, *, build: Build | None = None, as_json: Json = False) -> None:
    """Show the spatial layers of a model: kernels, parameters, and how they were fixed."""
    network = open_model(model, build or Build())
    spatial, total = _parameter_counts(network)
    fixed = recipes(network)
    rows: list[dict[str, Any]] = [
        {
            "layer": path,
            "kernel": layer.kernel_size,
            "parameters": layer.weight.numel(),
            "fixed_by": fixed[path].method if path in fixed else None,
        }
        for path, layer in spatial_layers(network).items()
    ]
    learned = sum(p.numel() for p in network.parameters() if p.requires_grad)
    unmixed = _unmixed(network, (row["layer"] for row in rows))
    if as_json:
        counts = {"parameters": total, "spatial_parameters": spatial, "learned_parameters": learned}
        known = {"untrained": is_untrained(network), "unmixed": unmixed}
        print_json({"model": model, **counts, **known, "spatial_layers": rows})
        return
    table = new_table("spatial layer", right=("kernel", "kernels", "parameters", "share"))
    table.add_column("fixed by" if fixed else "")
    for row in rows:
        table.add_row(
            row["layer"],
            "x".join(map(str, row["kernel"])),
            f"{row['parameters'] // math.prod(row['kernel']):,}",
            f"{row['parameters']:,}",
            f"{row['parameters'] / total:.2%}",
            row["fixed_by"],
        )
    out = Console(highlight=False)
    out.print(table)
    out.print(
        f"\n[bold]{escape(model)}[/bold]: {total:,} parameters, "
        f"{spatial:,} ({spatial / total:.1%}) in {len(rows)} spatial layers, {len(fixed)} fixed"
    )
    left = learned - sum(row["parameters"] for row in rows if row["layer"] not in fixed)
    if fixed:
        out.print(f"Left to learn: {learned:,} parameters ({learned / total:.1%}).")
    if len(fixed) < len(rows):
        out.print(f"With all of them fixed, {left:,} ({left / total:.1%}) would be left to learn.")
    if is_untrained(network):
        out.print(f"[bold]{RANDOM}[/bold]")
    if missing := _of_mixing(network, unmixed):
        out.print(f"[bold]Note[/bold]: {missing}", soft_wrap=True)


def read_options(pairs: list[str]) -> dict[str, Any]:
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
    return {
        "summary": _summary(filters.find(method)),
        "options": {name: list(values) for name, values in method_options(method).items()},
    }


def _describe_datasets() -> dict[str, dict[str, Any]]:
    """The same of the datasets: an option's choices, or its default."""
    from ..lab.data.dataset import dataset_options, list_datasets

    return {
        name: {
            "summary": _summary(datasets.find(name)),
            "options": {option: how.choices for option, how in dataset_options(name).items()},
        }
        for name in list_datasets()
    }


def _summary(entry: Callable[..., Any]) -> str:
    text = inspect.getdoc(inspect.getmodule(entry)) or ""
    return text.splitlines()[0].partition(": ")[2]


def _parameter_counts(model: nn.Module) -> tuple[int, int]:
    spatial = sum(layer.weight.numel() for layer in spatial_layers(model).values())
    return spatial, sum(parameter.numel() for parameter in model.parameters())
