"""What a spatial layer is: a convolution whose kernel has more than one element."""

import fnmatch
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from .registry import unknown

T = TypeVar("T")
Track = Callable[[Iterable[Any]], Iterable[Any]]  # wraps a loop, as `rich.progress.track` does

PLAIN_CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip

if TYPE_CHECKING:
    Convolution = (
        nn.Conv1d
        | nn.Conv2d
        | nn.Conv3d
        | nn.ConvTranspose1d
        | nn.ConvTranspose2d
        | nn.ConvTranspose3d
    )
else:

    class _LikeConvolution(type):
        def __instancecheck__(cls, module: object) -> bool:
            return isinstance(module, PLAIN_CONVOLUTIONS) or _has_kernels(module)

    class Convolution(metaclass=_LikeConvolution):
        """A convolution of PyTorch's, or a module like one, such as torchvision's DeformConv2d.

        >>> from torchvision.ops import DeformConv2d
        >>> isinstance(DeformConv2d(3, 8, 3), Convolution), isinstance(nn.Linear(3, 8), Convolution)
        (True, False)
        """


def _has_kernels(module: object) -> bool:
    """Whether a module that is no convolution by class holds kernels `(out, in/groups, *size)`."""
    if not isinstance(module, nn.Module) or "kernel_size" not in vars(module):
        return False
    weight = dict(module.named_parameters(recurse=False, remove_duplicate=False)).get("weight")
    size = vars(module)["kernel_size"]
    counts = [getattr(module, name, None) for name in ("out_channels", "in_channels", "groups")]
    if weight is None or is_lazy(weight) or not isinstance(size, tuple) or not size:
        return False
    # The counts are not compared: while a model is cut, they are behind the weight.
    return all(type(n) is int for n in counts) and tuple(weight.shape[2:]) == size


def spatial_layers(model: nn.Module) -> dict[str, Convolution]:
    """Every convolution of `model` with a kernel of more than one element, by module path.

    1-D to 3-D, grouped, depthwise, transposed and deformable convolutions count, in the model's
    own order.
    A module, or a weight, that several places share appears once, under its first path.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, (1, 7)), nn.Conv1d(8, 2, 4))
    >>> list(spatial_layers(model))
    ['1', '2']
    """
    found: dict[str, Convolution] = {}
    seen: set[int] = set()
    for path, module in model.named_modules():
        if not isinstance(module, Convolution) or math.prod(module.kernel_size) <= 1:
            continue
        # A parametrised weight is computed at every access: its identity says nothing.
        identity = (
            id(module) if parametrize.is_parametrized(module, "weight") else id(module.weight)
        )
        if identity not in seen:
            seen.add(identity)
            found[path] = module
    return found


def select_layers(
    model: nn.Module, patterns: str | Iterable[str] | None = None
) -> dict[str, Convolution]:
    """The spatial layers whose path equals or matches (`*`, `?`) one of `patterns`; all for `None`.

    >>> from torchvision.models import resnet18
    >>> list(select_layers(resnet18(), ["conv1", "layer4.1.*"]))
    ['conv1', 'layer4.1.conv1', 'layer4.1.conv2']
    """
    every = spatial_layers(model)
    if not every:
        raise ValueError(
            f"{type(model).__name__} has no spatial layer: none of its modules is a convolution "
            "whose kernel has more than one element"
        )
    return matching(every, patterns, "spatial layer")


