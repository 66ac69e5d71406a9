"""The datasets there are. Importing this registers them."""

from . import bbbc038v1, chexpert, folder, nih_cxr14, nuclei, xray_like

__all__ = ["bbbc038v1", "chexpert", "folder", "nih_cxr14", "nuclei", "xray_like"]
