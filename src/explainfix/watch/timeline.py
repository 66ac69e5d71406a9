"""How the spectra of a network moved while it trained: what was seen from moment to moment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..explanation.basis import Basis, make_basis
from ..explanation.compare import as_change, spectral_distance
from ..explanation.spectrum import Spectrum, low_frequencies, reduced
from ..registry import Shown, views
from ..store import written
from ..table import as_frame

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1


@dataclass(frozen=True)
class Watched:
    """What is known about a layer beside its spectra, when it was last seen."""

    shape: tuple[int, ...]
    kernels: int
    fixed_by: str | None


@dataclass(frozen=True)
class Snapshot:
    """The spectra of all layers after so many epochs and steps."""

    epoch: int
    step: int
    ed: Mapping[str, Tensor]  # e(d) of each layer, low to high frequency
    chance: Mapping[str, tuple[float, float]]  # where one value of it would lie by chance
    changed: tuple[str, ...] = ()  # the fixed layers that are not as they were fixed

    @property
    def name(self) -> str:
        """The moment in words; a loop may count epochs, steps or both."""
        counted = [f"epoch {self.epoch}"] * bool(self.epoch) + [f"step {self.step}"] * bool(
            self.step
        )
        return ", ".join(counted) or "the start"


@dataclass(frozen=True, eq=False)
class Timeline(Shown):
    """The snapshots of a training, in order; the first is what drift is measured from.

    A layer that was not there at some moment, as it was added, cut away or had no weights yet, is
    not in that snapshot, and its drift is measured from the first that has it.
    """

    title: str
    basis: str
    layers: dict[str, Watched]
    snapshots: tuple[Snapshot, ...] = ()

    def added(self, snapshot: Snapshot, layers: Mapping[str, Watched]) -> Timeline:
        """The same and one snapshot more."""
        return replace(
            self, layers={**self.layers, **layers}, snapshots=(*self.snapshots, snapshot)
        )

    def until(self, epoch: int) -> Timeline:
        """Without what came after an epoch: for a training that goes on from there."""
        kept = tuple(seen for seen in self.snapshots if seen.epoch <= epoch)
        return replace(self, snapshots=kept)

    def spectrum(self, path: str, at: int = -1) -> Spectrum:
        """e(d), e(1) and e(0) of a layer in a snapshot, the last by default."""
        return reduced(self.snapshots[at].ed[path], self.bases[self.layers[path].shape])

    def shares(self, path: str) -> Tensor:
        """A layer's spectra as shares of their sums, `(snapshots, filters)`.

        NaN where the layer was not there, or had kernels of another size.
        """
        size = math.prod(self.layers[path].shape)
        missing = torch.full((size,), math.nan, dtype=torch.float64)
        found = [seen.ed.get(path, missing) for seen in self.snapshots]
        rows = torch.stack([ed if len(ed) == size else missing for ed in found])
        return rows / rows.sum(1, keepdim=True).clamp(min=1e-300)

    def drift(self, path: str) -> Tensor:
        """The share of a layer's energy that is elsewhere than at first, for each snapshot."""
        shares = self.shares(path)
        seen = shares.isfinite().all(1)
        first = shares[int(seen.int().argmax())]
        return (shares - first).abs().sum(1) / 2

    def low_share(self, path: str) -> Tensor:
        """The share of the low frequencies in a layer's energy, for each snapshot."""
        return self.shares(path)[:, low_frequencies(self.bases[self.layers[path].shape])].sum(1)

    @cached_property
    def bases(self) -> dict[tuple[int, ...], Basis]:
        """The basis for each kernel shape."""
        return {shape: basis_of(self.basis, shape) for shape in self._shapes}

    @property
    def _shapes(self) -> set[tuple[int, ...]]:
        return {layer.shape for layer in self.layers.values()}

    def metrics(self) -> dict[str, float]:
        """The last snapshot as trackers get it, by the names that docs/loop.md lists."""
        last = self.snapshots[-1]
        named: dict[str, float] = {}
        drifts = []
        for path, ed in last.ed.items():
            before = (seen.ed[path] for seen in self.snapshots if path in seen.ed)
            first = next(start for start in before if len(start) == len(ed))
            low = ed[low_frequencies(self.bases[self.layers[path].shape])].sum()
            drifts.append(spectral_distance(first, ed))
            name = path or "model"  # a model may itself be a layer, of path ""
            named[f"explainfix/drift/{name}"] = drifts[-1]
            named[f"explainfix/low_frequency_share/{name}"] = float(low / ed.sum().clamp(1e-300))
        named["explainfix/drift_mean"] = sum(drifts) / max(len(drifts), 1)
        named["explainfix/fixed_changed"] = float(len(last.changed))
        return named

    @property
    def verdict(self) -> str:
        """What moved most, and whether the fixed filters stayed."""
        ends = {path: float(self.drift(path)[-1]) for path in self.snapshots[-1].ed}
        finite = {path: value for path, value in ends.items() if math.isfinite(value)}
        most = max(finite, key=lambda path: finite[path], default=None)
        said = "No layer's spectrum is a number any more."
        if most is not None and finite[most] == 0:
            said = f"No spectrum of {_layers(len(ends))} moved."
        elif most is not None:
            said = f"{most or 'The model'} moved most: {as_change(finite[most])} of its energy."
        return f"{said} {self._about_fixed()}".strip()

    def _about_fixed(self) -> str:
        fixed = sum(layer.fixed_by is not None for layer in self.layers.values())
        moved = dict.fromkeys(path for seen in self.snapshots for path in seen.changed)
        if not fixed:
            return ""
        if moved:
            return f"{len(moved)} of {_layers(fixed, 'fixed ')} changed: {', '.join(moved)}."
        if fixed == 1:
            return "The one fixed layer stayed as it was fixed."
        return f"All {fixed} fixed layers stayed as they were fixed."

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it; what is no number is `None`."""
        return {
            "format": FORMAT,
            "title": self.title,
            "basis": self.basis,
            "layers": {
                path: {"kernel": list(on.shape), "kernels": on.kernels, "fixed_by": on.fixed_by}
                for path, on in self.layers.items()
            },
            "snapshots": [
                {
                    "epoch": seen.epoch,
                    "step": seen.step,
                    "changed": list(seen.changed),
                    "ed": {path: _finite(ed.tolist()) for path, ed in seen.ed.items()},
                    "chance": {path: _finite(band) for path, band in seen.chance.items()},
                }
                for seen in self.snapshots
            ],
        }

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Timeline:
        """What `as_dict` gave; a `ValueError` for anything else."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}, this explainfix reads {FORMAT}")
            line = Timeline(
                str(record["title"]),
                str(record["basis"]),
                {
                    path: Watched(tuple(on["kernel"]), on["kernels"], on["fixed_by"])
                    for path, on in record["layers"].items()
                },
                tuple(
                    Snapshot(
                        seen["epoch"],
                        seen["step"],
                        {path: _numbers(ed) for path, ed in seen["ed"].items()},
                        {path: (_number(a), _number(b)) for path, (a, b) in seen["chance"].items()},
                        tuple(seen["changed"]),
                    )
                    for seen in record["snapshots"]
                ),
            )
            if any(path not in line.layers for seen in line.snapshots for path in seen.ed):
                raise ValueError("a layer of a snapshot is not among the layers")
            line.bases  # noqa: B018 (raises for shapes that are none)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"this is no timeline of a training ({error!r})") from None
        return line

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write it to a `.json` file, which `Timeline.load` reads."""
        with written(Path(path), overwrite=overwrite) as temporary:
            temporary.write_text(json.dumps(self.as_dict(), allow_nan=False), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Timeline:
        """Read what `save` wrote, every number as it was."""
        try:
            return Timeline.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{str(path)!r}: {error}") from None

    def rows(self) -> list[dict[str, Any]]:
        """A row per snapshot and layer: its drift, its share of low frequencies, `ed_0`, …"""
        moved = {path: (self.drift(path), self.low_share(path)) for path in self.layers}
        return [
            {"epoch": seen.epoch, "step": seen.step, "layer": path}
            | {"drift": float(moved[path][0][i]), "low_share": float(moved[path][1][i])}
            | {f"ed_{k}": value for k, value in enumerate(ed.tolist())}
            for i, seen in enumerate(self.snapshots)
            for path, ed in seen.ed.items()
        ]

    def table(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        return as_frame(self.rows())

    def to_html(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the page with a slider over the snapshots: one file, no network."""
        views.find("timeline")(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        many = len(self.snapshots)
        count = f"{_layers(len(self.layers))}, {many} snapshot{'s' * (many != 1)}"
        return f"Timeline of {self.title} by {self.basis}: {count}\n{self.verdict}"


def basis_of(name: str, shape: tuple[int, ...]) -> Basis:
    """A basis that is the same at all times; the network's own axes would move with it."""
    if name == "pca":
        raise ValueError("principal axes move while a network trains: give 'dct2' or 'haar'")
    return make_basis(name, shape, lambda: torch.empty(0))


def _finite(values: Any) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _numbers(values: list[float | None]) -> Tensor:
    return torch.tensor([_number(value) for value in values], dtype=torch.float64)


def _layers(number: int, kind: str = "") -> str:
    return f"{number} {kind}layer{'' if number == 1 else 's'}"
