"""Models on disk: one safetensors file that says how to rebuild the model. No pickle is written."""

from .files import check_free, written
from .header import Origin, origin_of, set_origin
from .model import load, load_built, save
from .weights import check_fit, find_state, holds_model, read_weights, split_part

__all__ = [
    "Origin",
    "check_fit",
    "check_free",
    "find_state",
    "holds_model",
    "load",
    "load_built",
    "origin_of",
    "read_weights",
    "save",
    "set_origin",
    "split_part",
    "written",
]
