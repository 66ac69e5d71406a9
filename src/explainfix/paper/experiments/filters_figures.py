"""The pictures of filters: the paper's figures, and lines of their energies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...fix import fix_
from ...layers import spatial_layers
from ...report.sheets import (
    plot_basis,
    plot_filters,
    plot_ghaar_construction,
    plot_psine_steering,
    plot_resolutions,
)
from ...zoo import create_model
from ..figures import COLOURS, LABELS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def draw_sheets(guide: nn.Module, guide_name: str) -> dict[str, Figure]:
    """The paper's figures of filters."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)
        densenet = create_model("torchvision:densenet121")
    unchanged = {"random": _first(densenet)}
    where = "an untrained network" if not guide_name else f"{guide_name} trained on ImageNet"
    if guide_name:
        unchanged["ImageNet"] = _first(guide)
    path, layer = _first_layer(guide)
    steered = nn.Conv2d(1, 14, 3)
    fix_(nn.Sequential(steered), "guidedsteer", guide=nn.Sequential(layer))
    guided = steered.weight.detach().flatten(0, 1).numpy()
    sheets: dict[str, Callable[[], Figure]] = {
        "The DCT-II basis for 3x3 kernels, with its numbers (Fig. F.1a)": lambda: plot_basis(
            (3, 3)
        ),
        "The DCT-II basis for 5x5 kernels, with its numbers (Fig. F.1b)": lambda: plot_basis(
            (5, 5)
        ),
        "The Haar basis and GHaar's (Fig. 3); the product of ones is not shown": (
            plot_ghaar_construction
        ),
        "GHaar: 3x3 kernels and what they sample (Fig. 4)": lambda: plot_resolutions("ghaar"),
        "Psine: full and degenerate steering (Fig. 5)": plot_psine_steering,
        "Psine: 3x3 kernels and what they sample (Fig. 6)": lambda: plot_resolutions("psine"),
        f"GuidedSteer, guided by {where}, at {path} (Fig. 7)": lambda: plot_filters(
            {"GuidedSteer": guided, "its guide": _first(guide)}
        ),
        "Unchanged filters at the first 3x3 layer behind the stem (Fig. J.1)": lambda: plot_filters(
            unchanged
        ),
    }
    return {caption: framed(draw()) for caption, draw in sheets.items()}


def framed(figure: Figure) -> Figure:
    """A thin frame round every kernel: zero is white, and so is the page."""
    from matplotlib.patches import Rectangle

    for axes in figure.axes:
        for picture in axes.images:
            height, width = picture.get_size()
            frame = Rectangle((-0.5, -0.5), width, height, fill=False, clip_on=False)
            frame.set(edgecolor="#8a93a3", linewidth=0.6)
            axes.add_patch(frame)
    return figure


def _first_layer(model: nn.Module) -> tuple[str, nn.Conv2d]:
    """The first 3x3 layer behind the stem."""
    layers = list(spatial_layers(model).items())[1:]
    path, layer = next((p, one) for p, one in layers if tuple(one.kernel_size) == (3, 3))
    assert isinstance(layer, nn.Conv2d)
    return path, layer


def _first(model: nn.Module) -> Array:
    """Some kernels of that layer."""
    kernels: Array = _first_layer(model)[1].weight.detach().flatten(0, 1)[:14].numpy()
    return kernels


def plot_spectra(shares: Mapping[tuple[str, int], Array]) -> Figure:
    """Lines of e(2), a panel per size; all of Ones lies in filter 0 and is left out."""
    methods = dict.fromkeys(method for method, _ in shares if method != "ones")
    sizes = sorted({size for _, size in shares})
    figure = new_figure(7.0, 2.8)
    panels = figure.subplots(1, len(sizes), width_ratios=[1, 1.6])
    for axes, size in zip(panels, sizes, strict=True):
        for method in methods:
            values = shares[method, size].mean(0)
            axes.plot(values, "o-", color=COLOURS[method], markersize=3, linewidth=1.2,
                      label=LABELS[method])  # fmt: skip
        axes.axhline(1 / size**2, color=COLOURS["learned"], linestyle="--", linewidth=1)
        axes.set_xlabel(f"{size}x{size} basis filter")
        axes.set_ylim(0, 3.2 / size**2)
        axes.set_xticks(range(0, size**2, 1 if size == 3 else 4))
        tidy(axes)
    panels[0].set_ylabel("share of energy e(2)")
    panels[1].legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    return figure
