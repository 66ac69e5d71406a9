"""filters: what the bases and the six initialisations look like, and whether they do as said."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...explanation import explain
from ...explanation.basis import make_basis
from ...explanation.spectrum import spectrum
from ...filters.dct2 import dct_basis, frequency_order
from ...fix import fix_
from ...lab.measure.statistics import mean_interval
from ...lab.run.folder import Run
from ...report.sheets import psine_of
from ...zoo import create_model
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import LABELS
from ..pretrained import find_pretrained, missing_note
from ..setting import Setting
from ..verdicts import above, compare_paired, every
from .filters_figures import draw_sheets, plot_spectra

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

METHODS = ("ones", "dct2", "unchanged", "ghaar", "psine")
SIZES = (3, 5)
KERNELS = 3600  # of each size and seed: a multiple of 9 and of 25
EVEN = 0.01  # of an even share: what is nearer is flat
MOVED = 0.05  # the share of a layer's energy that may lie elsewhere
ENOUGH = 64  # a layer with fewer kernels than this says little about its distribution
STEERINGS = (((13, 6), (1, 6)), ((41, 20), (2, 20)))  # full and degenerate: (ℓ, max p)

ONE_BASIS = (
    "GuidedSteer has one basis for all layers of a kernel shape and draws its coefficients "
    "independently, as the paper's algorithm says: where a layer's coefficients depend on each "
    "other, its spectrum moves."
)

CLAIMS = (
    Claim(
        "order",
        "The DCT-II basis filters are numbered from the lowest to the highest frequency.",
        "Fig. F.1",
        "For 3x3 and 5x5: agrees if the basis is orthonormal within 1e-12, equals SciPy's "
        "orthonormal DCT-II, and the total frequency never falls from one number to the next; "
        "disagrees otherwise.",
    ),
    Claim(
        "haar",
        "GHaar's basis at f = 1 is the Haar basis for 2x2 kernels.",
        "Fig. 3",
        "Agrees if the three products of a = 1 and b = cos(x), each of unit norm, equal the three "
        "2x2 Haar wavelets within 1e-12, up to sign; disagrees otherwise.",
    ),
    Claim(
        "low",
        "GHaar and Psine prioritise low frequencies.",
        "GHaar, Psine: low first",
        "The mean total frequency of a method's kernels, weighted by e(2), less that of an even "
        "spread (2 for 3x3, 4 for 5x5), over seeds. Agrees if the 95% t interval lies below 0 for "
        "both methods and both sizes, disagrees if one lies above 0, else undecided.",
    ),
    Claim(
        "flat",
        "DCT2 spreads its energy evenly over the basis.",
        "a flat heatmap",
        f"Agrees if every basis filter's share of e(2) is within {EVEN:.0%} of an even share, for "
        "3x3 and 5x5 and every seed; disagrees otherwise.",
    ),
    Claim(
        "guided",
        "GuidedSteer has the spectrum of its guide.",
        "exactly like its guide",
        f"Over the layers with at least {ENOUGH} kernels: the share of e(2) that lies elsewhere "
        f"than the guide's. Agrees if the largest over seeds is below {MOVED:.0%}, disagrees if "
        f"the median is above, else undecided.",
    ),
    Claim(
        "degenerate",
        "Psine steers the full space if ℓ ≥ 2 max(p) + 1; other filters are degenerate.",
        "Fig. 5",
        "The effective rank of a filter as a 20x20 matrix (participation of its squared singular "
        "values), full less degenerate, over seeds, for the two pairs drawn. Agrees if both 95% t "
        "intervals lie above 0, disagrees if one lies below, else undecided.",
    ),
)


def train(setting: Setting) -> dict[str, Run]:
    """Filters are drawn, not trained."""
    return {}


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Draw every figure and check what can be counted."""
    seeds = range(setting.pick(smoke=2, cpu=10, paper=10))
    shares = {
        (method, size): np.stack([draw_spectrum(method, size, seed) for seed in seeds])
        for method in METHODS
        for size in SIZES
    }
    guide, guide_name = open_guide(setting)
    moved = np.stack([guided_distances(guide, seed) for seed in seeds])
    return Outcome(
        verdicts={
            "order": judge_order(),
            "haar": judge_haar(),
            "low": judge_low(shares),
            "flat": judge_flat(shares),
            "guided": judge_guided(moved),
            "degenerate": judge_degenerate(seeds, count=setting.pick(smoke=20, cpu=200, paper=200)),
        },
        tables={"Mean total frequency of a method's kernels": frequency_table(shares)},
        figures=draw_sheets(guide, guide_name)
        | {
            "Share of energy e(2) of each basis filter, low to high frequency; mean over seeds. "
            "Dashed: an even spread": plot_spectra(shares)
        },
        notes=notes(setting, guide_name, len(seeds)),
    )


