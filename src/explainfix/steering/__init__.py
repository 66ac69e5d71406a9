"""Fixed filters, learned steering: what any dense convolution can be turned into."""

from ..mixing.merge import merge_
from ..mixing.mix import mix_
from .steer import steer_

__all__ = ["merge_", "mix_", "steer_"]
