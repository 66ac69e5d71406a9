"""steer_: dense convolutions become fixed filters and learned steering."""

from __future__ import annotations

import copy
import inspect
import math
import operator
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ..explanation.saliency import check_saliency
from ..filters.exact import Draw
from ..fix import fix_
from ..layers import (
    Convolution,
    attributes_as_found,
    kernel_grid,
    require_writable_kernels,
    select_layers,
    spatial_layers,
)
from ..marks.changes import remember
from ..marks.untrained import teaches_nothing
from ..mixing.steered import (
    Split,
    Steered,
    can_split,
    is_dense,
    require_original,
    steered_layers,
)
from ..private import has_hooks
from ..recipe import KernelRecipe, digest, mark_fixed
from ..registry import bases, unknown
from ..registry import filters as methods
from .energy import Order, choose_bank, fitted_weights, kernels_of
from .outcome import SteeredLayer, SteerReport

Start = Literal["fitted", "fresh"]


@teaches_nothing
def steer_(
    model: nn.Module,
    method: str = "dct2",
    *,
    filters: int | None = None,
    energy: float | None = None,
    saliency: Mapping[str, Tensor] | None = None,
    layers: str | Iterable[str] | None = None,
    seed: int = 0,
    order: Order = "mean",
    start: Start = "fitted",
    **options: Any,
) -> SteerReport:
    """Turn dense convolutions into fixed filters, so many a channel, and a learned 1x1.

    By an orthonormal basis ("dct2", "haar", "pca") the 1x1 gets the projections of the kernels
    that were there: with all filters the layer computes what it did, up to rounding, with fewer it
    is the best approximation. `filters` says how many each input channel gets; `energy` lets every
    layer have the fewest that hold that share of the sum of its squared weights, weighted by
    `saliency` if given. Kept are the constant filter, on which outputs depend most, and those with
    the most energy (`order="mean"`); by "energy" alone; or from low to high "frequency".

    By another method ("ghaar", "psine", …; `list_filters()`) the filters are drawn, one a channel
    unless `filters` says more, from `seed` and each layer's path; `options` (a guide too) are those
    of `fix_`. The 1x1 then comes as near to the kernels as these filters allow, by least squares;
    or it begins anew (`start="fresh"`), for a network that is yet to learn.

    `layers` names the layers, by path or pattern. Depthwise layers have nothing to steer, and
    modules that compute more than a convolution stay; the report names them. On any error the
    model is as it was. `merge_` goes back.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    >>> steer_(model).share_lost < 1e-12
    True
    >>> model[0]
    Steered(
      (spatial): Conv2d(3, 27, kernel_size=(3, 3), stride=(1, 1), groups=3, bias=False)
      (steering): Conv2d(27, 8, kernel_size=(1, 1), stride=(1, 1))
    )
    """
    drawn = _check(method, filters, energy, order, start, options)
    filters = None if filters is None else operator.index(filters)
    require_original(model)
    chosen, left = _choose(model, layers)
    counted = _counted(model, method, chosen, saliency)
    before = {path: _kernels(path, layer) for path, layer in chosen.items()}
    banks: dict[str, Tensor] = {}
    for path, layer in chosen.items() if not drawn else ():
        shape, weights = tuple(layer.kernel_size), counted.get(path)
        banks[path] = choose_bank(method, before[path], shape, weights, order, filters, energy)
    guided = drawn and "guide" in inspect.signature(methods[method]).parameters
    if guided and options.get("guide") is None:  # the model as it is now
        options["guide"] = copy.deepcopy(model)

    change = Split({p: banks[p].shape[2] if p in banks else filters or 1 for p in chosen})
    report = {}
    with attributes_as_found(model, on_error_only=True):
        change.again_(model)
        new = {path: cast("Steered", model.get_submodule(path)) for path in chosen}
        for path, bank in banks.items():
            _fix_bank(method, path, new[path], bank)
        banks = banks or _draw(model, method, new, seed, options)
        for path, steered in new.items():
            fresh = _fresh(path, steered, seed) if start == "fresh" else None
            weights = fitted_weights(before[path], banks[path]) if fresh is None else fresh
            with torch.no_grad():
                steered.steering.weight.copy_(weights.reshape(steered.steering.weight.shape))
            lost = before[path] - kernels_of(weights, banks[path])
            report[path] = _described(chosen[path], steered, before[path], lost)
        remember(model, change)
    return SteerReport(method, report, left)


def _check(
    method: str,
    filters: int | None,
    energy: float | None,
    order: str,
    start: str,
    options: Mapping[str, Any],
) -> bool:
    """Raise if the arguments do not fit each other; whether the filters are drawn."""
    if method not in bases and method not in methods:
        raise unknown("basis or filter method", method, [*bases, *methods])
    for name, value, kind in (("order", order, Order), ("start", start, Start)):
        if value not in typing.get_args(kind):
            raise unknown(name, value, typing.get_args(kind))
    if filters is not None and energy is not None:
        raise ValueError("give filters or energy, not both: either says how many filters to keep")
    if filters is not None and operator.index(filters) < 1:
        raise ValueError(f"filters must be at least 1, not {filters}")
    if energy is not None and not 0 < energy <= 1:
        raise ValueError(f"energy must be above 0 and at most 1, not {energy!r}")
    drawn = method not in bases
    if drawn and energy is not None:
        raise ValueError(f"energy needs a basis ({', '.join(bases)}); {method!r} draws its filters")
    if not drawn and options:
        raise unknown(f"{method!r} option", next(iter(options)), ())
    return drawn


