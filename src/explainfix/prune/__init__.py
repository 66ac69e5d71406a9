"""ChannelPrune: remove every channel that the network does not need."""

from . import rules as rules  # registers them
from .channelprune import channel_prune_
from .fill import fill_zero_
from .outcome import PruneReport
from .prune import prune_
from .zero import zero_

__all__ = ["PruneReport", "channel_prune_", "fill_zero_", "prune_", "zero_"]