def matching(
    every: Mapping[str, T], patterns: str | Iterable[str] | None, kind: str
) -> dict[str, T]:
    """Those whose path equals or matches one of `patterns`, in the order of `every`."""
    if patterns is None:
        return dict(every)
    chosen: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = fnmatch.filter(every, pattern)
        if not matches:
            raise unknown(kind, pattern, every, "explainfix info MODEL")
        chosen.update(matches)
    if not chosen:
        raise ValueError("no layer was named; leave `layers` out for all of them")
    return {path: layer for path, layer in every.items() if path in chosen}


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, not of those in it; tied ones under each name."""
    own: dict[str, Tensor] = {}
    for members in (module.named_parameters, module.named_buffers):
        own.update(members(recurse=False, remove_duplicate=False))
    return own


def weight_name(path: str) -> str:
    """The name of a layer's weight in a state_dict; a model may itself be a layer, of path "".

    >>> weight_name("layer1.conv"), weight_name("")
    ('layer1.conv.weight', 'weight')
    """
    return f"{path}.weight" if path else "weight"


def require_writable_kernels(layers: dict[str, Convolution]) -> None:
    """Raise, naming the layer, unless every layer holds its kernels as a plain, real parameter."""
    for path, layer in layers.items():
        if parametrize.is_parametrized(layer, "weight"):
            raise ValueError(
                f"the weight of {path!r} is computed by a parametrization; call "
                "torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight') first"
            )
        if is_lazy(layer.weight):
            raise ValueError(f"{path!r} has no weight yet; run the model once on an example first")
        if not isinstance(layer.weight, nn.Parameter):
            raise ValueError(
                f"the weight of {path!r} is computed by a hook (weight_norm, spectral_norm or "
                "pruning); remove the hook first"
            )
        if layer.weight.is_meta:
            raise ValueError(f"{path!r} is on the meta device and has no values; load them first")
        if not layer.weight.is_floating_point():
            raise ValueError(f"the weight of {path!r} is {layer.weight.dtype}, not real numbers")


def kernels_by_output(layer: Convolution, weight: NDArray[Any]) -> NDArray[Any]:
    """What each output of the layer sums: its weight as `(outputs, inputs, *taps)`.

    A transposed convolution of stride s has s kinds of outputs along an axis, each of which sees
    every s-th place of the kernel: they count as different outputs.

    >>> layer = nn.ConvTranspose2d(16, 8, 4, stride=2)
    >>> kernels_by_output(layer, layer.weight.detach().numpy()).shape
    (32, 16, 2, 2)
    """
    if not getattr(layer, "transposed", False):  # a module that is only like a convolution
        return weight
    inputs, outputs = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    kernel, stride = layer.kernel_size, layer.stride
    seen = [-(-size // step) for size, step in zip(kernel, stride, strict=True)]
    room = [n * step - size for n, size, step in zip(seen, kernel, stride, strict=True)]
    padded = np.pad(weight, [(0, 0), (0, 0), *((0, extra) for extra in room)])
    split = [length for pair in zip(seen, stride, strict=True) for length in pair]
    parts = padded.reshape(layer.groups, inputs, outputs, *split)
    places = range(3, 3 + len(split))
    order = [0, 2, *places[1::2], 1, *places[::2]]
    return parts.transpose(order).reshape(-1, inputs, *seen)


def kernel_grid(weight: Tensor, layer: Convolution) -> Tensor:
    """A layer's weight, or what has its first two axes, as `(groups, outputs, inputs, ...)`.

    >>> layer = nn.ConvTranspose2d(16, 8, 4, groups=2)
    >>> kernel_grid(layer.weight, layer).shape
    torch.Size([2, 4, 8, 4, 4])
    """
    by_group: Tensor = weight.unflatten(0, (layer.groups, -1))
    return by_group.transpose(1, 2) if getattr(layer, "transposed", False) else by_group


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Whatever happens inside, leave the model's state as it was found, and random numbers too.

    Train and eval modes, `requires_grad`, gradients and buffers are put back, on errors as well.
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(each, each.requires_grad, each.grad) for each in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {each.device for each, _, _ in parameters if each.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


@contextmanager
def attributes_as_found(model: nn.Module, *, on_error_only: bool = False) -> Iterator[None]:
    """Put back what every module holds: attributes, caches, counters, which tensors and modules.

    What a tensor itself holds is not looked after: see `as_found`.
    """
    attributes = [vars(module) for module in model.modules()]
    # Parameters, buffers and modules are in dictionaries among the attributes.
    inner = [value for each in attributes for value in each.values() if isinstance(value, dict)]
    before = [(held, dict(held)) for held in (*attributes, *inner)]
    failed = True
    try:
        yield
        failed = False
    finally:
        for held, old in before if failed or not on_error_only else ():
            if not _same_items(held, old):
                held.clear()
                held.update(old)


def _same_items(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two dictionaries hold the very same objects in the same order."""
    return list(one) == list(other) and all(map(operator.is_, one.values(), other.values()))
