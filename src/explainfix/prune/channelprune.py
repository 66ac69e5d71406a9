"""channel_prune_: the paper's five steps in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..fix import mark_fixed, recipe_of
from ..layers import as_found, spatial_layers
from .fill import fill_zero_
from .liveness import Ghosts, plan
from .outcome import PruneReport
from .prune import analyse, prune_, record_passes, settle
from .state import Trust
from .unfit import check_prunable
from .zero import choose_kernels, zero_


def channel_prune_(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...],
    saliency: Mapping[str, Tensor],
    *,
    zero: float | None = None,
    target_params: float | None = None,
    fill: Literal["fillzero"] | None = "fillzero",
    ghosts: Ghosts = "drop",
    seed: int = 0,
) -> PruneReport:
    """Zero the least salient kernels, cut every dead channel, fill what is still nought.

    `zero` is the share of kernels to zero; `target_params` instead the share of the parameters to
    keep, for which the share is searched on the plan alone. On any error the model is as it was.
    """
    if (zero is None) == (target_params is None):
        raise ValueError("give either zero=, the share of kernels, or target_params=")
    check_prunable(model)
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    if zero is None:
        assert target_params is not None
        zero = find_share(model, inputs, saliency, target_params, ghosts)
    choose_kernels(model, saliency, zero)  # complain before anything is touched
    before = {
        path: (layer.weight.detach().clone(), recipe_of(layer))
        for path, layer in spatial_layers(model).items()
    }
    zeroed = zero_(model, saliency, zero)
    try:
        report = prune_(model, inputs, ghosts=ghosts)
    except BaseException:
        for path, layer in spatial_layers(model).items():
            weight, recipe = before[path]
            with torch.no_grad():
                layer.weight.copy_(weight)
            if recipe:
                mark_fixed(layer, recipe)
        raise
    filled = fill_zero_(model, seed=seed) if fill else {}
    return replace(report, zeroed=zeroed, filled=filled, zero_share=zero)


def find_share(
    model: nn.Module,
    inputs: tuple[Any, ...],
    saliency: Mapping[str, Tensor],
    target: float,
    ghosts: Ghosts,
) -> float:
    """The share of kernels to zero that leaves about `target` of the parameters, by bisection.

    The pass is recorded once; each try zeroes kernels in place, plans, and puts them back.
    """
    if not 0 < target <= 1:
        raise ValueError(f"target_params must be above 0 and at most 1, not {target!r}")
    layers = spatial_layers(model)
    sizes = {name: parameter.shape for name, parameter in model.named_parameters()}
    total = sum(size.numel() for size in sizes.values())
    with as_found(model):
        graphs = record_passes(model, inputs)
    before = {path: layer.weight.detach().clone() for path, layer in layers.items()}

    trust = Trust()

    def kept(share: float, *, first: bool = False) -> float:
        chosen = choose_kernels(model, saliency, share)
        with torch.no_grad():
            for path, gone in chosen.items():
                layers[path].weight[gone] = 0
        try:
            if first:  # learn which guesses about the modules hold
                with as_found(model), torch.no_grad():
                    settle(model, inputs, graphs, ghosts, trust, model.eval()(*inputs))
            decided = plan(analyse(graphs, trust, ghosts), ghosts)
        finally:
            with torch.no_grad():
                for path, layer in layers.items():
                    layer.weight.copy_(before[path])
        left = 0
        for name, size in sizes.items():
            lengths = list(size)
            for axis in range(len(lengths)):
                if (name, axis) in decided.keep:
                    lengths[axis] = len(decided.keep[name, axis])
            left += torch.Size(lengths).numel()
        return left / total

    low, high = 0.0, 1.0 - 1e-6
    least = kept(high, first=True)
    if least > target:
        raise ValueError(
            f"even with all but one kernel a layer zeroed {least:.1%} of the parameters stay, "
            f"more than {target:.1%}"
        )
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) > target else (low, middle)
    return high
