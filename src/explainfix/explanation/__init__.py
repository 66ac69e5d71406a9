"""ExplainSteer: which frequencies and orientations a network's filters use, and which matter."""

from .advice import Advice
from .basis import Basis
from .check import CheckReport, Thresholds, check
from .compare import Comparison, compare
from .explanation import Explanation, explain
from .saliency import Saliency, saliency
from .spectrum import Spectrum

__all__ = [
    "Advice",
    "Basis",
    "CheckReport",
    "Comparison",
    "Explanation",
    "Saliency",
    "Spectrum",
    "Thresholds",
    "check",
    "compare",
    "explain",
    "saliency",
]
