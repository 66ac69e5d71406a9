"""The look of the figures: one palette, and pictures for light and dark pages."""

from __future__ import annotations

import colorsys
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# For annotations: matplotlib is imported when something is drawn.
Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

# Unsteered methods are warm, steered ones cool, what is learned is grey.
COLOURS = {
    "learned": "#7c8594",
    "ones": "#d98c3f",
    "dct2": "#c44e52",
    "unchanged": "#4a9d8e",
    "ghaar": "#3b6fc4",
    "psine": "#7d62b8",
    "guidedsteer": "#3a9ec2",
}
LABELS = {
    "learned": "Learned",
    "ones": "Ones",
    "dct2": "DCT2",
    "unchanged": "Unchanged",
    "ghaar": "GHaar",
    "psine": "Psine",
    "guidedsteer": "GuidedSteer",
    "covariance": "Covariance",
    "masterkeys": "Master keys",
}
GREEN, RED = "#5aa469", "#d06a6a"  # backgrounds: significantly better, worse
PAPER = {False: "#ffffff", True: "#181c24"}  # the page's cards, light and dark
LIGHT_INK = "#dfe3ea"


def new_figure(width: float = 7.0, height: float = 3.2) -> Figure:
    """An empty figure in our style, its sizes in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150)
    figure.set_layout_engine("constrained")
    return figure


def tidy(axes: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """What an axis shows, in small type; two spines, a faint grid behind; epochs are whole."""
    axes.set(xlabel=x, ylabel=y, title=title)
    if x == "epoch":
        axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color("#8a93a3")
    axes.tick_params(labelsize=8, color="#8a93a3")
    axes.grid(axis="y", color="#8a93a3", alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.title.set_fontsize(10)


def plot_groups(groups: Mapping[str, Sequence[float]], *, ylabel: str) -> Figure:
    """Each method's runs as dots, and their mean with Student's t interval; scores of 0 to 1."""
    from ..lab.measure.statistics import mean_interval

    figure = new_figure(1.0 + 0.85 * len(groups))
    axes = figure.subplots()
    for place, (name, values) in enumerate(groups.items()):
        colour = COLOURS.get(name, "#3b6fc4")
        spread = [place + 0.14 + 0.05 * i for i in range(len(values))]
        axes.plot(spread, values, "o", color=colour, alpha=0.45, markersize=5, markeredgewidth=0)
        if len(values) > 1:
            found = mean_interval(values)
            reach = found.high - found.mean
            axes.errorbar(place, found.mean, reach, fmt="o", color=colour, capsize=3, markersize=6)
    labels = [textwrap.fill(LABELS.get(name, name), 12) for name in groups]
    axes.set_xticks(range(len(groups)), labels)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), min(high, 1.0))  # an interval may reach further than a score can
    tidy(axes, y=ylabel)
    return figure


def bare(axes: Axes, name: str = "", *, size: float = 8) -> None:
    """A picture without ticks and spines, a name on its left."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_ylabel(name, fontsize=size, rotation=0, ha="right", va="center", labelpad=4)


def frame_pictures(figure: Figure) -> None:
    """A thin frame round every picture: zero is white, and so is the page."""
    from matplotlib.patches import Rectangle

    for axes in figure.axes:
        for picture in axes.images:
            height, width = picture.get_size()
            frame = Rectangle((-0.5, -0.5), width, height, fill=False, clip_on=False)
            frame.set(edgecolor="#8a93a3", linewidth=0.6)
            axes.add_patch(frame)


def plot_range(axes: Axes, x: Sequence[float], rows: Any, colour: str, **look: Any) -> None:
    """The mean of the rows `(runs, x)` as a line, from the lowest to the highest as a band."""
    axes.plot(x, rows.mean(0), color=colour, **look)
    axes.fill_between(x, rows.min(0), rows.max(0), color=colour, alpha=0.15, linewidth=0)


def draw_picture(figure: Figure, *, dark: bool = False) -> bytes:
    """The figure as a PNG; for a dark page its black and white are exchanged, its colours stay."""
    if dark:
        _darken(figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", facecolor=PAPER[dark])
    return out.getvalue()


def _darken(figure: Figure) -> None:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    for part in figure.findobj():
        if isinstance(part, Axes):
            part.set_facecolor("none")
        elif isinstance(part, Text | Line2D):
            _repaint(part.get_color(), part.set_color)
            if isinstance(part, Line2D):
                _repaint(part.get_markeredgecolor(), part.set_markeredgecolor)
                _repaint(part.get_markerfacecolor(), part.set_markerfacecolor)
        elif isinstance(part, Patch):
            _repaint(part.get_edgecolor(), part.set_edgecolor)
            _repaint(part.get_facecolor(), part.set_facecolor)
        elif isinstance(part, Collection) and len(part.get_edgecolor()) == 1:
            _repaint(part.get_edgecolor()[0], part.set_edgecolor)


def _repaint(colour: Any, put: Callable[[Any], Any]) -> None:
    """Black becomes light and white becomes dark; a colour, or a middle grey, stays."""
    from matplotlib.colors import to_rgba

    if isinstance(colour, str) and colour in ("none", "auto"):
        return
    red, green, blue, alpha = to_rgba(colour)
    _, lightness, _ = colorsys.rgb_to_hls(red, green, blue)
    if alpha == 0 or max(red, green, blue) - min(red, green, blue) > 0.12:
        return
    if lightness < 0.3:
        put((*to_rgba(LIGHT_INK)[:3], alpha))
    elif lightness > 0.95:
        put((*to_rgba(PAPER[True])[:3], alpha))
