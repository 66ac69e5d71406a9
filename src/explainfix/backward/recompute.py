"""Frugal networks keep less for their backward pass, for a little more work in it.

What is cheap to compute again is not kept, one tensor serves two where it can, and of some
activations a mask says enough. Outputs and gradients are the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import private
from ..layers import PLAIN_CONVOLUTIONS, Convolution
from .frozen import is_frozen, node_of
from .rows import normalise_rows
from .saved import keep_instead

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_SMOOTH = (nn.SiLU, nn.CELU, nn.ELU, nn.SELU, nn.GELU, nn.Hardswish, nn.Mish)  # they keep inputs

# A pointwise convolution that widens this much is computed again: it keeps little and makes much.
WIDER = 4
LARGE = 2**17  # weights of a fixed layer whose cast to low precision is done again
_BIAS, _AGAIN = (
    "explainfix bias",
    "explainfix again",
)  # of a BatchNorm's node: what it does not keep


def make_frugal_(model: nn.Module, *, free: bool = False) -> None:
    """Let a network keep less for its backward pass, for a little more work in it.

    What a pointwise convolution widens `WIDER` times or more before a BatchNorm is computed again
    from what that convolution keeps anyway. A smooth activation after a BatchNorm, and a ReLU or
    its like between a BatchNorm and a fixed layer, keeps nothing: the BatchNorm's output is
    computed again from its input. Other ReLUs before a fixed layer keep a mask. A ReLU6 or
    LeakyReLU before a learned convolution keeps what that one keeps, and under autocast a large
    fixed weight is cast again. Outputs and gradients are the same, on a CPU bit for bit. With
    `free` only these last two are done, which cost next to nothing. `undo_frugal_` undoes it.
    """
    undo_frugal_(model)
    for module in model.modules():
        if isinstance(module, Convolution):
            private.add_hook(module, _after_learned if free else _after_convolution)
            fixed = not (is_lazy(module.weight) or module.weight.requires_grad)
            if fixed and module.weight.numel() >= LARGE:
                private.add_hook(module, _after_fixed)
        elif isinstance(module, _BATCH_NORMS) and not free:
            private.add_hook(module, _after_norm)
        elif isinstance(module, _SMOOTH) and not free:
            private.add_hook(module, _after_smooth)


def undo_frugal_(model: nn.Module) -> None:
    """Undo `make_frugal_`."""
    for module in model.modules():
        private.remove_hooks(module, *_HOOKS)


def _after_norm(norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """Forget a BatchNorm's input, if a pointwise convolution makes it again cheaply."""
    node = node_of(output, "BatchNorm")
    if node is None:
        return
    node.metadata[_BIAS] = (lambda: None) if norm.bias is None else weakref.ref(norm.bias)
    made = node_of(args[0], "Convolution") if args else None
    if made is not None and (again := _Again.of(made)) is not None:
        keep_instead(node, "input", lambda _: again)
        node.metadata[_AGAIN] = weakref.ref(again)


