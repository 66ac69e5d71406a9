"""ChannelPrune: remove every channel that the network does not need."""

from . import rules as rules  # registers them
from .channelprune import channel_prune_
from .channels import cut_channels_
from .fill import fill_zero_
from .outcome import PruneReport
from .prune import prune_
from .state import State, rule
from .zero import zero_

__all__ = [
    "PruneReport",
    "State",
    "channel_prune_",
    "cut_channels_",
    "fill_zero_",
    "prune_",
    "rule",
    "zero_",
]
