"""What a kind of saliency is: a score of kernels by the gradients of batches, or without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..layers import Convolution
from ..registry import Registry

Layer = Convolution | nn.Linear
ByGradient = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Given:
    """What a kind without data has to go by, beside the layers: the model, and a seed.

    `example` is what the model may be run on, if anything is known.
    """

    model: nn.Module
    seed: int = 0
    example: tuple[Any, ...] | dict[str, Any] | None = None


ByModel = Callable[[Mapping[str, Layer], Given], dict[str, Tensor]]


@dataclass(frozen=True)
class Kind:
    """One of the two.

    `of_gradient(weight, gradient)` scores every weight by its gradient in a batch, of their shape;
    `of_model(layers, given)` every kernel, `weight.shape[:2]`, of layers by path, at once.
    """

    of_gradient: ByGradient | None = None
    of_model: ByModel | None = None


kinds: Registry[Kind] = Registry("kind of saliency", "")


def list_saliencies() -> list[str]:
    """The names that `saliency(kind=...)` takes."""
    return list(kinds)


def by_gradient(name: str) -> Callable[[ByGradient], ByGradient]:
    """Decorator: a kind that sees a weight and its gradient, batch by batch."""

    def add(function: ByGradient) -> ByGradient:
        kinds.register(name)(Kind(of_gradient=function))
        return function

    return add


def by_model(name: str) -> Callable[[ByModel], ByModel]:
    """Decorator: a kind that needs no data."""

    def add(function: ByModel) -> ByModel:
        kinds.register(name)(Kind(of_model=function))
        return function

    return add
