"""Averages of BatchNorm for the weights that a model has now."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .explanation.batches import split_batch
from .layers import as_found
from .running import explained


def recalibrate_(
    model: nn.Module, batches: Iterable[object], *, max_batches: int | None = None
) -> int:
    """Set BatchNorm's running means and variances to their averages over `batches`.

    In training they follow the weights with a delay, and in a short or fast training they are
    those of weights long gone, or of a few odd batches. Everything but BatchNorm is in evaluation
    mode, as it will be when the averages are used. Nothing else changes: on an error, nothing at
    all. A batch has any form that `saliency` takes. Returns how many layers were set.

    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    >>> recalibrate_(model, [3 + torch.randn(8, 1, 9, 9) for _ in range(5)])
    1
    >>> model.eval()(3 + torch.randn(8, 1, 9, 9)).mean().abs().item() < 0.5
    True
    """
    layers = {p: layer for p, layer in model.named_modules() if isinstance(layer, _BatchNorm)}
    averages = {
        path: (layer.running_mean, layer.running_var)
        for path, layer in layers.items()
        if layer.running_mean is not None and layer.running_var is not None
    }
    if not averages:
        return 0
    device = next(mean.device for mean, _ in averages.values())
    momenta = {path: layers[path].momentum for path in averages}
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with as_found(model), torch.no_grad():
        try:
            model.eval()
            for path in averages:
                layers[path].reset_running_stats()
                layers[path].train()
                layers[path].momentum = None  # the plain average of all batches
            seen = 0
            for batch in islice(batches, max_batches):
                seen += 1
                inputs, _ = split_batch(batch, model)
                with explained(inputs):
                    inputs.run(model, device)
            if not seen:
                raise ValueError("there is no batch to average BatchNorm's statistics over")
            for path, (mean, variance) in averages.items():
                if layers[path].num_batches_tracked:  # others took no part
                    found[path] = mean.clone(), variance.clone()
        finally:
            for path, momentum in momenta.items():
                layers[path].momentum = momentum
    for path, new in found.items():
        if not all(average.isfinite().all() for average in new):
            raise ValueError(f"the statistics of {path!r} over these batches are not finite")
    with torch.no_grad():
        for path, new in found.items():
            for average, value in zip(averages[path], new, strict=True):
                average.copy_(value)
    return len(found)
