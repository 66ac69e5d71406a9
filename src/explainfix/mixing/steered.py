"""A convolution in two parts: a spatial one, and a learned 1x1 that steers what it saw.

The paper's first equation. Two forms of it: one spatial filter bank for each input channel, and a
1x1 in the place of the dense kernels ("steered"); or the convolution as it was, and a 1x1 behind
it ("mixed"). Either is equal to one ordinary convolution, see `merged`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from ..layers import PLAIN_CONVOLUTIONS, Convolution, kernel_grid
from ..layout import layout_of
from ..marks.changes import hand_over_changes
from ..private import compiled_as, hand_over_hooks, has_hooks
from ..recipe import recipe_of

T = TypeVar("T", bound=nn.Module)

_CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class Steered(nn.Module):
    """`spatial`, which is fixed, then `steering`, which is 1x1 and learned.

    To those who ask it is the convolution that it stands for.

    >>> layer = split(nn.Conv2d(8, 4, 3, stride=2, padding=1), filters=2)
    >>> layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride
    (8, 4, (3, 3), (2, 2))
    """

    spatial: Convolution
    steering: nn.Conv1d | nn.Conv2d | nn.Conv3d

    def __init__(self, spatial: nn.Module, steering: nn.Module) -> None:
        super().__init__()
        self.spatial, self.steering = cast("Any", spatial), cast("Any", steering)
        self.training = spatial.training

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:  # a transposed one's output_size too
        seen: Tensor = self.spatial(*args, **kwargs)
        steered: Tensor = self.steering(seen)
        return steered

    @property
    def in_channels(self) -> int:
        return self.spatial.in_channels

    @property
    def out_channels(self) -> int:
        return self.steering.out_channels

    @property
    def groups(self) -> int:
        return self.steering.groups

    @property
    def kernel_size(self) -> tuple[int, ...]:
        return self.spatial.kernel_size

    @property
    def stride(self) -> tuple[int, ...]:
        return self.spatial.stride

    @property
    def padding(self) -> tuple[int, ...] | str:
        return self.spatial.padding

    @property
    def dilation(self) -> tuple[int, ...]:
        return self.spatial.dilation

    @property
    def padding_mode(self) -> str:
        return self.spatial.padding_mode

    @property
    def transposed(self) -> bool:
        return self.spatial.transposed

    @property
    def output_padding(self) -> tuple[int, ...]:
        return self.spatial.output_padding

    @property
    def weight(self) -> Tensor:
        """The kernels of the convolution that it stands for."""
        # Groups of the spatial part lie side by side within one group of the steering.
        groups, parts = self.groups, self.spatial.groups // self.groups
        looks = kernel_grid(self.spatial.weight, self.spatial).unflatten(0, (groups, parts))
        steers = self.steering.weight.reshape(groups, -1, parts, looks.shape[2])
        whole = torch.einsum("gopc,gpcit->gopit", steers, looks.flatten(4)).flatten(2, 3)
        grid = whole.transpose(1, 2) if self.transposed else whole
        return grid.reshape(-1, grid.shape[2], *self.kernel_size)

    @property
    def bias(self) -> Tensor | None:
        """The bias of the convolution that it stands for."""
        inner, outer = self.spatial.bias, self.steering.bias
        if inner is None:
            return outer
        steers = self.steering.weight.reshape(self.groups, -1, inner.numel() // self.groups)
        carried = (steers @ inner.reshape(self.groups, -1, 1)).flatten()
        return carried if outer is None else carried + outer


def can_split(layer: nn.Module) -> bool:
    """Whether a module computes what the convolution of its class does, and nothing else."""
    plain = next((kind for kind in PLAIN_CONVOLUTIONS if isinstance(layer, kind)), None)
    if plain is None or "forward" in vars(layer):  # another one for this layer alone
        return False
    return all(
        getattr(type(layer), name) is getattr(plain, name)
        for name in ("forward", "_conv_forward")
        if hasattr(plain, name)
    )


def is_dense(layer: Convolution) -> bool:
    """Whether an output of the layer sums over channels; those of a depthwise layer do not."""
    return layer.groups == 1 or layer.in_channels > layer.groups


def split(layer: Convolution, filters: int) -> Steered:
    """The two parts in whose place a dense convolution stood, their weights still to be set.

    The spatial one has that many filters for each input channel; channel i's come one after the
    other. A bias goes to the steering, with its values.
    """
    inputs = layer.in_channels
    spatial = _like(layer, inputs * filters, groups=inputs, bias=False)
    steering = _pointwise(layer, inputs * filters, groups=layer.groups, bias=layer.bias)
    # A layer that somebody froze without fixing it does not begin to learn.
    steering.weight.requires_grad_(layer.weight.requires_grad or recipe_of(layer) is not None)
    return _in_place_of(layer, Steered(spatial, steering))


def mixed(layer: Convolution) -> Steered:
    """The layer itself, and behind it a 1x1 that leaves every channel as it is, for now."""
    steering = _pointwise(layer, layer.out_channels, groups=1, bias=None)
    with torch.no_grad():
        steering.weight.zero_().flatten(1).fill_diagonal_(1)
    return _in_place_of(layer, Steered(layer, steering))


def merged(layer: Steered) -> Convolution:
    """One ordinary convolution that computes the same, up to rounding."""
    if not can_split(layer.spatial):
        raise ValueError(
            f"a {type(layer.spatial).__name__} computes more than a convolution does: it cannot be "
            "merged with the 1x1 behind it"
        )
    if any(map(has_hooks, (layer.spatial, layer.steering, *_weights(layer)))):
        raise ValueError("a part of it has hooks that no merged layer could call: remove them")
    bias = layer.bias
    whole: Convolution = _like(
        layer.spatial, layer.out_channels, groups=layer.groups, bias=bias is not None
    )
    learned = any(weight.requires_grad for weight in _weights(layer))
    with torch.no_grad():
        whole.weight.copy_(layer.weight).requires_grad_(learned)
        if isinstance(bias, nn.Parameter):
            whole.bias = bias  # the very parameter: an optimizer may have it
        elif bias is not None and whole.bias is not None:
            whole.bias.copy_(bias).requires_grad_(bias.requires_grad)
    return _in_place_of(layer, whole)


def require_original(model: nn.Module) -> None:
    """Refuse what torch.compile or torch.jit made of a model: its modules are not its own.

    And modes in which new weights could not be trained, or would be rounded.
    """
    if torch.is_inference_mode_enabled():
        raise ValueError("layers cannot be changed in torch.inference_mode(): call it outside")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise ValueError("layers cannot be changed under torch.autocast: call it outside")
    for path, module in model.named_modules():
        name = f"module {path!r}" if path else "the model"
        if compiled_as(module) == "a copy":
            raise ValueError(
                f"{name} is compiled: change the original, which torch.compile keeps as "
                "._orig_mod, then compile it"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"{name} is scripted or traced by torch.jit: change the original")


def put_in_place_(model: nn.Module, new: Mapping[str, nn.Module]) -> None:
    """Put modules in the place of those at these paths, wherever else these are used too."""
    olds = {id(model.get_submodule(path)): module for path, module in new.items()}
    everywhere = list(model.named_modules(remove_duplicate=False))
    for path, module in everywhere:
        if id(module) in olds:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, olds[id(module)])


@dataclass(frozen=True)
class Split:
    """Layers that were parted: `steered` with so many filters a channel, or `mixed`."""

    steered: dict[str, int] = field(default_factory=dict)
    mixed: list[str] = field(default_factory=list)

    def again_(self, model: nn.Module) -> None:
        """Part them; to whom it happens for the first time, see `split` for the weights."""
        layer = {
            path: cast("Any", model.get_submodule(path)) for path in (*self.steered, *self.mixed)
        }
        new = {path: split(layer[path], filters) for path, filters in self.steered.items()}
        put_in_place_(model, new | {path: mixed(layer[path]) for path in self.mixed})

    def renamed(self, rename: Callable[[str], str]) -> Split:
        steered = {rename(path): filters for path, filters in self.steered.items()}
        return Split(steered, [rename(path) for path in self.mixed])


@dataclass(frozen=True)
class Merge:
    """Layers whose parts were merged."""

    merged: list[str]

    def again_(self, model: nn.Module) -> None:
        layers = {path: cast("Steered", model.get_submodule(path)) for path in self.merged}
        put_in_place_(model, {path: merged(layer) for path, layer in layers.items()})

    def renamed(self, rename: Callable[[str], str]) -> Merge:
        return Merge([rename(path) for path in self.merged])


def steered_layers(model: nn.Module) -> dict[str, Steered]:
    """The convolutions of a model that are in two parts, by module path."""
    return {path: m for path, m in model.named_modules() if isinstance(m, Steered)}


def path_as_one(model: nn.Module, path: str) -> str:
    """The path of the steered layer that a spatial layer is a part of, or else its own.

    >>> path_as_one(nn.Sequential(split(nn.Conv2d(3, 8, 3), filters=2)), "0.spatial")
    '0'
    """
    parent = path.rpartition(".")[0]
    return parent if isinstance(model.get_submodule(parent), Steered) else path


def _in_place_of(old: nn.Module, new: T) -> T:
    """What takes a layer's place calls the hooks that users gave it, and has its past."""
    hand_over_hooks(old, new)
    hand_over_changes(old, new)
    return new


