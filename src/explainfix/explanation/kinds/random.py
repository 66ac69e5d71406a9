"""random: chance, to compare the others with; needs no data."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ...filters.exact import Draw
from ..kind import Given, Layer, by_model


@by_model("random")
def random(layers: Mapping[str, Layer], given: Given) -> dict[str, Tensor]:
    """Each output and each input draws a number, a kernel has their product.

    So a sum over the kernels of a channel is a matter of chance too, however many they are.
    """
    return {
        path: _draw(given.seed, path, *layer.weight.shape[:2]) for path, layer in layers.items()
    }


def _draw(seed: int, path: str, first: int, second: int) -> Tensor:
    sides = [
        torch.from_numpy(Draw(seed, f"random:{side}:{path}").uniform(count, low=0, high=1))
        for side, count in enumerate((first, second))
    ]
    return torch.outer(*sides)
