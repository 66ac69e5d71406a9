"""zero_: the least salient kernels of the whole network become zero."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..explanation.saliency import check_saliency
from ..layers import require_writable_kernels, select_layers
from ..marks.untrained import teaches_nothing
from ..recipe import recipes_follow


@teaches_nothing
def zero_(
    model: nn.Module,
    saliency: Mapping[str, Tensor],
    fraction: float,
    *,
    allow_dead_layers: bool = False,
) -> dict[str, int]:
    """Zero that share of all spatial kernels, lowest saliency first, over the whole network.

    Ties go by order of layer, output and input. Each layer keeps its most salient kernel unless
    `allow_dead_layers`. Gives the number of kernels zeroed per layer. Fixed layers stay fixed,
    as they are then.

    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 1, 3))
    >>> zero_(model, {"0": torch.tensor([[4.0], [1], [2], [3]]), "1": torch.ones(1, 4) * 9}, 0.25)
    {'0': 2, '1': 0}
    """
    chosen = choose_kernels(model, saliency, fraction, allow_dead_layers=allow_dead_layers)
    layers = select_layers(model)
    require_writable_kernels({path: layers[path] for path in chosen})
    with torch.no_grad(), recipes_follow(model):
        for path, gone in chosen.items():
            layers[path].weight[gone.to(layers[path].weight.device)] = 0
    return {path: int(gone.sum()) for path, gone in chosen.items()}


def choose_kernels(
    model: nn.Module,
    saliency: Mapping[str, Tensor],
    fraction: float,
    *,
    allow_dead_layers: bool = False,
) -> dict[str, Tensor]:
    """Which kernels `zero_` would zero: module path → a mask of shape `weight.shape[:2]`."""
    if not 0 <= fraction < 1:
        raise ValueError(
            f"the share to zero must be at least 0 and below 1 (1 would leave nothing), "
            f"not {fraction!r}"
        )
    check_saliency(saliency, select_layers(model))
    flat = [saliency[path].flatten().double().cpu() for path in saliency]
    scores = torch.cat(flat)
    count = int(fraction * len(scores))
    spared = scores.clone()
    if not allow_dead_layers:
        start = 0
        for part in flat:
            spared[start + int(part.argmax())] = torch.inf
            start += len(part)
        count = min(count, int(spared.isfinite().sum()))
    gone = torch.zeros(len(scores), dtype=torch.bool)
    gone[torch.argsort(spared, stable=True)[:count]] = True
    parts = gone.split([len(part) for part in flat])
    return {
        path: part.reshape(saliency[path].shape) for path, part in zip(saliency, parts, strict=True)
    }
