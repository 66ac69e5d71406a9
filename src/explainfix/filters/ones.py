"""Ones: box filters, every weight is one; unsteered."""

import numpy as np

from ..registry import filters
from .exact import Array, Draw


@filters.register("ones")
def ones(shape: tuple[int, ...], draw: Draw) -> Array:
    """Kernels of ones.

    >>> ones((2, 1, 3, 3), Draw(0, "")).sum().item()
    18.0
    """
    return np.ones(shape)
