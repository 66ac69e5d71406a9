"""weight_gradient: the paper's, |dy/df ∘ f|, Eq. (7)."""

from torch import Tensor

from ..kind import by_gradient


@by_gradient("weight_gradient")
def weight_gradient(weight: Tensor, gradient: Tensor) -> Tensor:
    """How much the score would move, to first order, if the weight went."""
    return (gradient * weight).abs()
