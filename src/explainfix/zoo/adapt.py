"""Fit a network, or weights made for another, to the number of channels and classes asked for."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ..layers import Convolution
from ..store import check_fit, find_state


def adapt_input(weight: Tensor, channels: int) -> Tensor:
    """Filters `(out, in, *kernel)` made for `in` channels, for `channels`: kept, not thrown away.

    For one channel their sum: a grey image gets the response that its copies in colour would.
    For more, they are repeated in turn and scaled by in/channels.

    >>> adapt_input(torch.ones(8, 3, 7, 7), 1).unique().tolist()
    [3.0]
    """
    old = weight.shape[1]
    if channels == old:
        return weight
    if channels == 1:
        return weight.sum(dim=1, keepdim=True)
    return weight[:, torch.arange(channels) % old] * (old / channels)


def set_input_channels_(model: nn.Module, channels: int, *, keep: bool) -> None:
    """Let the first convolution take `channels`; its filters are adapted or drawn anew."""
    stem = next((m for m in model.modules() if isinstance(m, Convolution)), None)
    if stem is None or stem.groups != 1 or stem.transposed:
        raise ValueError(f"{type(model).__name__} has no first convolution to adapt")
    if channels == stem.in_channels:
        return
    weight = adapt_input(stem.weight.detach(), channels)
    stem.in_channels = channels
    stem.weight = nn.Parameter(weight)
    if not keep:
        # Repeated random filters would be twins that a fixed network could never tell apart.
        stem.reset_parameters()


def load_weights_(
    model: nn.Module, given: Mapping[str, Tensor], what: str, default: Callable[[], nn.Module]
) -> None:
    """Load weights made for the `default()` build of a model that may have other ends.

    They are those under the one prefix of the names in `given` that fits the model best.
    Where the model differs from its default, the stem's filters are adapted and the head stays as
    it was made. Any other difference is an error, and the model stays as it was.
    """
    own: dict[str, Tensor] = model.state_dict()
    found, fitting = find_state(own, given)
    state = dict(found)
    differing = [n for n in own if n in found and own[n].shape != found[n].shape]
    if differing:
        usual: dict[str, Tensor] = default().state_dict()
        for name in differing:
            if found[name].shape == usual[name].shape != own[name].shape:
                state[name] = _fitted(own[name], found[name])
    check_fit(own, state, what, fitting)
    model.load_state_dict(state)


def _fitted(own: Tensor, given: Tensor) -> Tensor:
    same_outputs = own.dim() > 2 and own.shape[0] == given.shape[0]
    return adapt_input(given, own.shape[1]) if same_outputs else own
