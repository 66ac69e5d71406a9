"""In what order a tensor lies in memory: usual, or with the channels of a pixel side by side.

PyTorch knows it by the strides alone. A grey picture or a kernel of one tap is contiguous in both
layouts, so `is_contiguous` cannot tell them apart and `contiguous` changes nothing; and a network
computes in the layout whose strides its input and its kernels have.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by dimensions of a tensor


def layout_of(tensor: Tensor) -> torch.memory_format:
    """
    >>> grey = torch.zeros(8, 1, 32, 32)
    >>> layout_of(grey), layout_of(to_channels_last(grey))
    (torch.contiguous_format, torch.channels_last)
    """
    last = CHANNELS_LAST.get(tensor.dim())
    if last is None:
        return torch.contiguous_format
    batch, channel, *sides = range(tensor.dim())
    other = _strides(tensor.shape, (batch, *sides, channel))
    usual = _strides(tensor.shape, (batch, channel, *sides))
    return last if tensor.stride() == other != usual else torch.contiguous_format


def to_channels_last(tensor: Tensor) -> Tensor:
    """A picture, a volume or a kernel with its channels side by side; anything else as it is."""
    last = CHANNELS_LAST.get(tensor.dim())
    return tensor if last is None else tensor.to(memory_format=last)


def _strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Those of a dense tensor whose dimensions lie in this order, the last side by side."""
    strides, step = [0] * len(order), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)
