"""gradient: |dy/df|, Eq. (7) without the weights."""

from torch import Tensor

from ..kind import by_gradient


@by_gradient("gradient")
def gradient(weight: Tensor, gradient: Tensor) -> Tensor:
    """How much the score hangs on the weight, however large it is."""
    return gradient.abs()
