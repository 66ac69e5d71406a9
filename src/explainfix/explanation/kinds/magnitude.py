"""magnitude: the size of the weights themselves, Σ|f|; needs no data."""

from collections.abc import Mapping

from torch import Tensor

from ..kind import Given, Layer, by_model


@by_model("magnitude")
def magnitude(layers: Mapping[str, Layer], given: Given) -> dict[str, Tensor]:
    """The sum of each kernel's absolute weights, as a share of its layer's mean.

    Layers differ in scale, which BatchNorm undoes: without the share whole layers would rank below
    others for no reason.
    """
    sizes = {p: layer.weight.detach().abs().double().cpu() for p, layer in layers.items()}
    sums = {path: size.reshape(*size.shape[:2], -1).sum(2) for path, size in sizes.items()}
    return {path: total / total.mean().clamp(min=1e-300) for path, total in sums.items()}
