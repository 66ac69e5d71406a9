"""explainfix: see, fix and prune the spatial filters of any CNN."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import filters as filters  # registers the methods
from . import report as report  # registers how results are drawn
from .explanation import Explanation, compare, explain, saliency
from .fix import fix_, list_filters, unfix_
from .layers import spatial_layers
from .prune import channel_prune_, fill_zero_, prune_, zero_
from .recipe import Recipe, check_fixed, recipes
from .steering import merge_, mix_, steer_
from .store import load, save
from .zoo import create_model, list_models

if TYPE_CHECKING:
    from .lab.data.dataset import list_datasets as list_datasets
    from .paper import list_experiments as list_experiments

__version__ = "0.2.0"

__all__ = [
    "Explanation",
    "Recipe",
    "channel_prune_",
    "check_fixed",
    "compare",
    "create_model",
    "explain",
    "fill_zero_",
    "fix_",
    "list_datasets",
    "list_experiments",
    "list_filters",
    "list_models",
    "load",
    "merge_",
    "mix_",
    "prune_",
    "recipes",
    "saliency",
    "save",
    "spatial_layers",
    "steer_",
    "unfix_",
    "zero_",
]


_LATER = {"list_datasets": ".lab.data.dataset", "list_experiments": ".paper"}


def __getattr__(name: str) -> Any:
    """What belongs to the lab is imported when it is first asked for."""
    if name in _LATER:
        return getattr(import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
