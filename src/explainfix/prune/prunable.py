"""Models that cannot be pruned as they are, and what to pass instead."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional, FXFloatFunctional

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
        if hasattr(module, "_orig_mod"):
            raise ValueError(
                f"{name} is compiled: prune the original, which torch.compile keeps as "
                "._orig_mod, then compile it"
            )
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise ValueError(
                f"{name} was compiled in place by .compile(): prune first, compile afterwards"
            )
        if ".quantized" in type(module).__module__ and not isinstance(module, _FLOATING):
            raise ValueError(f"{name} is quantised: prune the model first, then quantise it")
        held = {**module._parameters, **module._buffers}
        for key, tensor in held.items():
            full = f"{path}.{key}" if path else key
            if tensor is None:
                continue
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
