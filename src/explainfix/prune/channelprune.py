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
from .outcome import PruneReport, count_positions
from .prune import prune_
from .request import AtLeast, Ghosts, Patterns, Request
from .settle import analyse, settle, share_left
from .trust import Trust
from .zero import choose_kernels, zero_


def channel_prune_(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...] | dict[str, Any],
    saliency: Mapping[str, Tensor],
    *,
    zero: float | None = None,
    target_params: float | None = None,
    target_macs: float | None = None,
    fill: Literal["fillzero"] | None = "fillzero",
    ghosts: Ghosts = "drop",
    keep: Patterns = (),
    keep_at_least: AtLeast = 1,
    seed: int = 0,
) -> PruneReport:
    """Zero the least salient kernels, cut every dead channel, fill what is still zero.

    `zero` is the share of kernels to zero; `target_params` or `target_macs` instead the share of
    the parameters or multiply-adds to keep, for which the share is searched on the plan alone.
    `keep` and `keep_at_least` are as in `prune_`; layers to keep are not zeroed either. On any
    error the model is as it was.
    """
    if [zero, target_params, target_macs].count(None) != 2:
        raise ValueError(
            "give either zero=, the share of kernels, or target_params= or target_macs="
        )
    request = Request.of(model, ghosts, keep, keep_at_least)
    require_writable_kernels(spatial_layers(model))
    scores = {p: s for p, s in saliency.items() if weight_name(p) not in request.whole}
    if zero is None:
        target, of = (target_params, "parameters") if target_macs is None else (target_macs, "macs")
        assert target is not None
        zero = find_share(model, Call.of(example_inputs), scores, target, request, of=of)
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
    model: nn.Module,
    call: Call,
    saliency: Mapping[str, Tensor],
    target: float,
    request: Request,
    *,
    of: str = "parameters",
) -> float:
    """The share of kernels to zero that leaves about `target` of the parameters, by bisection.

    With `of="macs"` that is the target of the multiply-adds.

    The passes are recorded once; each try zeroes kernels in place, plans, and puts them back.
    """
    if not 0 < target <= 1:
        name = "target_macs" if of == "macs" else "target_params"
        raise ValueError(f"{name} must be above 0 and at most 1, not {target!r}")
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

    positions = count_positions(settled.state.graph) if of == "macs" else None

    def kept(share: float) -> float:
        with zeroed(share):
            state = analyse(settled.state.graph, request, trust)
            decided = plan(state, request.ghosts, None, request.at_least)[0]
            return share_left(model, decided, positions)

    least = share_left(model, settled.plan, positions)
    if least > target:
        what = "multiply-adds" if of == "macs" else "parameters"
        raise ValueError(
            f"even with all but one kernel a layer zeroed {least:.1%} of the {what} stay, "
            f"more than {target:.1%}"
        )
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) > target else (low, middle)
    return high
