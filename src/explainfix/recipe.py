"""The recipe of fixed kernels: how they were made, a digest of them, how it travels with them.

A layer carries its recipe; so does its state_dict, in the metadata, without a key of its own.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from .backward.frozen import make_lean, make_ordinary
from .filters.exact import Array, Draw
from .layers import Convolution, spatial_layers
from .marks import RECIPE, WAITING
from .private import has_load_hook, running_load
from .registry import Shown, filters

# What a method may ask for by name: kernels that come from a model, which no recipe can give back.
FROM_MODELS = frozenset({"own", "guide"})


@dataclass(frozen=True)
class KernelRecipe:
    """How the kernels of one layer were made. It travels with the convolution itself."""

    method: str
    seed: int
    scale: str
    options: Mapping[str, Any]
    path: str  # the layer's path when it was fixed: its random numbers belong to it
    shape: tuple[int, ...]
    dtype: str
    gain: float  # what `scale` multiplied the method's kernels by
    digest: str
    altered: bool = False  # zeroed, cut or filled since: the digest is of the kernels as they are


@dataclass(frozen=True)
class Recipe(Shown):
    """What `fix_` did: the method, its seed and options, and a digest of each layer's kernels."""

    method: str
    seed: int
    scale: str
    options: Mapping[str, Any]
    digests: Mapping[str, str]

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        count = f"{len(self.digests)} layer{'s' * (len(self.digests) != 1)}"
        return f"Recipe: {self.method}, seed {self.seed}, scale {self.scale}{options}; {count}"


def recipes(model: nn.Module) -> dict[str, KernelRecipe]:
    """The recipe of every fixed layer of `model`, by module path."""
    found = ((path, recipe_of(layer)) for path, layer in spatial_layers(model).items())
    return {path: recipe for path, recipe in found if recipe}


def changed_layers(model: nn.Module) -> dict[str, str]:
    """The fixed layers whose kernels are not those of their recipe, each with what is wrong."""
    wrong: dict[str, str] = {}
    layers = spatial_layers(model)
    for path, recipe in recipes(model).items():
        weight = layers[path].weight
        if tuple(weight.shape) != recipe.shape:
            wrong[path] = f"shape {tuple(weight.shape)}, fixed with {recipe.shape}"
        elif digest(weight.to(getattr(torch, recipe.dtype))) != recipe.digest:
            now = str(weight.dtype).removeprefix("torch.")
            other = f", now {now}, fixed in {recipe.dtype}" if now != recipe.dtype else ""
            wrong[path] = f"kernels differ from {recipe.method!r}, seed {recipe.seed}{other}"
    return wrong


def check_fixed(model: nn.Module) -> None:
    """Raise a `ValueError` that names the layers, if any kernel differs from its recipe.

    >>> import explainfix as xf
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3))
    >>> recipe = xf.fix_(model, "psine")
    >>> check_fixed(model)
    >>> model[0].weight.data[0, 0] += 1
    >>> check_fixed(model)
    Traceback (most recent call last):
    ValueError: 1 of 1 fixed layers changed: '0' (kernels differ from 'psine', seed 0)
    """
    fixed = recipes(model)
    if not fixed:
        raise ValueError(f"no layer of this {type(model).__name__} is fixed: call fix_ first")
    wrong = changed_layers(model)
    if wrong:
        raise ValueError(describe_changes(wrong, len(fixed)))


def describe_changes(wrong: Mapping[str, str], fixed: int) -> str:
    """What `changed_layers` found among so many fixed layers, in a sentence."""
    named = "; ".join(f"{path!r} ({why})" for path, why in list(wrong.items())[:5])
    more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    return f"{len(wrong)} of {fixed} fixed layers changed: {named}{more}"


def can_regenerate(recipe: KernelRecipe) -> bool:
    """Whether the recipe alone gives the kernels: not where they came from a model or changed.

    A guide that ships with the package is named among the options.
    """
    if recipe.altered:
        return False
    wanted = FROM_MODELS & set(inspect.signature(filters.find(recipe.method)).parameters)
    return wanted <= set(recipe.options)


def regenerate(recipe: KernelRecipe) -> Tensor:
    """The kernels of a recipe, bit for bit, on any machine; a `ValueError` if they are not."""
    rule = filters.find(recipe.method)
    kernels = rule(recipe.shape, Draw(recipe.seed, recipe.path), **recipe.options)
    weight = rounded(kernels, recipe.gain, getattr(torch, recipe.dtype))
    if digest(weight) != recipe.digest:
        raise ValueError(
            f"the recipe of layer {recipe.path!r} does not give the kernels it promises"
        )
    return weight


