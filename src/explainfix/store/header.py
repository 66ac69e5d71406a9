"""What a file says about the model in it: where it came from, how it was fixed and cut."""

import json
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..layers import spatial_layers
from ..marks import ORIGIN
from ..mixing.steered import Merge, Split
from ..prune.cut import Cut
from ..recipe import KernelRecipe, carry_recipe

HEADER = "explainfix"  # its key in the file's metadata
FORMAT = 2


@dataclass(frozen=True)
class Origin:
    """What `create_model` was asked for, and so what rebuilds the architecture."""

    source: str
    name: str
    num_classes: int | None
    in_channels: int | None

    @property
    def spec(self) -> str:
        return self.name if self.source in ("unetd", "python") else f"{self.source}:{self.name}"


def set_origin(model: nn.Module, origin: Origin | None) -> None:
    """Tell a model where it came from, and let its state_dict carry the recipes it may get."""
    setattr(model, ORIGIN, origin)
    for layer in spatial_layers(model).values():
        carry_recipe(layer)


def origin_of(model: nn.Module) -> Origin | None:
    """Where the model came from, if `create_model` or `load` made it."""
    return getattr(model, ORIGIN, None)


@dataclass(frozen=True)
class Header:
    """What a file says about the model in it."""

    format: int
    origin: Origin | None
    fixed: dict[str, KernelRecipe]
    aliases: dict[str, str]
    changes: list[Cut | Split | Merge]
    untrained: bool = False  # its weights are random, as it was built


def read_header(path: Path, text: str) -> Header:
    try:
        raw = json.loads(text)
        if raw["format"] == 1:  # knew no change but cuts
            raw |= {"format": FORMAT, "changes": raw.pop("cuts")}
        if raw["format"] != FORMAT:
            raise ValueError(
                f"{str(path)!r} has format {raw['format']!r}, this explainfix reads {FORMAT}"
            )
        header: Header = _typed(raw, Header, "header")
        for recipe in header.fixed.values():
            if not isinstance(getattr(torch, recipe.dtype, None), torch.dtype):
                raise TypeError(f"no such type: {recipe.dtype!r}")
            if min(recipe.shape, default=0) < 1:
                raise TypeError(f"no such shape: {recipe.shape}")
        splits = [change for change in header.changes if isinstance(change, Split)]
        if any(filters < 1 for split in splits for filters in split.steered.values()):
            raise TypeError("a layer is steered by less than one filter")
        cuts = [change for change in header.changes if isinstance(change, Cut)]
        for kept in (kept for cut in cuts for kept in cut.keep.values()):
            rows = [row if isinstance(row, list) else [row] for row in kept]
            if any(index < 0 for row in rows for index in row):
                raise TypeError("an index that is kept is negative")
            if len({len(row) for row in rows}) > 1:
                raise TypeError("groups keep unequal numbers of channels")
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise damaged(path, error) from None
    return header


def damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"the explainfix header of {str(path)!r} is damaged: {error!r}")


def _typed(value: Any, hint: Any, where: str) -> Any:
    """What JSON gave as what its type hint says it is, or a `TypeError` that says where it fails.

    >>> _typed({"keep": {"a|0": [1, 2]}, "groups": {}}, Cut, "cut")
    Cut(keep={'a|0': [1, 2]}, groups={}, attributes={})
    >>> _typed({"keep": 3, "groups": {}}, Cut, "cut")
    Traceback (most recent call last):
    TypeError: cut.keep is 3
    """
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Any:
        return value
    if kind in (types.UnionType, typing.Union):
        for choice in inner:
            with suppress(TypeError):
                return _typed(value, choice, where)
    elif is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        if strange := set(value) - set(hints):
            raise TypeError(f"{where} has {', '.join(map(repr, sorted(strange)))}")
        parts = {n: _typed(part, hints[n], f"{where}.{n}") for n, part in value.items()}
        return typing.cast("Any", kind)(**parts)
    elif kind in (dict, Mapping) and isinstance(value, dict):
        return {key: _typed(part, inner[1], f"{where}[{key!r}]") for key, part in value.items()}
    elif kind in (list, tuple) and isinstance(value, list):
        return kind(_typed(part, inner[0], f"{where}[{i}]") for i, part in enumerate(value))
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:  # not isinstance: True is no number here
        return value
    raise TypeError(f"{where} is {value!r}")