def _weights(layer: Steered) -> tuple[Tensor, Tensor]:
    return layer.spatial.weight, layer.steering.weight


def _like(layer: Convolution, outputs: int, *, groups: int, bias: bool) -> Any:
    """A convolution like the layer, with other outputs and groups, its weights not set."""
    dims = len(layer.kernel_size)
    options: dict[str, Any] = {
        "padding_mode": layer.padding_mode,
        "stride": layer.stride,
        "groups": groups,
    }
    options |= {"padding": layer.padding, "dilation": layer.dilation, "bias": bias}
    if layer.transposed:
        options["output_padding"] = layer.output_padding
    kind = (_TRANSPOSED if layer.transposed else _CONVOLUTIONS)[dims]
    return _new(kind, layer, layer.in_channels, outputs, layer.kernel_size, **options)


def _pointwise(layer: Convolution, inputs: int, *, groups: int, bias: Tensor | None) -> Any:
    kind = _CONVOLUTIONS[len(layer.kernel_size)]
    new = _new(kind, layer, inputs, layer.out_channels, 1, groups=groups, bias=bias is not None)
    if bias is not None:
        new.bias = bias  # the very parameter: an optimizer may have it
    return new


def _new(kind: Any, layer: Convolution, *args: Any, **options: Any) -> Any:
    """A module on the layer's device, of its type, mode and memory format; no number is drawn."""
    made = skip_init(kind, *args, **options, device=layer.weight.device, dtype=layer.weight.dtype)
    return made.to(memory_format=layout_of(layer.weight)).train(layer.training)
