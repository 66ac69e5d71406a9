"""What is known of a network before it is built, and the inputs most of them take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Network:
    """A network by name, how to build it, and what to feed it."""

    name: str  # source:model
    build: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple[Any, ...]]  # of a batch size and an image size
    sizes: tuple[int, int] = (64, 96)  # that prune_ sees, and another
    single: bool = False  # in float32 only: float64 would take minutes


def images(channels=3, *, dims=2):
    """Makes noise of `channels` on a grid of `dims` dimensions."""
    return lambda batch, size: (torch.randn(batch, channels, *(size,) * dims),)


class Called(nn.Module):
    """A network whose inputs have names, called with them in order."""

    def __init__(self, network, names, **fixed):
        super().__init__()
        self.network, self.names, self.fixed = network, names, fixed

    def forward(self, *inputs):
        return self.network(**dict(zip(self.names, inputs, strict=True)), **self.fixed)
