"""explainfix: see, fix and prune the spatial filters of any CNN."""

from . import filters as filters
from .fix import Recipe, check_fixed, fix_, list_filters, recipes, unfix_
from .layers import spatial_layers

__version__ = "0.1.0"

__all__ = [
    "Recipe",
    "check_fixed",
    "fix_",
    "list_filters",
    "recipes",
    "spatial_layers",
    "unfix_",
]