def _choose(
    model: nn.Module, patterns: str | Iterable[str] | None
) -> tuple[dict[str, Convolution], dict[str, str]]:
    """The layers to steer, and those that stay, each with the reason."""
    parts = {id(part) for layer in steered_layers(model).values() for part in layer.children()}
    named = select_layers(model, patterns)
    left = {path: why for path, layer in named.items() if (why := _unfit(layer, parts))}
    chosen = {path: layer for path, layer in named.items() if path not in left}
    if patterns is not None and left:
        path, why = next(iter(left.items()))
        raise ValueError(f"{path!r} cannot be steered: {why}")
    if not chosen:
        path, why = next(iter(left.items()))
        raise ValueError(f"no layer of this {type(model).__name__} can be steered: {path!r} {why}")
    if "" in chosen:
        raise ValueError("the model itself is a convolution: put it into an nn.Sequential")
    require_writable_kernels(chosen)
    holders: dict[int, str] = {}
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, Convolution) and isinstance(weight, Tensor):
            first = holders.setdefault(id(weight), path)
            if first != path and (first in chosen or path in chosen):
                raise ValueError(f"{first!r} and {path!r} share their kernels: name other layers")
    return chosen, left


def _unfit(layer: Convolution, parts: set[int]) -> str:
    if id(layer) in parts:
        return "it is a part of a steered layer already; merge_ makes it one convolution again"
    if not is_dense(layer):
        return "it is depthwise: no output sums over channels"
    if not can_split(layer):
        return f"a {type(layer).__name__} computes more than a convolution does"
    if has_hooks(layer.weight):
        return "its weight has hooks, and would be gone: remove them"
    return ""


def _kernels(path: str, layer: Convolution) -> Tensor:
    """A layer's kernels, `(groups, outputs, inputs, taps)`."""
    kernels = kernel_grid(layer.weight.detach().cpu().double(), layer).flatten(3)
    if not kernels.isfinite().all():
        raise ValueError(f"the kernels of {path!r} are not finite: NaN or infinite")
    return kernels


def _counted(
    model: nn.Module,
    method: str,
    chosen: Mapping[str, Convolution],
    saliency: Mapping[str, Tensor] | None,
) -> dict[str, Tensor]:
    """How much each kernel of a layer counts, for the layers whose kernels do not count alike."""
    if saliency is None:
        return {}
    if method not in bases:
        raise ValueError(f"saliency needs a basis; {method!r} draws its filters")
    check_saliency(saliency, spatial_layers(model))
    if missing := [path for path in chosen if path not in saliency]:
        raise ValueError(f"the saliency has no scores for layer {missing[0]!r}")
    scores = {p: kernel_grid(saliency[p].detach().cpu().double(), chosen[p]) for p in chosen}
    return {path: score for path, score in scores.items() if bool(score.any())}


def _fix_bank(method: str, path: str, layer: Steered, bank: Tensor) -> None:
    """Set and fix the spatial part. What was chosen of a basis no recipe gives back: it is kept."""
    spatial = layer.spatial
    with torch.no_grad():
        spatial.weight.copy_(bank.reshape(spatial.weight.shape))
    weight = spatial.weight
    dtype = str(weight.dtype).removeprefix("torch.")
    shape = tuple(weight.shape)
    recipe = KernelRecipe(method, 0, "paper", {}, path, shape, dtype, 1.0, digest(weight), True)
    mark_fixed(spatial, recipe)


def _draw(
    model: nn.Module,
    method: str,
    new: Mapping[str, Steered],
    seed: int,
    options: Mapping[str, Any],
) -> dict[str, Tensor]:
    """Let `fix_` set the spatial parts; the filters of each."""
    for path, layer in new.items():  # for methods that take the kernels they find
        taps = math.prod(layer.kernel_size)
        drawn = _uniform(seed, f"{path}:usual", tuple(layer.spatial.weight.shape), taps)
        with torch.no_grad():
            layer.spatial.weight.copy_(drawn)
    names = [f"{path}.spatial" for path in new]
    fix_(model, method, seed=seed, layers=names, **options)
    banks = {}
    for path, layer in new.items():
        weight = layer.spatial.weight.detach().cpu().double()
        inputs = layer.in_channels // layer.groups
        banks[path] = weight.reshape(layer.groups, inputs, -1, math.prod(layer.kernel_size))
    return banks


def _fresh(path: str, layer: Steered, seed: int) -> Tensor:
    """Steering as PyTorch would begin it, `(groups, outputs, inputs, filters)`."""
    shape = tuple(layer.steering.weight.shape[:2])
    groups = layer.groups
    drawn = _uniform(seed, f"{path}:fresh", shape, shape[1])
    return drawn.reshape(groups, shape[0] // groups, layer.in_channels // groups, -1)


def _uniform(seed: int, path: str, shape: tuple[int, ...], fan_in: int) -> Tensor:
    """The usual initialisation, Kaiming's with PyTorch's bound."""
    bound = 1 / math.sqrt(fan_in)
    return torch.from_numpy(Draw(seed, path).uniform(*shape, low=-bound, high=bound))


def _described(old: Convolution, new: Steered, kernels: Tensor, lost: Tensor) -> SteeredLayer:
    spatial, steering = new.spatial.weight.numel(), new.steering.weight.numel()
    # A transposed layer's kernels act at every place of its input, its 1x1 at those of the output.
    spread = math.prod(old.stride) if new.transposed else 1
    return SteeredLayer(
        tuple(old.kernel_size),
        new.spatial.out_channels // new.in_channels,
        float(kernels.square().sum()),
        float(lost.square().sum()),
        old.weight.numel(),
        spatial + steering,
        steering,
        round(old.weight.numel() / spread),
        round(spatial / spread) + steering,
    )
