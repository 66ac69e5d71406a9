"""filters: what the bases and the six initialisations look like, and whether they do as said."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from ...explanation.basis import make_basis
from ...explanation.spectrum import spectrum
from ...filters.dct2 import dct_basis, frequency_order
from ...fix import fix_
from ...lab.measure.statistics import mean_interval
from ...lab.run.folder import Run
from ...layers import spatial_layers
from ...report import sheets
from ...zoo import create_model
from ..contrast import Measure, Scores, mean_of, pick, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, LABELS, Figure, frame_pictures, new_figure, tidy
from ..networks import create_seeded, find_pretrained, missing_note
from ..scores import Array
from ..setting import Setting
from ..spectral import GUIDED, JOINT, above_even, guided_scores, mean_frequency
from ..verdict import InWords, Verdict, decide

Shares = Mapping[tuple[str, int], Array]  # of energy, by method and size: `(seeds, size²)`

METHODS = ("ones", "dct2", "unchanged", "ghaar", "psine")
SIZES = (3, 5)
KERNELS = 3600  # of each size and seed: a multiple of 9 and of 25
EVEN = 0.01  # of an even share: what is nearer is flat
EXACT = 1e-12  # what is nearer is the same
STEERINGS = (((13, 6), (1, 6)), ((41, 20), (2, 20)))  # full and degenerate: (ℓ, max p)

FREQUENCY = Measure(
    "the mean total frequency of a method's kernels, weighted by e(2) without the constant filter, "
    "less that of an even spread over the other filters",
    words={"name": "method and size", "number": "seed"},
)
RANK = Measure(
    "the effective rank of a filter as a 20x20 matrix (participation of its squared singular "
    "values), full less degenerate",
    words={"name": "pair", "number": "seed"},
)
LOW = (FREQUENCY.each("GHaar and Psine") < 0).for_every("name")
DEGENERATE = (RANK.each("the pairs drawn") > 0).for_every("name")


def judge_low(scores: Scores) -> Verdict:
    """Where the energy's centre lies, against the middle."""
    names = dict.fromkeys(key.name for key in scores)
    said = ", ".join(f"{name} {mean_of(scores, name=name):+.2f}" for name in names)
    return Verdict(LOW.judge(scores).word, said)


def judge_degenerate(scores: Scores) -> Verdict:
    """The ranks of Psine filters with and without enough terms."""
    leads, said = {}, []
    for both in STEERINGS:
        full, degenerate = (np.array(pick(scores, name=str(terms))) for terms in both)
        leads[str(both)] = full - degenerate
        said.append(f"{full.mean():.1f} against {degenerate.mean():.1f}")
    return Verdict(DEGENERATE.judge(samples(leads)).word, "rank " + ", ".join(said))


CLAIMS = (
    Claim(
        "order",
        "The DCT-II basis filters are numbered from the lowest to the highest frequency.",
        "Fig. F.1",
        InWords(
            f"For 3x3 and 5x5: agrees if the basis is orthonormal within {EXACT:g}, equals SciPy's "
            "orthonormal DCT-II, and the total frequency never falls from one number to the next; "
            "disagrees otherwise.",
            lambda found: decide(
                f"{mean_of(found, name='falls'):.0f} falls; off by "
                f"{mean_of(found, name='off'):.0e} at most",
                agrees=not mean_of(found, name="falls") and mean_of(found, name="off") < EXACT,
            ),
        ),
        kind="construction",
        on="order",
    ),
    Claim(
        "haar",
        "GHaar's basis at f = 1 is the Haar basis for 2x2 kernels.",
        "Fig. 3",
        InWords(
            "Agrees if the three products of a = 1 and b = cos(x), each of unit norm, equal the "
            f"three 2x2 Haar wavelets within {EXACT:g}, up to sign; disagrees otherwise.",
            lambda found: decide(
                f"off by {max(found.values()):.0e} at most", agrees=max(found.values()) < EXACT
            ),
        ),
        kind="construction",
        on="haar",
    ),
    Claim(
        "low",
        "GHaar and Psine prioritise low frequencies.",
        "GHaar, Psine: low first",
        InWords(str(LOW), judge_low),
        on="frequency",
    ),
    Claim(
        "flat",
        "DCT2 spreads its energy evenly over the basis.",
        "a flat heatmap",
        InWords(
            f"Agrees if every basis filter's share of e(2) is within {EVEN:.0%} of an even share, "
            "for 3x3 and 5x5 and every seed; disagrees otherwise.",
            lambda found: decide(
                f"off by {max(found.values()):.1%} at most", agrees=max(found.values()) < EVEN
            ),
        ),
        kind="construction",
        on="flat",
    ),
    Claim(
        "guided",
        "GuidedSteer has the spectrum of its guide.",
        "exactly like its guide",
        GUIDED,
        on="guided",
    ),
    Claim(
        "degenerate",
        "Psine steers the full space if ℓ ≥ 2 max(p) + 1; other filters are degenerate.",
        "Fig. 5",
        InWords(str(DEGENERATE), judge_degenerate),
        on="rank",
    ),
)


