"""Unchanged: the kernels stay as they are, random or pretrained, and are frozen."""

from ..registry import filters
from .exact import Array, Draw


@filters.register("unchanged")
def unchanged(shape: tuple[int, ...], draw: Draw, *, own: Array) -> Array:
    """The layer's own kernels."""
    return own
