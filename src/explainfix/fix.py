"""Fix spatial filters: set them by a method, freeze them, remember how, and check it later."""

import hashlib
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from .backward.frozen import make_lean, make_ordinary
from .filters.exact import Array, Draw
from .filters.gain import kaiming_gain
from .filters.guidedsteer import Guide
from .layers import (
    Convolution,
    kernels_by_output,
    require_writable_kernels,
    select_layers,
    spatial_layers,
)
from .registry import filters, unknown

Scale = Literal["paper", "fan_in"]
Progress = Callable[[Iterable[str]], Iterable[str]]

# A convolution carries its recipe under this name, and so does a state_dict's metadata.
_CARRIED = "explainfix_recipe"
_WAITING = "explainfix_waiting"  # and, while a state_dict is loaded, the one to come

# What a method may ask for by name: kernels that come from a model, which no recipe can give back.
_FROM_MODELS = frozenset({"own", "guide"})


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
class Recipe:
    """What `fix_` did: the method, its seed and options, and a digest of each layer's kernels."""

    method: str
    seed: int
    scale: str
    options: Mapping[str, Any]
    digests: Mapping[str, str]


def list_filters() -> list[str]:
    """The methods that `fix_` knows.

    >>> list_filters()
    ['dct2', 'ghaar', 'guidedsteer', 'ones', 'psine', 'unchanged']
    """
    return sorted(filters)


def method_options(method: str) -> dict[str, tuple[Any, ...]]:
    """The options of a method and the values each may take, the default first.

    >>> method_options("guidedsteer")
    {'sampling': ('kde', 'normal'), 'centred': (False, True)}
    """
    rule = filters.find(method)
    hints = typing.get_type_hints(rule)
    return {
        parameter.name: typing.get_args(hints[parameter.name]) or (False, True)
        for parameter in inspect.signature(rule).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in _FROM_MODELS
    }


def fix_(
    model: nn.Module,
    method: str,
    *,
    seed: int = 0,
    layers: str | Iterable[str] | None = None,
    guide: nn.Module | None = None,
    scale: Scale = "paper",
    progress: Progress | None = None,
    **options: Any,
) -> Recipe:
    """Set every spatial kernel of `model` by `method` and freeze it; nothing else is touched.

    Biases, 1x1 convolutions and everything else stay as they are, learnable or not. `layers` names
    the layers to fix (paths or patterns such as "layer4.*"; all by default). `scale="paper"` keeps
    the norm of the method; "fan_in" gives the activations the variance that Kaiming's
    initialisation would, for networks without normalisation. `guide` guides "guidedsteer", by
    default the model itself. `progress` wraps the loop over layers, as `rich.progress.track` does.

    A layer's kernels depend on the seed and on the layer's path alone. On any error the model is
    as it was.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> fix_(model, "ghaar", seed=1).digests
    {'0': '...'}
    >>> [name for name, weight in model.named_parameters() if not weight.requires_grad]
    ['0.weight']
    """
    rule = filters.find(method)
    _check_options(method, options)
    if scale not in typing.get_args(Scale):
        raise unknown("scale", scale, typing.get_args(Scale))
    if guide is not None and "guide" not in inspect.signature(rule).parameters:
        raise ValueError(f"{method!r} takes no guide; only 'guidedsteer' does")
    try:
        seed = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be an integer, not {seed!r}") from None

    chosen = select_layers(model, layers)
    require_writable_kernels(chosen)
    planned: dict[str, tuple[Tensor, KernelRecipe]] = {}
    # One BLAS thread: the bits must not depend on how many there are.
    with threadpool_limits(limits=1, user_api="blas"):
        sources = _sources(rule, chosen, model, guide)
        for path in progress(chosen) if progress else chosen:
            layer = chosen[path]
            kernels = rule(tuple(layer.weight.shape), Draw(seed, path), **sources[path], **options)
            gain = kaiming_gain(kernels_by_output(layer, kernels)) if scale == "fan_in" else 1.0
            weight = _rounded(kernels, gain, layer.weight.dtype)
            if not weight.isfinite().all():
                raise ValueError(f"{method!r} gives layer {path!r} NaN or infinite kernels")
            recipe = KernelRecipe(
                method, seed, scale, options, path, tuple(weight.shape),
                str(weight.dtype).removeprefix("torch."), gain, digest(weight),
            )  # fmt: skip
            planned[path] = weight, recipe

    for path, (weight, recipe) in planned.items():
        with torch.no_grad():
            chosen[path].weight.copy_(weight)
        mark_fixed(chosen[path], recipe)
    digests = {path: recipe.digest for path, (_, recipe) in planned.items()}
    return Recipe(method, seed, scale, options, digests)


def unfix_(model: nn.Module, layers: str | Iterable[str] | None = None) -> None:
    """Make fixed kernels learnable again, as they are now, and forget their recipes."""
    for layer in select_layers(model, layers).values():
        if recipe_of(layer):
            mark_fixed(layer, None)


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

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3))
    >>> recipe = fix_(model, "psine")
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
        named = "; ".join(f"{path!r} ({why})" for path, why in list(wrong.items())[:5])
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(f"{len(wrong)} of {len(fixed)} fixed layers changed: {named}{more}")


