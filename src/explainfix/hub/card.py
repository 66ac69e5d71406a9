"""The card of a model on the Hub: what was fixed by which rule, what was cut, how to load it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..layers import spatial_layers
from ..marks.changes import changes_of
from ..marks.untrained import RANDOM, is_untrained
from ..mixing.steered import Merge, Split
from ..prune.cut import Cut
from ..recipe import changed_layers, recipes
from ..registry import models
from ..store import origin_of

FILE = "model.safetensors"


def model_card(
    model: nn.Module,
    *,
    repo_id: str | None = None,
    scores: Mapping[str, float | str] | None = None,
    license: str | None = None,
    load_with: str | None = None,
) -> str:
    """The text of a README.md: a header for the Hub, then what is known of the model.

    `scores` is any table of names and values; `load_with` the code that loads it, if that is not
    `explainfix.hub.from_pretrained`.

    >>> import explainfix as xf
    >>> model = xf.create_model("unetd")
    >>> recipe = xf.fix_(model, "ghaar", seed=3)
    >>> "| `ghaar` | 3 | paper | | 16 |" in model_card(model, repo_id="me/nuclei")
    True
    """
    title = repo_id.rpartition("/")[2] if repo_id else type(model).__name__
    lines = [*_header(model, license), "", f"# {title}", "", *_what(model)]
    for heading, part in (
        ("Fixed filters", _fixed(model)),
        ("Steered and mixed layers", _parted(model)),
        ("Pruned", _pruned(model)),
        ("Scores", _scores(scores or {})),
    ):
        if told := list(part):
            lines += ["", f"## {heading}", "", *told]
    return "\n".join([*lines, "", "## Load", "", *_load(model, repo_id, load_with)]) + "\n"


def _header(model: nn.Module, license: str | None) -> Iterator[str]:
    tags = ["explainfix", "pytorch"]
    tags += ["fixed-filters"] * bool(recipes(model)) + ["pruned"] * bool(_cuts(model))
    yield "---"
    yield "library_name: explainfix"
    if license:
        yield f"license: {json.dumps(license)}"
    yield f"tags: {json.dumps(tags)}"
    yield "---"


def _what(model: nn.Module) -> Iterator[str]:
    origin = origin_of(model)
    name = type(model).__name__
    if origin and origin.source != "python":
        counts = {"class": origin.num_classes, "input channel": origin.in_channels}
        given = "".join(f", {_count(n, what)}" for what, n in counts.items() if n)
        name = f"`{origin.spec}`{given}"
    parameters = list(model.parameters())
    count, learned = (
        sum(p.numel() for p in chosen)
        for chosen in (parameters, [p for p in parameters if p.requires_grad])
    )
    yield f"A network saved by explainfix: {name}."
    if is_untrained(model):
        yield f"\n**{RANDOM}**"
    yield ""
    yield "| | |\n|---|---|"
    yield f"| parameters | {count:,} |"
    yield f"| of them learned | {learned:,} |"
    yield f"| spatial layers | {len(spatial_layers(model))} |"
    yield f"| of them fixed | {len(recipes(model))} |"


def _fixed(model: nn.Module) -> Iterator[str]:
    fixed = recipes(model)
    if not fixed:
        return
    rules = Counter(
        (recipe.method, recipe.seed, recipe.scale, json.dumps(dict(recipe.options)))
        for recipe in fixed.values()
    )
    yield "| method | seed | scale | options | layers |\n|---|---|---|---|---|"
    for (method, seed, scale, options), count in rules.items():
        told = f"`{options}` " if options != "{}" else ""
        yield f"| `{method}` | {seed} | {scale} | {told}| {count} |"
    yield ""
    if wrong := changed_layers(model):
        yield f"**Not as they were fixed, {len(wrong)} of them:** {_listed(list(wrong))}."
    else:
        yield (
            "A recipe stands for the kernels of a method that can make them again; loading does, "
            "and compares them with their digests. Then they are frozen."
        )


def _parted(model: nn.Module) -> Iterator[str]:
    steered: dict[str, int] = {}
    mixed: list[str] = []
    for change in changes_of(model):
        if isinstance(change, Split):
            steered |= change.steered
            mixed += change.mixed
        elif isinstance(change, Merge):
            steered = {path: n for path, n in steered.items() if path not in change.merged}
            mixed = [path for path in mixed if path not in change.merged]
    for filters, count in sorted(Counter(steered.values()).items()):
        each = f"{_count(filters, 'fixed filter')} a channel"
        yield f"- {_count(count, 'layer')} of {each}, steered by a learned 1x1"
    if mixed:
        yield f"- {_count(len(mixed), 'layer')} with a learned 1x1 behind: {_listed(mixed)}"


def _pruned(model: nn.Module) -> Iterator[str]:
    cuts = _cuts(model)
    if not cuts:
        return
    now = sum(parameter.numel() for parameter in model.parameters())
    built = _parameters_as_built(model)
    if built:
        yield f"Built with {built:,} parameters, {now:,} are left ({now / built:.0%})."
    tensors = {place.rpartition("|")[0] for cut in cuts for place in cut.keep}
    yield f"Channels of {len(tensors)} tensors were cut; loading cuts a new network likewise."


def _scores(scores: Mapping[str, float | str]) -> Iterator[str]:
    if scores:
        yield "| | |\n|---|---|"
    for name, value in scores.items():
        yield f"| {_cell(name)} | {_cell(f'{value:.4g}' if isinstance(value, float) else value)} |"


def _load(model: nn.Module, repo_id: str | None, load_with: str | None) -> Iterator[str]:
    origin = origin_of(model)
    own = origin is None or origin.source == "python"  # only its own code can build it
    given = ", model=YOUR_NETWORK" if own else ""
    load_with = load_with or (
        "from explainfix.hub import from_pretrained\n\n"
        f'model = from_pretrained("{repo_id or "FOLDER"}"{given})'
    )
    yield "```sh\npip install 'explainfix[hub]'\n```"
    yield f"\n```python\n{load_with}\n```\n"
    yield f"`{FILE}` is read as data, no pickle; kernels that a recipe gives back are not in it."


def _cuts(model: nn.Module) -> list[Cut]:
    return [change for change in changes_of(model) if isinstance(change, Cut)]


def _parameters_as_built(model: nn.Module) -> int | None:
    """How many parameters the network has before anything is done to it, if that can be told."""
    origin = origin_of(model)
    if origin is None or origin.source not in models or origin.source == "python":
        return None
    try:
        with torch.random.fork_rng([]), torch.device("meta"):  # shapes alone
            new = models.find(origin.source).build(
                origin.name, origin.num_classes, origin.in_channels, False
            )
    except Exception:  # a builder that needs real tensors: the card says less
        return None
    return sum(parameter.numel() for parameter in new.parameters())


def _listed(paths: list[str], most: int = 6) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(f"`{path}`" for path in paths[:most]) + more


def _count(number: int, what: str) -> str:
    """A number of things.

    >>> _count(1, "class"), _count(3, "class"), _count(2, "layer")
    ('1 class', '3 classes', '2 layers')
    """
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number} {what}{ending}"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
