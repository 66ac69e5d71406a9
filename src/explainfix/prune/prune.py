"""prune_: remove every channel that can be removed with the output unchanged."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor, nn

from ..layers import as_found
from ..marks.changes import remember
from ..marks.untrained import teaches_nothing
from ..recipe import recipes_follow
from ..recording.call import Call
from .cut import Cut, cut_
from .outcome import PruneReport, count_positions, measure, warnings_of
from .request import AtLeast, Ghosts, Patterns, Request
from .settle import settle
from .trust import Trust


@teaches_nothing
def prune_(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    ghosts: Ghosts = "keep",
    keep: Patterns = (),
    keep_at_least: AtLeast = 1,
) -> PruneReport:
    """Remove every channel whose removal leaves the output unchanged, for every input.

    A channel goes if nothing that reaches an output uses it: it is zero, or a constant that can be
    folded exactly into what reads it, or has no weight anywhere. `ghosts="drop"` lets constants go
    without folding, as the paper does. `example_inputs` is a tensor, a tuple of inputs or a
    dictionary of keyword inputs.

    `keep` names layers to leave alone, by path or pattern, or modules with all layers in them.
    `keep_at_least` is the smallest number of outputs to leave a layer, or such numbers by pattern.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 2, 3))
    >>> model[0].weight.data[2:] = 0
    >>> prune_(model, torch.randn(1, 1, 16, 16), keep_at_least=4).params_kept
    0.504...
    >>> model[0]
    Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), bias=False)
    """
    request = Request.of(model, ghosts, keep, keep_at_least)
    started = time.perf_counter()
    call = Call.of(example_inputs)
    with as_found(model):
        settled = settle(model, call, request, Trust())
    positions = count_positions(settled.state.graph)
    before, layers_before = measure(model, positions)
    decided = settled.plan
    rewritten = {
        f"{path}.{name}".lstrip("."): (getattr(model.get_submodule(path), name), value)
        for (path, name), value in decided.attributes.items()
        if getattr(model.get_submodule(path), name) != value
    }
    with recipes_follow(model):
        cut_(model, decided)
    remember(model, Cut.of(decided))
    after, layers_after = measure(model, positions)
    return PruneReport(
        before,
        after,
        layers_before,
        layers_after,
        {name.rpartition(".")[0]: count for name, count in decided.folded.items()},
        {name.rpartition(".")[0]: count for name, count in decided.dropped.items()},
        decided.for_evaluation,
        decided.barriers,
        settled.difference,
        time.perf_counter() - started,
        verified=settled.verified,
        rewritten=rewritten,
        differs_in_training=settled.differs_in_training,
        params_with_ghosts=settled.params_with_ghosts,
        constants_kept=decided.constants_kept,
        warnings=warnings_of(layers_before, layers_after, settled.varies, settled.unseen),
    )
