"""explainfix: see, fix and prune the spatial filters of any CNN."""

from . import filters as filters  # registers the methods
from .fix import Recipe, check_fixed, fix_, list_filters, recipes, unfix_
from .layers import spatial_layers
from .store import load, save
from .zoo import create_model, list_models

__version__ = "0.1.0"

__all__ = [
    "Recipe",
    "check_fixed",
    "create_model",
    "fix_",
    "list_filters",
    "list_models",
    "load",
    "recipes",
    "save",
    "spatial_layers",
    "unfix_",
]
