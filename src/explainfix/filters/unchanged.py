"""Unchanged: the kernels as they are, random or pretrained."""

from ..registry import filters
from .exact import Array, Draw


@filters.register("unchanged")
def unchanged(shape: tuple[int, ...], draw: Draw, *, own: Array) -> Array:
    """The layer's own kernels."""
    return own
