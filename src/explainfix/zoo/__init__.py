"""Networks by name."""

from . import sources as sources  # registers where models come from
from .create import create_model, list_models

__all__ = ["create_model", "list_models"]
