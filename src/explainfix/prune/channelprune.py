"""channel_prune_: the paper's five steps in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..layers import as_found, require_writable_kernels, spatial_layers, weight_name
from ..recipe import mark_fixed, recipe_of
from ..recording.call import Call
from .fill import fill_zero_
from .liveness import plan
from .outcome import PruneReport
from .prune import prune_
from .request import AtLeast, Ghosts, Patterns, Request
from .settle import analyse, params_left, settle
from .trust import Trust
from .zero import choose_kernels, zero_


def channel_prune_(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...] | dict[str, Any],
    saliency: Mapping[str, Tensor],
    *,
    zero: float | None = None,
    target_params: float | None = None,
    fill: Literal["fillzero"] | None = "fillzero",
    ghosts: Ghosts = "drop",
    keep: Patterns = (),
    keep_at_least: AtLeast = 1,
    seed: int = 0,
) -> PruneReport:
    """Zero the least salient kernels, cut every dead channel, fill what is still zero.

    `zero` is the share of kernels to zero; `target_params` instead the share of the parameters to
    keep, for which the share is searched on the plan alone. `keep` and `keep_at_least` are as in
    `prune_`; layers to keep are not zeroed either. On any error the model is as it was.
    """
    if (zero is None) == (target_params is None):
        raise ValueError("give either zero=, the share of kernels, or target_params=")
    request = Request.of(model, ghosts, keep, keep_at_least)
    require_writable_kernels(spatial_layers(model))
    scores = {p: s for p, s in saliency.items() if weight_name(p) not in request.whole}
    if zero is None:
        assert target_params is not None
        zero = find_share(model, Call.of(example_inputs), scores, target_params, request)
    choose_kernels(model, scores, zero)  # complain before anything is touched
    before = {
        path: (layer.weight.detach().clone(), recipe_of(layer))
        for path, layer in spatial_layers(model).items()
    }
    zeroed = zero_(model, scores, zero)
    try:
        report = prune_(
            model, example_inputs, ghosts=ghosts, keep=keep, keep_at_least=keep_at_least
        )
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
    model: nn.Module, call: Call, saliency: Mapping[str, Tensor], target: float, request: Request
) -> float:
    """The share of kernels to zero that leaves about `target` of the parameters, by bisection.

    The passes are recorded once; each try zeroes kernels in place, plans, and puts them back.
    """
    if not 0 < target <= 1:
        raise ValueError(f"target_params must be above 0 and at most 1, not {target!r}")
    layers = spatial_layers(model)
    before = {path: layer.weight.detach().clone() for path, layer in layers.items()}

    @contextmanager
    def zeroed(share: float) -> Iterator[None]:
        chosen = choose_kernels(model, saliency, share)
        try:
            with torch.no_grad():
                for path, gone in chosen.items():
                    layers[path].weight[gone] = 0
            yield
        finally:
            with torch.no_grad():
                for path, layer in layers.items():
                    layer.weight.copy_(before[path])

    trust = Trust()
    low, high = 0.0, 1.0 - 1e-6
    with zeroed(high), as_found(model):  # learn which guesses about the modules hold
        settled = settle(model, call, request, trust)

    def kept(share: float) -> float:
        with zeroed(share):
            state = analyse(settled.state.graph, request, trust)
            return params_left(model, plan(state, request.ghosts, None, request.at_least)[0])

    least = params_left(model, settled.plan)
    if least > target:
        raise ValueError(
            f"even with all but one kernel a layer zeroed {least:.1%} of the parameters stay, "
            f"more than {target:.1%}"
        )
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) > target else (low, middle)
    return high
