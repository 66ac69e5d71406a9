"""Where a loss that is not finite comes from: the first layer of the network to blame."""

from typing import Any

import torch
from torch import Tensor, nn

from ...layers import as_found


def describe_fault(model: nn.Module, images: Tensor) -> str:
    """Run a batch again and say which layer's output is the first that is not finite, and why."""
    if not images.isfinite().all():
        return "the images, which hold NaN or infinite values"
    first: list[str] = []

    def look(path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not first and isinstance(output, Tensor) and not output.isfinite().all():
                broken = [n for n, p in module.named_parameters() if not p.isfinite().all()]
                why = f"its {broken[0]} is not finite" if broken else "its inputs were finite"
                first.append(f"layer {path!r} ({type(module).__name__}): {why}")

        return hook

    leaves = [(path, m) for path, m in model.named_modules() if not any(m.children())]
    hooks = [module.register_forward_hook(look(path)) for path, module in leaves]
    try:
        with as_found(model), torch.no_grad():
            model(images)
    finally:
        for handle in hooks:
            handle.remove()
    return f"{first[0]}; try a lower lr, or clip" if first else "the loss itself, which overflows"
