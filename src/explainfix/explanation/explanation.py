"""explain: the spectrum of every spatial layer, and what is known about the layer beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..layers import Convolution, select_layers
from ..mixing.steered import is_dense
from ..recipe import recipe_of
from ..registry import bases, views
from ..untrained import is_untrained
from .advice import Advice, Zeroing, advise, zeroing_curve
from .basis import Basis, make_basis
from .saliency import Saliency, check_saliency
from .spectrum import Spectrum, chance, filters_needed, low_frequencies, reduced, spectrum

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SAMPLES = 24  # kernels kept per layer, for pictures
# What a file says beside the table and the steps of zeroing.
_ABOUT = ("basis", "weighted", "weighting", "title", "parameters", "skipped", "untrained")


@dataclass(frozen=True)
class Layer:
    """What is known about one layer beside its spectrum."""

    shape: tuple[int, ...]
    kernels: int
    parameters: int
    fixed_by: str | None
    saliency: float | None  # the sum over its kernels
    low_share: float  # the share of low frequencies in its energy
    low_chance: tuple[float, float]  # where random directions would put that, 95% of the time
    energy_chance: tuple[float, float]  # and one value of its spectrum
    needed: int  # the fewest filters of the basis that hold 95% of its energy
    steered: int | None  # its parameters with a learned 1x1 and these; of a dense layer only
    samples: Tensor | None  # some kernels, the most salient first, `(k, *shape)`


@dataclass(frozen=True, eq=False)
class Explanation(Mapping[str, Spectrum]):
    """Which frequencies and orientations every spatial layer uses: module path → `Spectrum`."""

    spectra: dict[str, Spectrum]
    layers: dict[str, Layer]
    totals: dict[tuple[int, ...], Spectrum]  # over all kernels of a shape in the model
    skipped: dict[str, str]
    bases: dict[tuple[int, ...], Basis]
    basis: str
    weighted: bool
    weighting: str
    title: str
    parameters: int
    zeroing: tuple[Zeroing, ...]
    untrained: bool = False  # the weights are random, as the model was built

    def __getitem__(self, path: str) -> Spectrum:
        return self.spectra[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.spectra)

    def __len__(self) -> int:
        return len(self.spectra)

    def share_of(self, path: str) -> float | None:
        """A layer's share of the saliency of all that are explained."""
        mine = self.layers[path].saliency
        return None if mine is None else mine / self.total_saliency

    @cached_property
    def total_saliency(self) -> float:
        """Of all layers, or 1 to divide by if there is none."""
        return sum(layer.saliency or 0.0 for layer in self.layers.values()) or 1.0

    def advice(self) -> list[Advice]:
        """What the spectra mean, and what to do about it, in words and numbers."""
        return advise(self)

    def table(self) -> pd.DataFrame:
        """A row per layer, keyed by module path: facts, shares, the spectrum `ed_0`, `ed_1`, …"""
        import pandas as pd

        rows = []
        for path, layer in self.layers.items():
            facts = {
                "layer": path,
                "kernel": "x".join(map(str, layer.shape)),
                "kernels": layer.kernels,
                "parameters": layer.parameters,
                "fixed_by": layer.fixed_by,
                "saliency": layer.saliency,
                "saliency_share": self.share_of(path),
                "low_share": layer.low_share,
                "low_chance_from": layer.low_chance[0],
                "low_chance_to": layer.low_chance[1],
                "energy_chance_from": layer.energy_chance[0],
                "energy_chance_to": layer.energy_chance[1],
                "filters_needed": layer.needed,
                "steered_parameters": layer.steered,
            }
            energies = {f"ed_{i}": value for i, value in enumerate(self[path].ed.tolist())}
            rows.append(facts | energies)
        frame = pd.DataFrame(rows).set_index("layer")
        floats = ("saliency", "saliency_share", "steered_parameters")
        return frame.astype(dict.fromkeys(floats, float))

    def plot(self, **options: Any) -> Figure:
        """The paper's heatmap as a matplotlib figure, for print."""
        figure: Figure = views.find("heatmap")(self, **options)
        return figure

    def to_html(
        self,
        path: str | Path,
        *,
        pruning: object | None = None,
        results: pd.DataFrame | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the page: one file to open in a browser, with no network.

        `pruning`, a `PruneReport`, adds what was removed from the network since; `results` any
        table, as it stands.
        """
        views.find("page")(self, path, pruning=pruning, results=results, overwrite=overwrite)

    def _repr_html_(self) -> str:
        return str(views.find("notebook")(self))

    def save(self, path: str | Path) -> None:
        """Write the table to a `.parquet` or `.csv` file, which `Explanation.load` reads."""
        path = Path(path)
        facts = {name: getattr(self, name) for name in _ABOUT}
        about = json.dumps(facts | {"zeroing": [asdict(step) for step in self.zeroing]})
        frame = self.table()
        if path.suffix == ".parquet":
            frame.attrs = {"explainfix": about}
            frame.to_parquet(path)
        elif path.suffix == ".csv":
            path.write_text(f"# {about}\n{frame.to_csv()}", encoding="utf-8")
        else:
            raise ValueError(f"{str(path)!r} must end in .parquet or .csv")

    @staticmethod
    def load(path: str | Path) -> Explanation:
        """Read what `save` wrote. Pictures of kernels are not in it."""
        import pandas as pd

        path = Path(path)
        try:
            if path.suffix == ".parquet":
                frame = pd.read_parquet(path)
                about = json.loads(frame.attrs["explainfix"])
            else:
                about = json.loads(path.read_text(encoding="utf-8").split("\n", 1)[0][2:])
                frame = pd.read_csv(path, skiprows=1, index_col="layer")
            return _from_table(frame, about)
        except (KeyError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{str(path)!r} holds no explanation ({error!r})") from None


def explain(
    model: nn.Module,
    *,
    saliency: Mapping[str, Tensor] | None = None,
    basis: str = "dct2",
    title: str | None = None,
) -> Explanation:
    """The spectrum of every spatial layer, weighted by `saliency` if it is given.

    A layer's e(d) is Σ wⱼ|F Bᵀ| over its kernels, with wⱼ the saliency, or 1/n. `basis` is "dct2",
    "haar" or "pca".

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1))
    >>> why = explain(model)
    >>> why["0"].ed.shape, why["0"].e0.shape
    (torch.Size([9]), torch.Size([3]))
    """
    bases.find(basis)
    layers = select_layers(model)
    if saliency is not None:
        check_saliency(saliency, layers)
    skipped: dict[str, str] = dict(saliency.skipped) if isinstance(saliency, Saliency) else {}
    made: dict[tuple[int, ...], Basis] = {}
    spectra: dict[str, Spectrum] = {}
    facts: dict[str, Layer] = {}
    for path, layer in layers.items():
        shape = tuple(layer.kernel_size)
        kernels = layer.weight.detach().flatten(0, 1)
        try:
            if saliency is not None and path not in saliency:
                raise ValueError("no saliency was given for it")
            if shape not in made:
                made[shape] = make_basis(basis, shape, partial(_own_kernels, layers, shape))
        except ValueError as reason:
            skipped.setdefault(path, str(reason))
            continue
        weights = None if saliency is None else saliency[path].flatten().to(kernels.device)
        energies = spectrum(kernels, made[shape], weights)
        if not energies.ed.isfinite().all():
            skipped[path] = "its weights are NaN or infinite"
            continue
        spectra[path] = energies
        facts[path] = _facts(layer, kernels, weights, made[shape], spectra[path])
    if not spectra:
        reasons = "; ".join(f"{path!r}: {why}" for path, why in list(skipped.items())[:3])
        raise ValueError(f"no layer could be explained: {reasons}")
    return Explanation(
        spectra=spectra,
        layers=facts,
        totals=_totals(spectra, facts, made, weighted=saliency is not None),
        skipped=skipped,
        bases=made,
        basis=basis,
        weighted=saliency is not None,
        weighting=_weighting(saliency),
        title=title or type(model).__name__,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        untrained=is_untrained(model),
        zeroing=() if saliency is None else zeroing_curve(
            {path: saliency[path] for path in spectra},
            {path: layer.shape for path, layer in facts.items()},
        ),
    )  # fmt: skip


def _own_kernels(layers: dict[str, Convolution], shape: tuple[int, ...]) -> Tensor:
    same = [layer for layer in layers.values() if tuple(layer.kernel_size) == shape]
    return torch.cat([layer.weight.detach().flatten(2).flatten(0, 1).cpu() for layer in same])


def _facts(
    layer: Convolution, kernels: Tensor, weights: Tensor | None, basis: Basis, energies: Spectrum
) -> Layer:
    recipe = recipe_of(layer)
    low = float(energies.ed[low_frequencies(basis)].sum() / energies.ed.sum().clamp(min=1e-300))
    band = chance(kernels, basis, weights)
    count, needed = len(kernels), filters_needed(kernels, basis, weights)
    if weights is None:  # spread over the layer
        chosen = torch.linspace(0, count - 1, min(_SAMPLES, count)).long()
    else:
        chosen = weights.topk(min(_SAMPLES, count)).indices
    return Layer(
        shape=energies.shape,
        kernels=count,
        parameters=layer.weight.numel(),
        fixed_by=recipe.method if recipe else None,
        saliency=None if weights is None else float(weights.sum()),
        low_share=low,
        low_chance=band.low_share,
        energy_chance=band.energy,
        needed=needed,
        steered=needed * (layer.in_channels * len(basis.rows) + count) if is_dense(layer) else None,
        samples=kernels[chosen].float().cpu(),
    )


def _totals(
    spectra: dict[str, Spectrum],
    facts: dict[str, Layer],
    made: dict[tuple[int, ...], Basis],
    *,
    weighted: bool,
) -> dict[tuple[int, ...], Spectrum]:
    """Over all kernels of a shape: a sum of weighted spectra, a mean over kernels of plain ones."""
    totals: dict[tuple[int, ...], Spectrum] = {}
    for shape in made:
        same = [path for path, layer in facts.items() if layer.shape == shape]
        if not same:
            continue
        count = sum(facts[path].kernels for path in same)
        parts = [spectra[p].ed * (1 if weighted else facts[p].kernels / count) for p in same]
        totals[shape] = reduced(torch.stack(parts).sum(0), made[shape])
    return totals


def _weighting(saliency: Mapping[str, Tensor] | None) -> str:
    if saliency is None:
        return "Not weighted: no data was given, so every kernel counts the same"
    if isinstance(saliency, Saliency):
        return f"Weighted by saliency over {saliency.batches} batch{'es' * (saliency.batches != 1)}"
    return "Weighted by the saliency given"


def _from_table(frame: pd.DataFrame, about: dict[str, Any]) -> Explanation:
    spectra: dict[str, Spectrum] = {}
    facts: dict[str, Layer] = {}
    made: dict[tuple[int, ...], Basis] = {}
    for path, row in frame.iterrows():
        shape = tuple(int(side) for side in str(row["kernel"]).split("x"))
        size = int(torch.tensor(shape).prod())
        if shape not in made:
            if about["basis"] == "pca":  # it is not in the file
                made[shape] = Basis(torch.zeros(size, *shape), None)
            else:
                made[shape] = make_basis(about["basis"], shape, lambda: torch.empty(0))
        ed = torch.tensor([float(row[f"ed_{i}"]) for i in range(size)], dtype=torch.float64)
        spectra[str(path)] = reduced(ed, made[shape])
        facts[str(path)] = Layer(
            shape=shape,
            kernels=int(row["kernels"]),
            parameters=int(row["parameters"]),
            fixed_by=row["fixed_by"] if isinstance(row["fixed_by"], str) else None,
            saliency=float(row["saliency"]) if about["weighted"] else None,
            low_share=float(row["low_share"]),
            low_chance=(float(row["low_chance_from"]), float(row["low_chance_to"])),
            energy_chance=(float(row["energy_chance_from"]), float(row["energy_chance_to"])),
            needed=int(row["filters_needed"]),
            steered=None if row.isna()["steered_parameters"] else int(row["steered_parameters"]),
            samples=None,
        )
    return Explanation(
        spectra=spectra,
        layers=facts,
        totals=_totals(spectra, facts, made, weighted=about["weighted"]),
        bases=made,
        zeroing=tuple(Zeroing(**step) for step in about["zeroing"]),
        **{name: about[name] for name in _ABOUT},
    )
