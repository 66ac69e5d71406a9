"""explainfix: see, fix and prune the spatial filters of any CNN."""

from . import filters as filters  # registers the methods
from . import report as report  # registers how results are drawn
from .fix import Recipe, check_fixed, fix_, list_filters, recipes, unfix_
from .layers import spatial_layers
from .steer import Comparison, Explanation, Saliency, Spectrum, compare, explain, saliency
from .store import load, save
from .zoo import create_model, list_models

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Explanation",
    "Recipe",
    "Saliency",
    "Spectrum",
    "check_fixed",
    "compare",
    "create_model",
    "explain",
    "fix_",
    "list_filters",
    "list_models",
    "load",
    "recipes",
    "saliency",
    "save",
    "spatial_layers",
    "unfix_",
]
