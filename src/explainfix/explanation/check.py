"""check: is a network fit to be used? For continuous integration: no data, no forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ..layers import Convolution, matching, select_layers
from ..marks.untrained import RANDOM, is_untrained
from ..recipe import changed_layers, recipe_of
from ..registry import Shown, unknown
from ..table import as_frame
from .basis import Basis, make_basis
from .compare import spectral_distance
from .explanation import Explanation
from .spectrum import spectrum

if TYPE_CHECKING:
    import pandas as pd

Check = Literal["dead", "idle", "fixed", "drift"]


@dataclass(frozen=True)
class Thresholds:
    """What a layer may show before its check fails."""

    idle: float = 0.5  # the share of its kernels that may be idle
    idle_norm: float = 1e-3  # a kernel is idle below this, relative to the layer's mean norm
    drift: float = 0.1  # the share of its energy that may be at other frequencies than before
    ignore: Sequence[str] = ()  # layers to leave out, by path or pattern (`*`, `?`)

    def __post_init__(self) -> None:
        for name in ("idle", "idle_norm", "drift"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"the threshold {name!r} must be a number, not {value!r}")
            if not 0 <= value <= 1:
                raise ValueError(f"the threshold {name!r} must lie from 0 to 1, not {value}")
        patterns = self.ignore
        if isinstance(patterns, str) or not all(isinstance(word, str) for word in patterns):
            raise ValueError(f"'ignore' must be a list of layers, not {patterns!r}")

    @staticmethod
    def of(given: Mapping[str, Any]) -> Thresholds:
        """Those given by name, as in a file; the others are the defaults.

        >>> Thresholds.of({"drfit": 0.2})
        Traceback (most recent call last):
        ValueError: unknown threshold 'drfit': did you mean 'drift'?
        """
        names = [field.name for field in fields(Thresholds)]
        for name in given:
            if name not in names:
                raise unknown("threshold", name, names)
        return Thresholds(**given)


@dataclass(frozen=True)
class Finding:
    """One check of one layer: what was found, and the threshold it was held against."""

    check: Check
    layer: str
    ok: bool
    text: str
    figure: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class CheckReport(Shown):
    """What `check` found, in the order of the layers."""

    title: str
    findings: tuple[Finding, ...]
    untrained: bool = False  # the weights are random, as the model was built

    @property
    def failures(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.ok)

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def verdict(self) -> str:
        """How many of each check passed.

        >>> found = (Finding("dead", "0", True, ""), Finding("idle", "0", False, ""))
        >>> CheckReport("a network", found).verdict
        '1 of 2 checks failed (dead 0 of 1, idle 1 of 1).'
        """
        counts: dict[str, list[bool]] = {}
        for finding in self.findings:
            counts.setdefault(finding.check, []).append(finding.ok)
        if self.ok:
            parts = ", ".join(f"{name} {len(passed)}" for name, passed in counts.items())
            return f"All {len(self.findings)} checks passed ({parts})."
        parts = ", ".join(
            f"{name} {passed.count(False)} of {len(passed)}" for name, passed in counts.items()
        )
        return f"{len(self.failures)} of {len(self.findings)} checks failed ({parts})."

    def table(self) -> pd.DataFrame:
        """A row per check and layer."""
        return as_frame([asdict(finding) for finding in self.findings])

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {
            "title": self.title,
            "ok": self.ok,
            "untrained": self.untrained,
            "verdict": self.verdict,
            "failures": [asdict(finding) for finding in self.failures],
            "findings": [asdict(finding) for finding in self.findings],
        }

    def __repr__(self) -> str:
        return f"Check of {self.title}: {self.verdict}" + f"\n{RANDOM}" * self.untrained


def check(
    model: nn.Module,
    *,
    baseline: Explanation | None = None,
    thresholds: Thresholds | None = None,
    title: str | None = None,
) -> CheckReport:
    """Look for dead layers, idle kernels, fixed filters that moved, and drift of the spectra.

    Drift is held against `baseline`, an explanation of the network as it should be, made without
    data. Layers that are missing, or no longer fixed as they were in it, are found too.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    >>> check(model).ok
    True
    >>> _ = model[1].weight.data.zero_()
    >>> check(model).failures[0].text
    'all 64 kernels are zero'
    """
    limits = thresholds or Thresholds()
    layers = select_layers(model)
    gone = [] if baseline is None else [path for path in baseline if path not in layers]
    known = dict.fromkeys([*layers, *gone])
    if limits.ignore:
        ignored = matching(known, limits.ignore, "layer to ignore")
        known = {path: None for path in known if path not in ignored}
    moved = changed_layers(model)
    spectra = None if baseline is None else _Spectra(baseline)
    found: list[Finding] = []
    for path in known:
        if path in gone:
            text = "in the baseline, not in this network"
            found.append(Finding("drift", path, False, text))
            continue
        layer = layers[path]
        norms = _norms(layer)
        alive = _dead(path, norms)
        found.append(alive)
        if alive.ok:
            found.append(_idle(path, norms, limits))
        found += _fixed(path, layer, moved, baseline)
        if alive.ok and spectra is not None:
            found.append(spectra.drift(path, layer, limits))
    return CheckReport(title or type(model).__name__, tuple(found), is_untrained(model))


def _norms(layer: Convolution) -> Tensor:
    """Of its kernels: all that the checks of one layer need, in one pass over its weights."""
    kernels = layer.weight.detach().flatten(2).flatten(0, 1)
    if not (kernels.is_floating_point() or kernels.is_complex()):
        kernels = kernels.double()
    wide = torch.complex128 if kernels.is_complex() else torch.float64
    norms: Tensor = torch.linalg.vector_norm(kernels, dim=1, dtype=wide)
    return norms.cpu()


def _dead(path: str, norms: Tensor) -> Finding:
    wrong = len(norms) - int(norms.isfinite().sum())
    if wrong:
        text = f"{wrong:,} of {len(norms):,} kernels have NaN or infinite weights"
        return Finding("dead", path, False, text, wrong / len(norms), 0.0)
    if not norms.any():
        return Finding("dead", path, False, f"all {len(norms):,} kernels are zero", 1.0, 0.0)
    return Finding("dead", path, True, "alive", 0.0, 0.0)


def _idle(path: str, norms: Tensor, limits: Thresholds) -> Finding:
    share = float((norms <= limits.idle_norm * norms.mean()).double().mean())
    text = f"{share:.4g} of its kernels idle, {limits.idle:g} allowed"
    return Finding("idle", path, share <= limits.idle, text, share, limits.idle)


def _fixed(
    path: str, layer: Convolution, moved: Mapping[str, str], baseline: Explanation | None
) -> Iterator[Finding]:
    """Only of layers that are fixed, or were in the baseline."""
    recipe = recipe_of(layer)
    before = baseline.layers[path].fixed_by if baseline and path in baseline else None
    if path in moved:
        yield Finding("fixed", path, False, moved[path])
    elif before and not recipe:
        yield Finding("fixed", path, False, f"fixed by {before!r} in the baseline, not fixed now")
    elif recipe and before and before != recipe.method:
        text = f"fixed by {before!r} in the baseline, by {recipe.method!r} now"
        yield Finding("fixed", path, False, text)
    elif recipe:
        yield Finding("fixed", path, True, f"as fixed by {recipe.method!r}")


class _Spectra:
    """The spectra of a baseline, to hold layers against."""

    def __init__(self, baseline: Explanation) -> None:
        if baseline.weighted:
            raise ValueError(
                "the baseline was made with data, by which kernels count; a check looks at the "
                "filters alone: explain the network without data for it"
            )
        if baseline.basis == "pca":
            raise ValueError(
                "the baseline has the network's own principal axes for a basis, which differ from "
                "network to network: explain it by 'dct2' or 'haar'"
            )
        self.baseline = baseline
        self.bases: dict[tuple[int, ...], Basis] = {}

    def drift(self, path: str, layer: Convolution, limits: Thresholds) -> Finding:
        shape = tuple(layer.kernel_size)
        if path not in self.baseline:
            return Finding("drift", path, False, "not in the baseline")
        if self.baseline[path].shape != shape:
            was, now = ("x".join(map(str, sides)) for sides in (self.baseline[path].shape, shape))
            return Finding("drift", path, False, f"kernels are {now}, {was} in the baseline")
        if shape not in self.bases:
            self.bases[shape] = make_basis(self.baseline.basis, shape, lambda: torch.empty(0))
        kernels = layer.weight.detach().flatten(0, 1)
        distance = spectral_distance(
            spectrum(kernels, self.bases[shape]).ed, self.baseline[path].ed
        )
        text = f"{distance:.4g} of its energy at other frequencies, {limits.drift:g} allowed"
        return Finding("drift", path, distance <= limits.drift, text, distance, limits.drift)