def judge(setting: Setting, _: Mapping[str, Run]) -> Evidence:
    """Draw every figure and check what can be counted; nothing is trained."""
    seeds = range(setting.pick(smoke=2, cpu=10, paper=10))
    shares = {
        (method, size): np.stack([draw_spectrum(method, size, seed) for seed in seeds])
        for method in METHODS
        for size in SIZES
    }
    guide, guide_name = open_guide(setting)
    return Evidence(
        scores={
            "order": samples(measure_order()),
            "haar": samples({"off": [measure_haar()]}),
            "frequency": samples(
                {
                    f"{LABELS[method]} {size}x{size}": above_even(shares[method, size], size)
                    for method in ("ghaar", "psine")
                    for size in SIZES
                }
            ),
            "flat": samples(
                {
                    f"{size}x{size}": np.abs(shares["dct2", size] * size**2 - 1).max(1)
                    for size in SIZES
                }
            ),
            "guided": guided_scores(guide, seeds),
            "rank": samples(measure_ranks(seeds, count=setting.pick(smoke=20, cpu=200, paper=200))),
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


def measure_order() -> dict[str, list[float]]:
    """How often a frequency falls along the numbers, and how far bases are off SciPy's."""
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
    return {"falls": [falls], "off": [off]}


def measure_haar() -> float:
    """How far GHaar's products for two points are from the Haar wavelets."""
    a, b = np.ones(2), np.cos(np.linspace(0, np.pi, 2))
    ours = [product / np.linalg.norm(product) for product in map(np.outer, (b, a, b), (a, b, b))]
    haar = make_basis("haar", (2, 2), lambda: torch.empty(0, 4)).filters.numpy()[1:]
    signed = [sign * wavelet for wavelet in haar for sign in (1, -1)]
    return max(min(float(np.abs(one - other).max()) for other in signed) for one in ours)


def measure_ranks(seeds: range, *, count: int) -> dict[str, list[float]]:
    """The mean rank of Psine filters of each ℓ and max p that is drawn, by seed."""
    return {
        str(terms): [
            float(effective_rank(sheets.psine_of(*terms, count, seed)).mean()) for seed in seeds
        ]
        for both in STEERINGS
        for terms in both
    }


def effective_rank(filters: Array) -> Array:
    """(Σs²)² / Σs⁴ of each matrix: k if k singular values are equal and the others zero.

    >>> effective_rank(np.stack([np.eye(4), np.ones((4, 4))])).round(6).tolist()
    [4.0, 1.0]
    """
    squares = np.linalg.svd(filters, compute_uv=False) ** 2
    return np.asarray(squares.sum(-1) ** 2 / (squares**2).sum(-1))


def open_guide(setting: Setting) -> tuple[nn.Module, str]:
    """A network trained on ImageNet if there is one, and what it is."""
    if setting.scale == "paper":
        return create_model("torchvision:densenet121", weights="pretrained"), "DenseNet121"
    found = find_pretrained("MobileNetV2") if setting.scale == "cpu" else {}
    if found:
        return found["MobileNetV2"], "MobileNetV2"
    return create_seeded("torchvision:mobilenet_v2"), ""


def frequency_table(shares: Shares) -> Rows:
    """A row per method: where the centre of its energy lies."""
    rows: Rows = []
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
    return rows


def _mean(values: Array) -> str:
    found = mean_interval(values)
    return f"{found.mean:.2f} ± {found.high - found.mean:.2f}"


def draw_sheets(guide: nn.Module, guide_name: str) -> dict[str, Figure]:
    """The paper's figures of filters."""
    densenet = create_seeded("torchvision:densenet121")
    unchanged = {"random": _kernels(_behind_the_stem(densenet)[1])}
    where = f"{guide_name} trained on ImageNet" if guide_name else "an untrained network"
    path, layer = _behind_the_stem(guide)
    if guide_name:
        unchanged["ImageNet"] = _kernels(layer)
    steered = nn.Conv2d(1, 14, 3)
    fix_(nn.Sequential(steered), "guidedsteer", guide=nn.Sequential(layer))
    guided = {"GuidedSteer": _kernels(steered), "its guide": _kernels(layer)}
    drawn = {
        "The DCT-II basis for 3x3 kernels, with its numbers (Fig. F.1a)": sheets.plot_basis((3, 3)),
        "The DCT-II basis for 5x5 kernels, with its numbers (Fig. F.1b)": sheets.plot_basis((5, 5)),
        "The Haar basis and GHaar's (Fig. 3); the product of ones is not shown": (
            sheets.plot_ghaar_construction()
        ),
        "GHaar: 3x3 kernels and what they sample (Fig. 4)": sheets.plot_resolutions("ghaar"),
        "Psine: full and degenerate steering (Fig. 5)": sheets.plot_psine_steering(),
        "Psine: 3x3 kernels and what they sample (Fig. 6)": sheets.plot_resolutions("psine"),
        f"GuidedSteer, guided by {where}, at {path} (Fig. 7)": sheets.plot_filters(guided),
        "Unchanged filters at the first 3x3 layer behind the stem (Fig. J.1)": (
            sheets.plot_filters(unchanged)
        ),
    }
    for figure in drawn.values():
        frame_pictures(figure)
    return drawn


def _behind_the_stem(model: nn.Module) -> tuple[str, nn.Conv2d]:
    """The first 3x3 layer behind it."""
    for path, layer in list(spatial_layers(model).items())[1:]:
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3):
            return path, layer
    raise ValueError("the network has no 3x3 layer behind its stem")


def _kernels(layer: nn.Conv2d) -> Array:
    """Some kernels of a layer."""
    return np.asarray(layer.weight.detach().flatten(0, 1)[:14])


def plot_spectra(shares: Shares) -> Figure:
    """Lines of e(2), a panel per size; all of Ones lies in filter 0 and is left out."""
    figure = new_figure(7.0, 2.8)
    panels = figure.subplots(1, len(SIZES), width_ratios=[1, 1.6])
    for axes, size in zip(panels, SIZES, strict=True):
        for method in METHODS[1:]:
            values = shares[method, size].mean(0)
            axes.plot(values, "o-", color=COLOURS[method], markersize=3, linewidth=1.2,
                      label=LABELS[method])  # fmt: skip
        axes.axhline(1 / size**2, color=COLOURS["learned"], linestyle="--", linewidth=1)
        axes.set_ylim(0, 3.2 / size**2)
        axes.set_xticks(range(0, size**2, 1 if size == 3 else 4))
        first = axes is panels[0]
        tidy(axes, x=f"{size}x{size} basis filter", y="share of energy e(2)" if first else "")
    panels[1].legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    return figure


def notes(setting: Setting, guide_name: str, seeds: int) -> list[str]:
    """What differs from the paper."""
    said = [
        f"{seeds} seeds of {KERNELS:,} kernels each. Ones has all its energy in filter 0 and is "
        "not drawn.",
        "GHaar shares one frequency among its three products, as the paper's results do; DCT-II is "
        "the orthonormal one, where the paper's formula has 2π/N for π/N.",
    ]
    if setting.scale == "cpu":
        said += missing_note(find_pretrained("MobileNetV2"), "MobileNetV2")
        said.append("The guide of the paper is a DenseNet121 trained on ImageNet.")
    noise = "GuidedSteer is guided by an untrained MobileNetV2: its filters are noise."
    return [*said, JOINT if guide_name else noise]


EXPERIMENT = Experiment(
    name="filters",
    title="Bases and initialisations, drawn and counted",
    reference="Figs. 3 to 7, App. F and J",
    claims=CLAIMS,
    cost={"smoke": "5 s", "cpu": "20 s", "paper": "1 min and a download"},
    judge=judge,
)
