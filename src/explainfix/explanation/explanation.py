"""explain: the spectrum of every spatial layer, and what is known about the layer beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..layers import Convolution, select_layers
from ..marks.untrained import RANDOM, is_untrained
from ..mixing.steered import is_dense
from ..recipe import recipe_of
from ..registry import Shown, bases, views
from .advice import Advice, Zeroing, advise, zeroing_curve
from .basis import Basis, make_basis
from .saliency import Saliency, check_saliency
from .spectrum import Spectrum, chance, filters_needed, low_frequencies, reduced, spectrum

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SAMPLES = 24  # kernels kept per layer, for pictures
# What a file says beside the layers and the steps of zeroing.
ABOUT = ("basis", "weighted", "weighting", "title", "parameters", "skipped", "untrained")


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
    samples: Tensor | None = field(
        repr=False
    )  # some kernels, the most salient first, `(k, *shape)`


@dataclass(frozen=True, eq=False)
class Explanation(Shown, Mapping[str, Spectrum]):
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

    def as_dict(self) -> dict[str, Any]:
        """All but the pictures of kernels, as JSON can hold it."""
        layers = [
            {
                "layer": path,
                "kernel": list(layer.shape),
                "kernels": layer.kernels,
                "parameters": layer.parameters,
                "fixed_by": layer.fixed_by,
                "saliency": layer.saliency,
                "saliency_share": self.share_of(path),
                "low_share": layer.low_share,
                "low_chance": list(layer.low_chance),
                "energy_chance": list(layer.energy_chance),
                "filters_needed": layer.needed,
                "steered_parameters": layer.steered,
                "ed": self[path].ed.tolist(),
            }
            for path, layer in self.layers.items()
        ]
        about = {name: getattr(self, name) for name in ABOUT}
        return about | {"zeroing": [asdict(step) for step in self.zeroing], "layers": layers}

    def table(self) -> pd.DataFrame:
        """A row per layer, keyed by module path: facts, shares, the spectrum `ed_0`, `ed_1`, …"""
        from .file import as_table

        return as_table(self)

    def plot(self, **options: Any) -> Figure:
        """The paper's heatmap as a matplotlib figure, which a notebook shows."""
        figure: Figure = views.find("heatmap")(self, **options)
        return figure

    def to_html(
        self,
        path: str | Path,
        *,
        pruning: object | None = None,
        story: object | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the page: one file to open in a browser, with no network.

        `pruning`, a `PruneReport`, adds what was removed from the network since; `story`, a
        `report.story.Story`, tells about it and others first, in chapters.
        """
        views.find("page")(self, path, pruning=pruning, story=story, overwrite=overwrite)

    def __repr__(self) -> str:
        kernels = sum(layer.kernels for layer in self.layers.values())
        return (
            f"Explanation of {self.title} by {self.basis}: {len(self)} spatial layers, "
            f"{kernels:,} kernels\n{self.weighting}" + f"\n{RANDOM}" * self.untrained
        )

    def save(self, path: str | Path) -> None:
        """Write it to a `.json`, `.parquet` or `.csv` file, which `Explanation.load` reads."""
        from .file import write_explanation

        write_explanation(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Explanation:
        """Read what `save` wrote, every number as it was. Pictures of kernels are not in it."""
        from .file import read_explanation

        return read_explanation(Path(path))


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
        totals=sum_up(spectra, facts, made, weighted=saliency is not None),
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


def sum_up(
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
    if isinstance(saliency, Saliency) and not saliency.batches:
        return f"Weighted by {saliency.kind}"
    if isinstance(saliency, Saliency):
        return f"Weighted by saliency over {saliency.batches} batch{'es' * (saliency.batches != 1)}"
    return "Weighted by the saliency given"
