"""What steer_ did: of every layer the filters kept, the energy lost, weights before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..registry import Shown
from ..table import as_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SteeredLayer:
    """One layer. Energy is the sum of squares of its kernels, whatever their saliency."""

    kernel: tuple[int, ...]
    filters: int  # of each input channel
    energy: float
    energy_lost: float
    params_before: int
    params_after: int
    learned_after: int
    macs_before: int  # multiply-adds for one place of the output
    macs_after: int

    @property
    def share_lost(self) -> float:
        return self.energy_lost / self.energy if self.energy else 0.0


@dataclass(frozen=True)
class SteerReport(Shown):
    """What `steer_` did, a mapping-like record by layer.

    `left` names spatial layers that stayed as they are, each with the reason.
    """

    method: str
    layers: Mapping[str, SteeredLayer]
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def share_lost(self) -> float:
        """The share of all steered layers' energy that is lost."""
        whole = sum(layer.energy for layer in self.layers.values())
        return sum(layer.energy_lost for layer in self.layers.values()) / whole if whole else 0.0

    @property
    def params_kept(self) -> float:
        """The share of the steered layers' weights, fixed ones included, that is left."""
        return self._share("params")

    @property
    def macs_kept(self) -> float:
        """The share of multiply-adds for one place of each layer's output that is left."""
        return self._share("macs")

    def _share(self, what: str) -> float:
        before, after = (
            sum(getattr(layer, f"{what}_{when}") for layer in self.layers.values())
            for when in ("before", "after")
        )
        return float(after / before)

    def table(self) -> pd.DataFrame:
        """A row for every layer."""
        rows = self.as_dict()["layers"]
        return as_frame([{"layer": path, **row} for path, row in rows.items()], "layer")

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        layers = {p: asdict(v) | {"share_lost": v.share_lost} for p, v in self.layers.items()}
        totals = {name: getattr(self, name) for name in ("params_kept", "macs_kept", "share_lost")}
        return {"method": self.method, **totals, "layers": layers, "left": dict(self.left)}

    def __str__(self) -> str:
        left = f", {len(self.left)} left as they are" if self.left else ""
        return (
            f"{len(self.layers)} layers steered by {self.method}{left}: {self.params_kept:.1%} of "
            f"their weights, {self.macs_kept:.1%} of their multiply-adds, "
            f"{self.share_lost:.2%} of their energy lost"
        )

    def __repr__(self) -> str:
        return f"SteerReport: {self}"