def digest(weight: Tensor) -> str:
    """A fingerprint of a tensor's values, whatever its device and memory layout."""
    raw = weight.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.blake2b(raw.tobytes(), digest_size=16).hexdigest()


def recipe_of(layer: nn.Module) -> KernelRecipe | None:
    """The recipe a convolution carries, if it is fixed."""
    return getattr(layer, RECIPE, None)


def mark_fixed(layer: Convolution, recipe: KernelRecipe | None) -> None:
    """Freeze the kernels and hang their recipe on the layer, or, for `None`, undo both.

    A frozen layer keeps less for the backward pass, see `backward.frozen`.
    """
    carry_recipe(layer)
    make_lean(layer) if recipe else make_ordinary(layer)
    setattr(layer, RECIPE, recipe)
    layer.weight.requires_grad_(recipe is None)
    layer.weight.grad = None  # an optimizer would still apply a gradient left behind


@contextmanager
def recipes_follow(model: nn.Module) -> Iterator[None]:
    """Let the fixed layers that are as they were fixed count as fixed after a deliberate change."""
    wrong = changed_layers(model)
    layers = {path: spatial_layers(model)[path] for path in recipes(model) if path not in wrong}
    yield
    for layer in layers.values():
        recipe = recipe_of(layer)
        if recipe is None:
            continue
        now = layer.weight.to(getattr(torch, recipe.dtype))
        if tuple(now.shape) != recipe.shape or digest(now) != recipe.digest:
            changed = replace(recipe, shape=tuple(now.shape), digest=digest(now), altered=True)
            mark_fixed(layer, changed)


def carry_recipe(layer: nn.Module) -> None:
    """Make the layer's state_dict carry its recipe, and loading one bring it back, frozen.

    The recipe goes into the state_dict's metadata: no key is added. A load that fails brings none.
    """
    if not hasattr(layer, RECIPE):
        setattr(layer, RECIPE, None)
        layer.register_state_dict_post_hook(_recipe_into_state)
        layer.register_load_state_dict_pre_hook(_recipe_from_state)


def _recipe_into_state(
    layer: nn.Module, state: Mapping[str, Any], prefix: str, metadata: dict[str, Any]
) -> None:
    recipe = recipe_of(layer)
    if recipe:
        metadata[RECIPE] = asdict(recipe)


def _recipe_from_state(
    layer: Convolution,
    state: Mapping[str, Any],
    prefix: str,
    metadata: dict[str, Any],
    _always_true: bool,  # PyTorch tells hooks nothing about its own `strict`
    missing: list[str],
    _unexpected: list[str],
    errors: list[str],
) -> None:
    if RECIPE not in metadata or f"{prefix}weight" not in state:
        return
    recipe = KernelRecipe(**metadata[RECIPE])
    # Only the module whose load_state_dict was called learns, last of all, whether it went well.
    load = running_load()
    if load is None:  # a loader of somebody's own, which tells no end
        mark_fixed(layer, recipe)
        return
    root, strict = load
    vars(layer)[WAITING] = _Waiting(recipe, id(root), strict, missing, errors)
    if not has_load_hook(root, _fix_if_loaded):
        root.register_load_state_dict_post_hook(_fix_if_loaded)


@dataclass(frozen=True)
class _Waiting:
    """A recipe that waits for the end of its load; lists are those that PyTorch fills."""

    recipe: KernelRecipe
    root: int
    strict: bool
    missing: list[str]
    errors: list[str]


def _fix_if_loaded(root: nn.Module, keys: Any) -> None:
    """After a load_state_dict: recipes that came with it count if all of it went well."""
    for module in root.modules():
        waiting = vars(module).get(WAITING)
        if waiting is None or waiting.root != id(root):
            continue
        del vars(module)[WAITING]
        failed = waiting.errors or (waiting.strict and (keys.missing_keys or keys.unexpected_keys))
        # Of a load that was broken off something may still wait: it has other lists.
        if waiting.missing is keys.missing_keys and not failed:
            mark_fixed(cast("Convolution", module), waiting.recipe)


def rounded(kernels: Array, gain: float, dtype: torch.dtype) -> Tensor:
    """A method's kernels, which are computed in float64, as a layer holds them."""
    return torch.from_numpy(kernels * gain if gain != 1.0 else kernels).to(dtype).contiguous()
