"""Ways to train a network: layout, precision, frugality; and copies of it that train so."""

import copy
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ...backward.saved import kept_for_backward
from ...layout import to_channels_last
from ..run.config import Precision
from ..run.devices import make_ready_
from .timing import training_step

_AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@dataclass(frozen=True)
class Settings:
    """Options of a run that change how fast and how lean it is, by the names they have there.

    >>> str(Settings(channels_last=True, precision="bf16-mixed")), str(Settings())
    ('channels last, bf16-mixed', 'as it is')
    """

    channels_last: bool = False
    precision: Precision = "32-true"
    frugal: bool = False

    def __str__(self) -> str:
        parts = {
            "channels last": self.channels_last,
            self.precision: self.precision != "32-true",
            "frugal": self.frugal,
        }
        return ", ".join(name for name, chosen in parts.items() if chosen) or "as it is"

    @property
    def flags(self) -> list[str]:
        """What to give to `explainfix train`."""
        flags = {
            "--channels-last": self.channels_last,
            f"--precision {self.precision}": self.precision != "32-true",
            "--frugal": self.frugal,
        }
        return [flag for flag, chosen in flags.items() if chosen]


class Way:
    """A copy of a network that trains on a batch by these settings, as `explainfix train` would."""

    def __init__(self, model: nn.Module, x: Tensor, settings: Settings, *, compiled: bool = False):
        network = copy.deepcopy(model).to(x.device).train()
        make_ready_(network, channels_last=settings.channels_last, frugal=settings.frugal)
        if settings.precision == "64-true":
            network, x = network.double(), x.double()
        if settings.channels_last:
            x = to_channels_last(x)
        self.settings, self.x, self.network = settings, x, network
        self.autocast = _AUTOCAST.get(settings.precision)
        run = cast(nn.Module, torch.compile(network)) if compiled else network
        self.step = training_step(run, x, autocast=self.autocast)

    def time_step(self) -> float:
        """The seconds of one step."""
        began = time.perf_counter()
        self.step()
        return time.perf_counter() - began

    def kept_bytes(self) -> int:
        """What a forward pass keeps for the backward pass."""
        precision: AbstractContextManager[object] = nullcontext()
        if self.autocast:
            precision = torch.autocast(self.x.device.type, self.autocast)
        with precision:
            return kept_for_backward(self.network, self.x)