def draw_spectrum(method: str, size: int, seed: int) -> Array:
    """e(2) of a layer of that method, as shares; Unchanged is PyTorch's own initialisation."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        layer = nn.Conv2d(60, KERNELS // 60, size)
    fix_(nn.Sequential(layer), method, seed=seed)
    kernels = layer.weight.detach().flatten(0, 1).double()
    basis = make_basis("dct2", (size, size), lambda: kernels)
    energies = spectrum(kernels, basis).ed
    return np.asarray(energies / energies.sum())


def mean_frequency(shares: Array, size: int) -> Array:
    """The mean total frequency of spectra `(..., size²)` that sum to one."""
    total = np.array([sum(frequency) for frequency in frequency_order((size, size))], float)
    found: Array = shares @ total
    return found


def judge_order() -> Verdict:
    """Numbers against frequencies, and the basis against SciPy's."""
    from scipy.fft import dctn

    falls, off = 0, 0.0
    for size in SIZES:
        basis, order = dct_basis((size, size)), frequency_order((size, size))
        rows = basis.reshape(size * size, -1)
        off = max(off, float(np.abs(rows @ rows.T - np.eye(len(rows))).max()))
        for filter_, frequency in zip(basis, order, strict=True):
            expected = np.zeros((size, size))
            expected[frequency] = 1
            off = max(off, float(np.abs(dctn(filter_, norm="ortho") - expected).max()))
        totals = [sum(frequency) for frequency in order]
        falls += sum(after < before for before, after in pairwise(totals))
    word: Word = "agrees" if not falls and off < 1e-12 else "disagrees"
    return Verdict(word, f"{falls} falls; off by {off:.0e} at most")


def judge_haar() -> Verdict:
    """GHaar's products for two points against the Haar wavelets."""
    a, b = np.ones(2), np.cos(np.linspace(0, np.pi, 2))
    ours = [product / np.linalg.norm(product) for product in map(np.outer, (b, a, b), (a, b, b))]
    haar = make_basis("haar", (2, 2), lambda: torch.empty(0, 4)).filters.numpy()[1:]
    off = max(
        min(float(np.abs(sign * one - other).max()) for other in haar for sign in (1, -1))
        for one in ours
    )
    return Verdict("agrees" if off < 1e-12 else "disagrees", f"off by {off:.0e} at most")


def judge_low(shares: Mapping[tuple[str, int], Array]) -> Verdict:
    """Where the energy's centre lies, against the middle."""
    words: list[Word] = []
    said = []
    for method in ("ghaar", "psine"):
        for size in SIZES:
            below = mean_interval((size - 1) - mean_frequency(shares[method, size], size))
            words.append(above(below))
            said.append(f"{LABELS[method]} {size}x{size} {-below.mean:+.2f}")
    return Verdict(every(words), ", ".join(said))


def judge_flat(shares: Mapping[tuple[str, int], Array]) -> Verdict:
    """The largest deviation of DCT2 from an even share, in even shares."""
    off = max(float(np.abs(shares["dct2", size] * size**2 - 1).max()) for size in SIZES)
    return Verdict("agrees" if off < EVEN else "disagrees", f"off by {off:.1%} at most")


def judge_guided(moved: Array) -> Verdict:
    """Distances `(seeds, layers)` between the spectra of GuidedSteer and of its guide."""
    largest, median = float(moved.max()), float(np.median(moved))
    word: Word = "agrees" if largest < MOVED else "undecided" if median < MOVED else "disagrees"
    return Verdict(word, f"{median:.1%} elsewhere, at most {largest:.1%}")


