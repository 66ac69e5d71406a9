"""Fix spatial filters: set them by a method and freeze them; or let them be learned again."""

import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from .filters.exact import Array, Draw
from .filters.gain import kaiming_gain
from .filters.guidedsteer import Guide, shipped_guides
from .layers import (
    Convolution,
    Track,
    kernels_by_output,
    require_writable_kernels,
    select_layers,
    spatial_layers,
)
from .marks.untrained import teaches_nothing
from .mixing.mix import layers_to_mix, mix_
from .mixing.steered import path_as_one
from .recipe import FROM_MODELS, KernelRecipe, Recipe, digest, mark_fixed, recipe_of, rounded
from .registry import filters, unknown

KernelScale = Literal["paper", "fan_in"]


def list_filters() -> list[str]:
    """The methods that `fix_` knows.

    >>> list_filters()
    ['covariance', 'dct2', 'ghaar', 'guidedsteer', 'masterkeys', 'ones', 'psine', 'unchanged']
    """
    return sorted(filters)


def method_options(method: str) -> dict[str, tuple[Any, ...]]:
    """The options of a method and the values each may take, the default first.

    >>> method_options("guidedsteer")
    {'sampling': ('joint', 'kde', 'normal'), 'basis': ('layer', 'family'), 'centred': (False, True)}
    """
    rule = filters.find(method)
    hints = typing.get_type_hints(rule)
    return {
        parameter.name: typing.get_args(hints[parameter.name]) or (False, True)
        for parameter in inspect.signature(rule).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in FROM_MODELS
    }


@teaches_nothing
def fix_(
    model: nn.Module,
    method: str,
    *,
    seed: int = 0,
    layers: str | Iterable[str] | None = None,
    guide: nn.Module | str | None = None,
    scale: KernelScale = "paper",
    mix: bool = False,
    progress: Track | None = None,
    **options: Any,
) -> Recipe:
    """Set every spatial kernel of `model` by `method` and freeze it; nothing else is touched.

    Biases, 1x1 convolutions and everything else stay as they are, learnable or not. `layers` names
    the layers to fix (paths or patterns such as "layer4.*"; all by default). `scale="paper"` keeps
    the norm of the method; "fan_in" gives the activations the variance that Kaiming's
    initialisation would, for networks without normalisation. `guide` guides "guidedsteer": a
    network, by default the model itself, or "imagenet", which ships with the package. `mix` puts a
    learned 1x1 behind the layers that nothing learned mixes, see `mix_`. `progress` wraps the loop
    over layers, as `rich.progress.track` does.

    A layer's kernels depend on the seed and on the layer's path alone. On any error the model is
    as it was.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> fix_(model, "ghaar", seed=1).digests
    {'0': '...'}
    >>> [name for name, weight in model.named_parameters() if not weight.requires_grad]
    ['0.weight']
    """
    rule = filters.find(method)
    _check(method, options, scale, guide)
    try:
        seed = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be an integer, not {seed!r}") from None

    chosen = select_layers(model, layers)
    require_writable_kernels(chosen)
    unmixed = layers_to_mix(model, suppose_fixed=chosen) if mix else []
    planned: dict[str, tuple[Tensor, KernelRecipe]] = {}
    # One BLAS thread: the bits must not depend on how many there are.
    with threadpool_limits(limits=1, user_api="blas"):
        sources = _sources(rule, chosen, model, guide)
        for path in progress(chosen) if progress else chosen:
            layer = chosen[path]
            kernels = rule(tuple(layer.weight.shape), Draw(seed, path), **sources[path], **options)
            gain = kaiming_gain(kernels_by_output(layer, kernels)) if scale == "fan_in" else 1.0
            weight = rounded(kernels, gain, layer.weight.dtype)
            if not weight.isfinite().all():
                raise ValueError(f"{method!r} gives layer {path!r} NaN or infinite kernels")
            named = {name: source for name, source in sources[path].items() if type(source) is str}
            recipe = KernelRecipe(
                method, seed, scale, {**options, **named}, path, tuple(weight.shape),
                str(weight.dtype).removeprefix("torch."), gain, digest(weight),
            )  # fmt: skip
            planned[path] = weight, recipe

    for path, (weight, recipe) in planned.items():
        with torch.no_grad():
            chosen[path].weight.copy_(weight)
        mark_fixed(chosen[path], recipe)
    if unmixed:
        mix_(model, layers=unmixed)
    digests = {path: recipe.digest for path, (_, recipe) in planned.items()}
    named = {"guide": guide} if isinstance(guide, str) else {}
    return Recipe(method, seed, scale, {**options, **named}, digests)


def unfix_(model: nn.Module, layers: str | Iterable[str] | None = None) -> None:
    """Make fixed kernels learnable again, as they are now, and forget their recipes."""
    for layer in select_layers(model, layers).values():
        if recipe_of(layer):
            mark_fixed(layer, None)


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


def _sources(
    rule: Callable[..., Array],
    chosen: dict[str, Convolution],
    model: nn.Module,
    guide: nn.Module | str | None,
) -> dict[str, dict[str, Any]]:
    """For each layer, what the method wants from a model: nothing, its own kernels or a guide.

    A text is a name that the recipe keeps.
    """
    wanted = inspect.signature(rule).parameters
    if "own" in wanted:
        return {path: {"own": _as_array(layer)} for path, layer in chosen.items()}
    if "guide" in wanted:
        if isinstance(guide, str):
            names = shipped_guides(guide, spatial_layers(model))
            return {path: {"guide": names[path]} for path in chosen}
        source = model if guide is None else guide
        guiding = spatial_layers(source)
        require_writable_kernels(guiding)
        # All layers of the model, chosen or not: which one guides which must not depend on that.
        # A part of a steered layer goes by that layer's path, which other networks have too.
        shapes = {
            path_as_one(model, path): tuple(layer.kernel_size)
            for path, layer in spatial_layers(model).items()
        }
        kernels = {path_as_one(source, path): _as_array(layer) for path, layer in guiding.items()}
        matched = Guide(kernels, shapes)
        return {path: {"guide": matched.layer(path_as_one(model, path))} for path in chosen}
    return {path: {} for path in chosen}


def _check(
    method: str, options: Mapping[str, Any], scale: str, guide: nn.Module | str | None
) -> None:
    if scale not in typing.get_args(KernelScale):
        raise unknown("scale", scale, typing.get_args(KernelScale))
    if guide is not None and "guide" not in inspect.signature(filters.find(method)).parameters:
        raise ValueError(f"{method!r} takes no guide; only 'guidedsteer' does")
    known = method_options(method)
    for name, value in options.items():
        if name not in known:
            raise unknown(f"{method!r} option", name, known, "explainfix list filters")
        if not any(type(value) is type(choice) and value == choice for choice in known[name]):
            raise unknown(f"{name!r} value", value, map(str, known[name]))


def _as_array(layer: Convolution) -> Array:
    array: Array = layer.weight.detach().cpu().double().numpy()
    return array
