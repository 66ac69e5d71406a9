"""Models on disk: one safetensors file that says how to rebuild the model. No pickle is written."""

from .files import check_free, written
from .header import Origin, origin_of, set_origin
from .model import load, save
from .weights import check_fit, read_weights

__all__ = [
    "Origin",
    "check_fit",
    "check_free",
    "load",
    "origin_of",
    "read_weights",
    "save",
    "set_origin",
    "written",
]
