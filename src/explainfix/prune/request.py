"""What is asked of a cut, and models that cannot be cut as they are."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional, FXFloatFunctional

from ..layers import Convolution, own_tensors, weight_name
from ..private import compiled_as
from ..registry import unknown

Ghosts = Literal["keep", "drop"]
Patterns = str | Iterable[str]
AtLeast = int | Mapping[str, int]

# Stand-ins for sums and products that live beside the quantised modules and are not quantised.
_FLOATING = (FloatFunctional, FXFloatFunctional)


def check_prunable(model: nn.Module) -> None:
    """Refuse scripted, compiled and quantised modules by name; nothing has been touched yet."""
    if torch.is_inference_mode_enabled():
        raise ValueError("pruning cannot run in torch.inference_mode(): call it outside")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise ValueError(
            "pruning cannot run under torch.autocast, which replaces the weights by copies: call "
            "it outside; the pruned model runs under autocast as before"
        )
    for path, module in model.named_modules():
        name = f"module {path!r}" if path else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name} is scripted or traced by torch.jit: prune the original module, "
                "then script it"
            )
        compiled = compiled_as(module)
        if compiled == "a copy":
            raise ValueError(
                f"{name} is compiled: prune the original, which torch.compile keeps as "
                "._orig_mod, then compile it"
            )
        if compiled == "in place":
            raise ValueError(
                f"{name} was compiled in place by .compile(): prune first, compile afterwards"
            )
        if ".quantized" in type(module).__module__ and not isinstance(module, _FLOATING):
            raise ValueError(f"{name} is quantised: prune the model first, then quantise it")
        for key, tensor in own_tensors(module).items():
            full = f"{path}.{key}" if path else key
            if nn.parameter.is_lazy(tensor):
                raise ValueError(f"{full!r} has no size yet: run the model once on a batch")
            if tensor.is_inference():
                raise ValueError(
                    f"{full!r} was made in torch.inference_mode() and cannot be cut: build the "
                    "model outside of it"
                )
            if tensor.is_quantized or type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
                raise ValueError(
                    f"{full!r} is a {type(tensor).__name__} of dtype {tensor.dtype}, not a plain "
                    "tensor: prune the model before it is quantised or otherwise converted"
                )


@dataclass(frozen=True)
class Request:
    """What was asked of a cut, checked against the model."""

    ghosts: Ghosts
    whole: frozenset[str]  # layers to leave alone, by the name of their weight
    at_least: dict[str, int]  # weight → the smallest number of outputs

    @classmethod
    def of(
        cls, model: nn.Module, ghosts: Ghosts, keep: Patterns, keep_at_least: AtLeast
    ) -> Request:
        if ghosts not in ("keep", "drop"):
            raise ValueError(f"ghosts must be 'keep' or 'drop', not {ghosts!r}")
        check_prunable(model)
        patterns = [keep] if isinstance(keep, str) else list(keep)
        whole = {weight_name(path) for pattern in patterns for path in _matching(model, pattern)}
        least = {"*": keep_at_least} if isinstance(keep_at_least, int) else dict(keep_at_least)
        numbers: dict[str, int] = {}
        for pattern, number in least.items():
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"keep_at_least must be 1 or more, not {number!r}")
            if number > 1:
                numbers |= {weight_name(path): number for path in _matching(model, pattern)}
        return cls(ghosts, frozenset(whole), numbers)


def _matching(model: nn.Module, pattern: str) -> list[str]:
    """The layers whose path, or a module they are in, equals or matches a pattern."""
    layers = [path for path, m in model.named_modules() if isinstance(m, (Convolution, nn.Linear))]
    found = [
        path
        for path in layers
        if fnmatch.fnmatchcase(path, pattern) or path.startswith(f"{pattern}.")
    ]
    if not found:
        raise unknown("layer to keep", pattern, layers, "explainfix info MODEL")
    return found
