"""Where a loss that is not finite comes from: the first layer of the network to blame."""

from torch import Tensor, nn

from ...layers import as_found
from ...running import first_not_finite


def describe_fault(model: nn.Module, images: Tensor) -> str:
    """Run a batch again and say which layer's output is the first that is not finite, and why."""
    if not images.isfinite().all():
        return "the images, which hold NaN or infinite values"
    with as_found(model):
        path = first_not_finite(model, lambda: model(images))
    if path is None:
        return "the loss itself, which overflows"
    module = model.get_submodule(path)
    broken = [name for name, p in module.named_parameters() if not p.isfinite().all()]
    why = f"its {broken[0]} is not finite" if broken else "its inputs were finite"
    return f"layer {path!r} ({type(module).__name__}): {why}; try a lower lr, or clip"
