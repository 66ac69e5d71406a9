"""ChannelPrune: remove every channel that the network does not need."""

from . import mixing as mixing  # registers the rules
from . import rules as rules
from .channelprune import channel_prune_
from .fill import fill_zero_
from .prune import PruneReport, prune_
from .zero import zero_

__all__ = ["PruneReport", "channel_prune_", "fill_zero_", "prune_", "zero_"]
