"""compare: two networks, or one before and after training: what changed, what should not."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..layers import spatial_layers
from ..marks.untrained import RANDOM
from ..recipe import changed_layers, recipes
from ..registry import Shown
from ..table import as_frame
from .explanation import Explanation, explain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LayerChange:
    """How one layer differs between two networks."""

    distance: float  # between the normalised spectra, 0 to 1: the share of energy that moved
    changed: int | None  # kernels that differ in any bit; `None` if the shapes differ
    kernels: int
    moved: float | None  # ‖after - before‖ / ‖before‖; infinite where there was nothing before

    @property
    def change(self) -> float:
        """How far its kernels moved; with other shapes, as after pruning, its energy."""
        return self.distance if self.moved is None else self.moved


@dataclass(frozen=True)
class Comparison(Shown):
    """Two networks side by side; `layers` has those that both have with the same kernel shape.

    The most changed come first.
    """

    before: Explanation
    after: Explanation
    layers: dict[str, LayerChange]
    not_compared: dict[str, str]  # layers of either network, and why
    not_fixed: dict[str, str]  # fixed layers that are not as they were fixed, and how
    unmarked: list[str]  # that are, and yet are no longer marked as fixed
    fixed: int

    @property
    def still_fixed(self) -> bool | None:
        """Whether the filters that should be fixed are; `None` if none should."""
        return None if not self.fixed else not self.not_fixed

    @property
    def changed(self) -> list[str]:
        """The layers that changed in any bit, or in shape; the most changed first."""
        return [path for path, change in self.layers.items() if change.changed != 0]

    @property
    def verdict(self) -> str:
        """Were the fixed filters really fixed, and what changed?"""
        return f"{self._about_fixed()} {self._about_changes()}"

    @property
    def warning(self) -> str | None:
        """What to know before anything else: that weights are random, in either or both."""
        sides = [why.title for why in (self.before, self.after) if why.untrained]
        if not sides:
            return None
        where = "both networks" if len(sides) == 2 else sides[0]
        return RANDOM.replace("Random weights", f"Random weights in {where}")

    def _about_fixed(self) -> str:
        if self.still_fixed is None:
            return "No layer is fixed in either network."
        if self.not_fixed:
            count = f"{len(self.not_fixed)} of {_layers(self.fixed, 'fixed ')}"
            listed = "; ".join(f"{path} ({why})" for path, why in self.not_fixed.items())
            return f"{count} {'is' if len(self.not_fixed) == 1 else 'are'} not as fixed: {listed}."
        lost = f", but {len(self.unmarked)} no longer marked as fixed" if self.unmarked else ""
        if self.fixed == 1:
            return f"The one fixed layer is as it was fixed{lost}."
        return f"All {self.fixed} fixed layers are as they were fixed{lost}."

    def _about_changes(self) -> str:
        many, changed = len(self.layers), self.changed
        if not many:
            return "They have no layer in common."
        if not changed:
            return f"No kernel of {_layers(many)} changed."
        most = self.layers[changed[0]]
        return (
            f"{len(changed)} of {_layers(many)} changed, most: {changed[0]} by "
            f"{as_change(most.change)}{' of its energy' if most.moved is None else ''}."
        )

    def broken(self, *, require_fixed: bool = False, max_change: float | None = None) -> list[str]:
        """What breaks these rules, a sentence each; nothing if they are kept."""
        said = []
        if require_fixed and not self.fixed:
            said.append("no layer is fixed in either network")
        if require_fixed:
            lost = dict.fromkeys(self.unmarked, "no longer marked as fixed")
            said += [f"{path}: {why}" for path, why in (self.not_fixed | lost).items()]
        if max_change is not None:
            said += [f"{path}: {why}" for path, why in self.not_compared.items()]
            said += [
                f"{path}: changed by {as_change(change.change)}, more than {max_change:.1%}"
                for path, change in self.layers.items()
                if not change.change <= max_change
            ]
        return said

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it; the most changed layer first."""
        rows = [
            {"layer": path, "change": change.change}
            | asdict(change)
            | {
                "low_share_before": self.before.layers[path].low_share,
                "low_share_after": self.after.layers[path].low_share,
                "fixed_by": self.fixed_by(path),
            }
            for path, change in self.layers.items()
        ]
        return {
            "before": self.before.title,
            "after": self.after.title,
            "warning": self.warning,
            "verdict": self.verdict,
            "still_fixed": self.still_fixed,
            "not_fixed": self.not_fixed,
            "unmarked": self.unmarked,
            "not_compared": self.not_compared,
            "layers": [{k: None if v == math.inf else v for k, v in row.items()} for row in rows],
        }

    def fixed_by(self, path: str) -> str | None:
        """The method that fixed a layer in either network."""
        return self.before.layers[path].fixed_by or self.after.layers[path].fixed_by

    def table(self) -> pd.DataFrame:
        """A row per layer, keyed by module path, the most changed first."""
        return as_frame(self.as_dict()["layers"], "layer")

    def __repr__(self) -> str:
        said = f"{self.warning}\n" if self.warning else ""
        return f"Comparison of {self.before.title} and {self.after.title}\n{said}{self.verdict}"


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
    >>> first[0].weight.data[:4] = second[0].weight.data[:4] = 1
    >>> difference = compare(first, second)
    >>> difference.layers["0"].changed
    12
    >>> first[0].weight.data[:] = second[0].weight.data
    >>> compare(first, second).verdict
    'No layer is fixed in either network. No kernel of 1 layer changed.'
    """
    first, second = spatial_layers(before), spatial_layers(after)
    one = explain(before, basis=basis, title=titles[0])
    other = explain(after, basis=basis, title=titles[1])
    changes = {
        path: _change(
            spectral_distance(one[path].ed, other[path].ed),
            first[path].weight,
            second[path].weight,
        )
        for path in one
        if path in other and one[path].shape == other[path].shape
    }
    wrong, unmarked, count = _fixed_changes(before, after)
    return Comparison(
        before=one,
        after=other,
        layers=dict(sorted(changes.items(), key=lambda item: -item[1].change)),
        not_compared={
            path: _why_not(one, other, path) for path in (first | second) if path not in changes
        },
        not_fixed=wrong,
        unmarked=unmarked,
        fixed=count,
    )


def _why_not(one: Explanation, other: Explanation, path: str) -> str:
    """Why a layer that one of them has is not compared."""
    for why in (one, other):
        if path in why.skipped:
            return f"{why.skipped[path]} in {why.title}"
    if path in one and path in other:
        sides = ("x".join(map(str, why[path].shape)) for why in (one, other))
        return "kernels {}, now {}".format(*sides)
    return f"only in {(one if path in one else other).title}"


def _fixed_changes(before: nn.Module, after: nn.Module) -> tuple[dict[str, str], list[str], int]:
    """The fixed layers that are not as they were fixed, those unmarked, the number of all."""
    fixed_before, fixed_after = recipes(before), recipes(after)
    wrong = {path: f"before: {why}" for path, why in changed_layers(before).items()}
    wrong |= changed_layers(after)
    unmarked = []
    first, layers = spatial_layers(before), spatial_layers(after)
    for path, recipe in fixed_before.items():
        other = fixed_after.get(path)
        if path not in layers:
            wrong.setdefault(path, "the layer is gone")
        elif other is not None and other.digest != recipe.digest:
            wrong.setdefault(path, f"fixed anew by {other.method!r}, seed {other.seed}")
        elif other is None and torch.equal(layers[path].weight.cpu(), first[path].weight.cpu()):
            unmarked.append(path)
        elif other is None:
            wrong.setdefault(path, "its kernels differ, and it is no longer marked as fixed")
    return wrong, [path for path in unmarked if path not in wrong], len(fixed_before | fixed_after)


def spectral_distance(one: Tensor, other: Tensor) -> float:
    """Half the sum of absolute differences of the two spectra, each normalised to one."""
    p, q = one / one.sum().clamp(min=1e-300), other / other.sum().clamp(min=1e-300)
    return float((p - q).abs().sum() / 2)


def as_change(share: float) -> str:
    """A change in words of few letters.

    >>> as_change(26.48), as_change(0.8312), as_change(0.0004), as_change(math.inf)
    ('2,648%', '83.1%', '0.04%', 'all, from zero')
    """
    if share == math.inf:
        return "all, from zero"
    if share >= 1:
        return f"{share:,.0%}"
    return f"{share:.1%}" if share >= 0.0995 or share == 0 else f"{100 * share:.2g}%"


def _change(distance: float, before: Tensor, after: Tensor) -> LayerChange:
    kernels = before.shape[0] * before.shape[1]
    if before.shape != after.shape:
        return LayerChange(distance, None, kernels, None)
    one, other = before.detach().cpu().double(), after.detach().cpu().double()
    size, step = float(one.norm()), float((other - one).norm())
    moved = step / size if size else math.inf if step else 0.0
    return LayerChange(distance, int((one != other).flatten(2).any(2).sum()), kernels, moved)


def _layers(number: int, kind: str = "") -> str:
    return f"{number} {kind}layer{'' if number == 1 else 's'}"
