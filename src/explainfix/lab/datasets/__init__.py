"""The datasets there are. Importing this registers them."""

from . import bbbc038v1, nuclei

__all__ = ["bbbc038v1", "nuclei"]
