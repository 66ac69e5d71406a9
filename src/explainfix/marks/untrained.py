"""Whether a model still has the random weights that it was built with.

`create_model` marks a model that it gives random weights with a checksum of them. Whatever learns,
or loads, changes them, and the mark counts no longer. What this package does itself to a model
(fixing, steering, zeroing, cutting) teaches it nothing: the mark is then made anew.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from . import UNTRAINED

RANDOM = "Random weights: this shows the initialisation, not what was learned."

P = ParamSpec("P")
R = TypeVar("R")


def is_untrained(model: nn.Module) -> bool:
    """Whether its weights are known to be those it was built with, or fixed, and none was learned.

    >>> import explainfix as xf
    >>> model = xf.create_model("unetd")
    >>> recipe = xf.fix_(model, "ghaar")
    >>> is_untrained(model)
    True
    >>> with torch.no_grad():
    ...     _ = model.head.weight.add_(0.1)
    >>> is_untrained(model)
    False
    """
    mark = getattr(model, UNTRAINED, None)
    return mark is not None and mark == _checksums(model)


def mark_untrained(model: nn.Module, untrained: bool = True) -> None:
    """Note that the weights are random as they are now, or that nothing is known of them."""
    if untrained and not any(is_lazy(p) or p.is_meta for p in model.parameters()):
        setattr(model, UNTRAINED, _checksums(model))
    elif hasattr(model, UNTRAINED):
        delattr(model, UNTRAINED)


def teaches_nothing(change: Callable[P, R]) -> Callable[P, R]:
    """Decorator of what changes a model, its first argument, but not by learning."""

    @functools.wraps(change)
    def changed(*arguments: P.args, **options: P.kwargs) -> R:
        model = arguments[0] if arguments else options.get("model")
        untrained = isinstance(model, nn.Module) and is_untrained(model)
        result = change(*arguments, **options)
        if untrained and isinstance(model, nn.Module):
            mark_untrained(model)
        return result

    return changed


def _checksums(model: nn.Module) -> tuple[tuple[str, int], ...]:
    """A sum of the bits of every parameter: quick, and the same on any device."""
    return tuple((name, _sum_of_bits(value)) for name, value in model.named_parameters())


def _sum_of_bits(value: Tensor) -> int:
    flat = value.detach().contiguous().flatten()
    size = flat.element_size()
    return int(flat.view(torch.int32 if size % 4 == 0 else torch.uint8).sum(dtype=torch.int64))
