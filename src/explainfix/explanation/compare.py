"""compare: two networks, or one before and after training: what changed, what should not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..layers import spatial_layers
from ..recipe import changed_layers, recipes
from .explanation import Explanation, explain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LayerChange:
    """How one layer differs between two networks."""

    distance: float  # between the normalised spectra, 0 to 1: the share of energy that moved
    changed: int | None  # kernels that differ in any bit; `None` if the shapes differ
    kernels: int
    moved: float | None  # ‖after - before‖ / ‖before‖


@dataclass(frozen=True)
class Comparison:
    """Two networks side by side; `layers` has those that both have with the same kernel shape."""

    before: Explanation
    after: Explanation
    layers: dict[str, LayerChange]
    only_before: list[str]
    only_after: list[str]
    not_fixed: dict[str, str]  # fixed layers that changed, and how
    fixed: int

    @property
    def still_fixed(self) -> bool | None:
        """Whether the filters that should be fixed are; `None` if none should."""
        return None if not self.fixed else not self.not_fixed

    @property
    def answer(self) -> str:
        """Were the fixed filters really fixed? Yes, or the list."""
        if self.still_fixed is None:
            return "No filters are fixed in either network."
        if self.still_fixed:
            return f"Yes: the filters of all {self.fixed} fixed layers are as they were fixed."
        listed = "; ".join(f"{path} ({why})" for path, why in self.not_fixed.items())
        return f"No: {len(self.not_fixed)} of {self.fixed} fixed layers changed: {listed}."

    def table(self) -> pd.DataFrame:
        """A row per layer, keyed by module path."""
        import pandas as pd

        rows = [
            {
                "layer": path,
                "kernels": change.kernels,
                "changed": change.changed,
                "moved": change.moved,
                "distance": change.distance,
                "low_share_before": self.before.layers[path].low_share,
                "low_share_after": self.after.layers[path].low_share,
                "fixed_by": self.before.layers[path].fixed_by or self.after.layers[path].fixed_by,
            }
            for path, change in self.layers.items()
        ]
        return pd.DataFrame(rows).set_index("layer") if rows else pd.DataFrame()


def compare(
    before: nn.Module,
    after: nn.Module,
    *,
    basis: str = "dct2",
    titles: tuple[str, str] = ("before", "after"),
) -> Comparison:
    """Compare two networks layer by layer, by module path.

    >>> first = nn.Sequential(nn.Conv2d(3, 8, 3))
    >>> second = nn.Sequential(nn.Conv2d(3, 8, 3))
    >>> difference = compare(first, second)
    >>> difference.layers["0"].changed, difference.answer
    (24, 'No filters are fixed in either network.')
    """
    first, second = spatial_layers(before), spatial_layers(after)
    one = explain(before, basis=basis, title=titles[0])
    other = explain(after, basis=basis, title=titles[1])
    layers = {
        path: _change(
            spectral_distance(one[path].ed, other[path].ed),
            first[path].weight,
            second[path].weight,
        )
        for path in one
        if path in other and one[path].shape == other[path].shape
    }
    wrong, count = _fixed_changes(before, after)
    return Comparison(
        before=one,
        after=other,
        layers=layers,
        only_before=[path for path in one if path not in layers],
        only_after=[path for path in other if path not in layers],
        not_fixed=wrong,
        fixed=count,
    )


def _fixed_changes(before: nn.Module, after: nn.Module) -> tuple[dict[str, str], int]:
    """The fixed layers that are not as they were fixed, and the number of all fixed layers."""
    fixed_before, fixed_after = recipes(before), recipes(after)
    wrong = {path: f"before: {why}" for path, why in changed_layers(before).items()}
    wrong |= changed_layers(after)
    layers = spatial_layers(after)
    for path, recipe in fixed_before.items():
        other = fixed_after.get(path)
        if path not in layers:
            wrong.setdefault(path, "the layer is gone")
        elif other is not None and other.digest != recipe.digest:
            wrong.setdefault(path, f"fixed anew by {other.method!r}, seed {other.seed}")
        elif other is None and not torch.equal(
            layers[path].weight.cpu(), spatial_layers(before)[path].weight.cpu()
        ):
            wrong.setdefault(path, "its kernels differ, and it is no longer marked as fixed")
    return wrong, len(fixed_before | fixed_after)


def spectral_distance(one: Tensor, other: Tensor) -> float:
    """Half the sum of absolute differences of the two spectra, each normalised to one."""
    p, q = one / one.sum().clamp(min=1e-300), other / other.sum().clamp(min=1e-300)
    return float((p - q).abs().sum() / 2)


def _change(distance: float, before: Tensor, after: Tensor) -> LayerChange:
    kernels = before.shape[0] * before.shape[1]
    if before.shape != after.shape:
        return LayerChange(distance, None, kernels, None)
    one, other = before.detach().cpu().double(), after.detach().cpu().double()
    differs = (one != other).flatten(2).any(2)
    moved = float((other - one).norm() / one.norm().clamp(min=1e-300))
    return LayerChange(distance, int(differs.sum()), kernels, moved)