def _after_smooth(activation: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """Forget an activation's input, if a BatchNorm makes it again."""
    node = node_of(output, "")
    if node is not None and (normed := _Normed.of(node)) is not None:
        keep_instead(node, "self", lambda _: normed)


def _after_learned(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """Let the ReLU, or its like, before a learned convolution keep what that one keeps."""
    made, node = _activated(args, output)
    if node is not None and not is_frozen(made):
        _share(args[0], node, made)


def _after_convolution(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """Let the ReLU, or its like, before a convolution keep nothing of its own if it can."""
    made, node = _activated(args, output)
    if node is None:
        return
    kind = node.name()
    if not is_frozen(made):
        _share(args[0], node, made)
    elif "LeakyRelu" in kind:
        keep_instead(node, "self", lambda _: _Normed.of(node))
    elif "Relu" in kind:
        keep_instead(node, "result", lambda y: _Normed.of(node) or _Mask(y > 0, y.dtype))
    elif (bounds := private.saved_values(node, "min_val", "max_val")) is not None:
        low, high = bounds
        keep_instead(
            node, "self", lambda y: _Normed.of(node) or _Mask((y > low) & (y < high), y.dtype)
        )


def _after_fixed(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """Forget the weight as autocast made it, if it is the layer's own and fixed."""
    made = node_of(output, "Convolution")
    kept = private.saved_values(made, "weight") if made is not None and is_frozen(made) else None
    own = dict(layer.named_parameters(recurse=False)).get("weight")
    if kept is None or own is None or not private.computes_as(layer, *PLAIN_CONVOLUTIONS):
        return  # some standardise or scale their weight first
    if kept[0].dtype != own.dtype:
        keep_instead(made, "weight", lambda cast: _Cast(_Same.of(own), cast.dtype))


_HOOKS = (_after_norm, _after_smooth, _after_learned, _after_convolution, _after_fixed)


def _activated(args: tuple[Any, ...], output: Tensor) -> tuple[Any, Any]:
    """The nodes of a convolution and of the ReLU, or its like, that made its input, if one did."""
    made = node_of(output, "Convolution")
    node = node_of(args[0], "") if made is not None and args else None
    known = node is not None and any(kind in node.name() for kind in ("Relu", "Hardtanh"))
    return made, node if known else None


def _share(x: Tensor, node: Any, convolution: Any) -> None:
    """Let a ReLU6 or LeakyReLU that made the input of a learned convolution keep that too.

    They ask of their input where it lies, which their output says as well.
    """
    if "LeakyRelu" in node.name():
        slope = private.saved_values(node, "negative_slope")
        if slope is None or slope[0] < 0:
            return
    kept = private.saved_values(convolution, "input")
    if kept is not None and kept[0] is not None and kept[0].data_ptr() == x.data_ptr():
        keep_instead(node, "self", lambda _: _Same.of(x))


@dataclass(frozen=True)
class _Same:
    """A tensor that somebody else keeps anyway, as it is now."""

    tensor: Tensor
    version: int

    own: ClassVar[tuple[Tensor, ...]] = ()

    @classmethod
    def of(cls, tensor: Tensor) -> _Same:
        return cls(tensor.detach(), private.version(tensor))

    def restore(self) -> Tensor:
        if private.version(self.tensor) != self.version:
            raise RuntimeError(
                f"a tensor {tuple(self.tensor.shape)} that a frugal network needs for its backward "
                "pass was changed in place since: train without frugal, or undo_frugal_(model)"
            )
        return self.tensor


@dataclass(frozen=True)
class _Cast:
    """A weight in another precision, to be cast again."""

    weight: _Same
    dtype: torch.dtype

    own: ClassVar[tuple[Tensor, ...]] = ()

    def restore(self) -> Tensor:
        return self.weight.restore().to(self.dtype)


@dataclass(frozen=True)
class _Normed:
    """The output of a BatchNorm, to be computed again from its input, by the same operation."""

    x: _Same | _Again
    weight: _Same | None
    bias: _Same | None
    compute: Callable[[Tensor, Tensor | None, Tensor | None], Tensor]

    own: ClassVar[tuple[Tensor, ...]] = ()

    @classmethod
    def of(cls, node: Any) -> _Normed | None:
        """What the node of an activation read, if it came from a BatchNorm that is training."""
        norm = node.next_functions[0][0] if node.next_functions else None
        if norm is None or _BIAS not in norm.metadata:
            return None
        compute = _computation(norm)
        kept = private.saved_values(norm, "weight")
        if not compute or kept is None:
            return None
        weight = None if kept[0] is None else _Same.of(kept[0])
        x = norm.metadata[_AGAIN]() if _AGAIN in norm.metadata else None
        if x is None:
            kept = private.saved_values(norm, "input")
            if kept is None:
                return None
            x = _Same.of(kept[0])
        bias = norm.metadata[_BIAS]()
        return cls(x, weight, None if bias is None else _Same.of(bias), compute)

    def restore(self) -> Tensor:
        x = self.x.restore()
        if isinstance(self.x, _Again):
            self.x.ready.append(x)  # the BatchNorm is the next to ask for it
        with torch.no_grad():
            weight = None if self.weight is None else self.weight.restore()
            return self.compute(x, weight, None if self.bias is None else self.bias.restore())


def _computation(norm: Any) -> Any:
    """What a BatchNorm that is training did to an input, given a weight and a bias, if known."""
    if norm.name().startswith("_BatchNormInRows"):
        found = private.saved_values(norm, "mean", "variance")
        apply = partial(normalise_rows, eps=norm.eps, pixels=norm.pixels)
        return found and partial(apply, mean=found[0], variance=found[1])
    if not norm.name().startswith("NativeBatchNorm"):
        return None  # cuDNN's own is another operation
    found = private.saved_values(norm, "training", "result1", "result2")
    return found and found[0] and partial(_normalise, mean=found[1], inverse=found[2])


def _normalise(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, mean: Tensor, inverse: Tensor
) -> Tensor:
    """By PyTorch's own operation: with a variance of 1 it multiplies as it did in training."""
    scale = inverse if weight is None else inverse * weight
    one = torch.ones_like(mean)
    return torch.native_batch_norm(x, scale, bias, mean, one, False, 0.0, 0.0)[0]


@dataclass(frozen=True)
class _Mask:
    """Where a ReLU let through: its backward pass asks for no more."""

    where: Tensor
    dtype: torch.dtype

    @property
    def own(self) -> tuple[Tensor, ...]:
        return (self.where,)

    def restore(self) -> Tensor:
        return self.where.to(self.dtype)


@dataclass(frozen=True)
class _Again:
    """A convolution to be done again, from what it keeps itself."""

    x: Tensor
    weight: Tensor
    settings: tuple[Any, Any, Any]  # stride, padding, dilation
    ready: list[Tensor] = field(default_factory=list)  # if it was done already, for another

    own: ClassVar[tuple[Tensor, ...]] = ()

    @classmethod
    def of(cls, made: Any) -> _Again | None:
        """The convolution of a node, if it is pointwise, without bias, and widens much."""
        kept = private.saved_values(made, "weight")
        if kept is None or (weight := kept[0]) is None:
            return None
        if max(weight.shape[2:]) > 1 or len(weight) < WIDER * weight.shape[1]:
            return None
        values = private.saved_values(
            made, "input", "transposed", "groups", "bias_sym_sizes_opt",
            "stride", "padding", "dilation",
        )  # fmt: skip
        if values is None:
            return None
        x, transposed, groups, bias, stride, padding, dilation = values
        if x is None or transposed or groups != 1:
            return None
        if any(bias or ()):  # a bias is not kept: it cannot be added
            return None
        return cls(x.detach(), weight.detach(), (stride, padding, dilation))

    def restore(self) -> Tensor:
        if self.ready:
            return self.ready.pop()
        still = (0,) * len(self.settings[0])
        with torch.no_grad():
            return torch.convolution(self.x, self.weight, None, *self.settings, False, still, 1)