def judge_degenerate(seeds: range, *, count: int) -> Verdict:
    """The ranks of Psine filters with and without enough terms."""
    words: list[Word] = []
    said = []
    for full, degenerate in STEERINGS:
        ranks = [
            [float(effective_rank(psine_of(*steering, count, seed)).mean()) for seed in seeds]
            for steering in (full, degenerate)
        ]
        found = compare_paired(*ranks)
        words.append(above(found.interval))
        said.append(f"{np.mean(ranks[0]):.1f} against {np.mean(ranks[1]):.1f}")
    return Verdict(every(words), "rank " + ", ".join(said))


def effective_rank(filters: Array) -> Array:
    """(Σs²)² / Σs⁴ of each matrix: k if k singular values are equal and the others nought.

    >>> effective_rank(np.stack([np.eye(4), np.ones((4, 4))])).round(6).tolist()
    [4.0, 1.0]
    """
    squares = np.linalg.svd(filters, compute_uv=False) ** 2
    found: Array = squares.sum(-1) ** 2 / (squares**2).sum(-1)
    return found


def open_guide(setting: Setting) -> tuple[nn.Module, str]:
    """A network trained on ImageNet if there is one, and what it is."""
    if setting.scale == "paper":
        return create_model("torchvision:densenet121", weights="pretrained"), "DenseNet121"
    found = find_pretrained("MobileNetV2") if setting.scale == "cpu" else {}
    if found:
        return found["MobileNetV2"], "MobileNetV2"
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)
        return create_model("torchvision:mobilenet_v2"), ""


def guided_distances(guide: nn.Module, seed: int) -> Array:
    """Per layer, the share of e(2) that GuidedSteer has elsewhere than its guide."""
    before = explain(guide)
    steered = copy.deepcopy(guide)
    fix_(steered, "guidedsteer", seed=seed, guide=guide)
    after = explain(steered)
    large = [path for path, layer in before.layers.items() if layer.kernels >= ENOUGH]
    return np.array([spectral_distance(before[path].ed, after[path].ed) for path in large])


def spectral_distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The share of energy that two spectra have in different places, 0 to 1."""
    return float((one / one.sum() - other / other.sum()).abs().sum() / 2)


def frequency_table(shares: Mapping[tuple[str, int], Array]) -> pd.DataFrame:
    """A row per method: where the centre of its energy lies."""
    import pandas as pd

    rows = []
    even = {("an even spread", size): np.full((2, size**2), 1 / size**2) for size in SIZES}
    for method in (*METHODS, "an even spread"):
        row: dict[str, object] = {"method": LABELS.get(method, method)}
        for size in SIZES:
            spread = {**shares, **even}[method, size]
            row[f"{size}x{size}"] = _mean(mean_frequency(spread, size))
            varying = spread[:, 1:].sum(1, keepdims=True)
            row[f"{size}x{size}, but for the constant filter"] = (
                _mean(mean_frequency(spread / varying, size)) if varying.min() > 1e-6 else "–"
            )
        rows.append(row)
    return pd.DataFrame(rows)


def _mean(values: Array) -> str:
    found = mean_interval(values)
    return f"{found.mean:.2f} ± {found.high - found.mean:.2f}"


def notes(setting: Setting, guide_name: str, seeds: int) -> list[str]:
    """What differs from the paper."""
    said = [
        f"{seeds} seeds of {KERNELS:,} kernels each. Ones has all its energy in filter 0 and is "
        "not drawn. Psine's kernels have zero mean, so it has nothing there.",
        "GHaar shares one frequency among its three products, as the paper's results do; DCT-II is "
        "the orthonormal one, where the paper's formula has 2π/N for π/N.",
    ]
    if setting.scale == "cpu":
        said += missing_note(find_pretrained("MobileNetV2"), "MobileNetV2")
        said.append("The guide of the paper is a DenseNet121 trained on ImageNet.")
    if guide_name:
        said.append(ONE_BASIS)
    else:
        said.append("GuidedSteer is guided by an untrained MobileNetV2: its filters are noise.")
    return said


register(
    Experiment(
        name="filters",
        title="Bases and initialisations, drawn and counted",
        reference="Figs. 3 to 7, App. F and J",
        claims=CLAIMS,
        cost={"smoke": "5 s", "cpu": "20 s", "paper": "1 min and a download"},
        train=train,
        judge=judge,
    )
)