def overflow_risk(model: nn.Module) -> str:
    """Why outputs may overflow in eval mode until the model is trained; empty if nothing says so.

    The paper's kernels are not scaled: something has to normalise what they make.

    >>> overflow_risk(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    'BatchNorm has not seen data yet'
    >>> overflow_risk(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)))
    ''
    """
    # By name, since libraries have their own that inherit from none of PyTorch's.
    norms = [m for m in model.modules() if any("Norm" in kind.__name__ for kind in type(m).__mro__)]
    if not norms:
        return "the model has no normalisation layer"
    if all(_has_seen_nothing(norm) for norm in norms):
        return "BatchNorm has not seen data yet"
    return ""


def _has_seen_nothing(norm: nn.Module) -> bool:
    mean, variance = getattr(norm, "running_mean", None), getattr(norm, "running_var", None)
    if mean is None or variance is None:  # it normalises by the data at hand
        return False
    return not bool(mean.any()) and bool((variance == 1).all())


def can_regenerate(recipe: KernelRecipe) -> bool:
    """Whether the recipe alone gives the kernels: not where they came from a model or changed."""
    return not recipe.altered and not _FROM_MODELS & set(
        inspect.signature(filters.find(recipe.method)).parameters
    )


def regenerate(recipe: KernelRecipe) -> Tensor:
    """The kernels of a recipe, bit for bit, on any machine; a `ValueError` if they are not."""
    rule = filters.find(recipe.method)
    kernels = rule(recipe.shape, Draw(recipe.seed, recipe.path), **recipe.options)
    weight = _rounded(kernels, recipe.gain, getattr(torch, recipe.dtype))
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
    return getattr(layer, _CARRIED, None)


def mark_fixed(layer: Convolution, recipe: KernelRecipe | None) -> None:
    """Freeze the kernels and hang their recipe on the layer, or, for `None`, undo both.

    A frozen layer keeps less for the backward pass, see `lean`.
    """
    carry_recipe(layer)
    make_lean(layer) if recipe else make_ordinary(layer)
    setattr(layer, _CARRIED, recipe)
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
    if not hasattr(layer, _CARRIED):
        setattr(layer, _CARRIED, None)
        layer.register_state_dict_post_hook(_recipe_into_state)
        layer.register_load_state_dict_pre_hook(_recipe_from_state)


def _recipe_into_state(
    layer: nn.Module, state: Mapping[str, Any], prefix: str, metadata: dict[str, Any]
) -> None:
    recipe = recipe_of(layer)
    if recipe:
        metadata[_CARRIED] = asdict(recipe)


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
    if _CARRIED not in metadata or f"{prefix}weight" not in state:
        return
    recipe = KernelRecipe(**metadata[_CARRIED])
    # Only the module whose load_state_dict was called learns, last of all, whether it went well.
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not nn.Module.load_state_dict.__code__:
        frame = frame.f_back
    if frame is None:  # a loader of somebody's own, which tells no end
        mark_fixed(layer, recipe)
        return
    root = frame.f_locals["self"]
    waiting = _Waiting(recipe, id(root), frame.f_locals["strict"], missing, errors)
    vars(layer)[_WAITING] = waiting
    if _fix_if_loaded not in root._load_state_dict_post_hooks.values():
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
        waiting = vars(module).get(_WAITING)
        if waiting is None or waiting.root != id(root):
            continue
        del vars(module)[_WAITING]
        failed = waiting.errors or (waiting.strict and (keys.missing_keys or keys.unexpected_keys))
        # Of a load that was broken off something may still wait: it has other lists.
        if waiting.missing is keys.missing_keys and not failed:
            mark_fixed(typing.cast("Convolution", module), waiting.recipe)


def _sources(
    rule: Callable[..., Array],
    chosen: dict[str, Convolution],
    model: nn.Module,
    guide: nn.Module | None,
) -> dict[str, dict[str, Any]]:
    """For each layer, what the method wants from a model: nothing, its own kernels or a guide."""
    wanted = inspect.signature(rule).parameters
    if "own" in wanted:
        return {path: {"own": _as_array(layer)} for path, layer in chosen.items()}
    if "guide" in wanted:
        guiding = spatial_layers(model if guide is None else guide)
        require_writable_kernels(guiding)
        # All layers of the model, chosen or not: which one guides which must not depend on that.
        shapes = {path: tuple(layer.kernel_size) for path, layer in spatial_layers(model).items()}
        matched = Guide({path: _as_array(layer) for path, layer in guiding.items()}, shapes)
        return {path: {"guide": matched.layer(path)} for path in chosen}
    return {path: {} for path in chosen}


def _check_options(method: str, options: Mapping[str, Any]) -> None:
    known = method_options(method)
    for name, value in options.items():
        if name not in known:
            raise unknown(f"{method!r} option", name, known, "explainfix list filters")
        if not any(type(value) is type(choice) and value == choice for choice in known[name]):
            raise unknown(f"{name!r} value", value, map(str, known[name]))


def _rounded(kernels: Array, gain: float, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(kernels * gain if gain != 1.0 else kernels).to(dtype).contiguous()


def _as_array(layer: Convolution) -> Array:
    array: Array = layer.weight.detach().cpu().double().numpy()
    return array
