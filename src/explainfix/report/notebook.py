"""Results in a notebook: a small card each, of plain HTML with no script."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from ..explanation.check import CheckReport
from ..explanation.compare import Comparison, as_change
from ..explanation.explanation import Explanation
from ..explanation.saliency import Saliency
from ..marks.untrained import RANDOM
from ..prune.outcome import PruneReport
from ..recipe import Recipe
from ..registry import views
from ..steering.outcome import SteerReport
from ..watch.timeline import Timeline
from .condense import Condensed
from .page import percent, rough
from .pruning import pruning_data
from .scale import against_chance, chance_limit, colour, difference_limit, differences

_ROWS = 12  # of a table; the rest is counted
_WORDS = ("layer", "kernel", "fixed by", "what is wrong", "digest of its kernels")
# Colours of the notebook itself, whatever its theme; nothing here reaches outside the card.
_STYLE = """
.xf-card { font: 14px/1.45 system-ui, sans-serif; max-width: 860px; padding: 12px 16px;
  border: 1px solid rgb(128 128 128 / 0.35); border-radius: 10px; color: inherit; }
.xf-card p { margin: 2px 0 6px; }
.xf-card .xf-title { font-weight: 650; font-size: 15px; overflow-wrap: anywhere; }
.xf-card .xf-soft { opacity: 0.72; font-size: 13px; }
.xf-card .xf-wide { overflow-x: auto; }
.xf-card table { border-collapse: collapse; font-size: 13px; margin: 6px 0; }
.xf-card :is(th, td) { padding: 2px 12px 2px 0; text-align: right; background: none;
  border: 0; white-space: nowrap; font-variant-numeric: tabular-nums; }
.xf-card :is(th, td):is(:first-child, .xf-words) { text-align: left; }
.xf-card thead th { opacity: 0.72; font-weight: 500; }
.xf-card svg { display: block; margin: 6px 0; max-width: none; }
"""


@dataclass(frozen=True)
class Card:
    """What a card says: a title, sentences, a table with a row per thing, a picture as SVG."""

    title: str
    sentences: Sequence[str]
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    picture: str = ""


@views.register("notebook")
def notebook(result: object) -> str:
    """The card of a result, as HTML that stands by itself."""
    card = card_of(result)
    parts = [f'<p class="xf-title">{_text(card.title)}</p>']
    parts += [f"<p>{_text(sentence)}</p>" for sentence in card.sentences if sentence]
    if card.picture:
        parts.append(f'<div class="xf-wide">{card.picture}</div>')
    if card.rows:
        parts.append(f'<div class="xf-wide">{_table(card)}</div>')
    if len(card.rows) > _ROWS:
        more = f"and {len(card.rows) - _ROWS:,} more; .table() has all"
        parts.append(f'<p class="xf-soft">{more}</p>')
    return f'<div class="xf-card"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _table(card: Card) -> str:
    """Its first rows, without columns that are empty; numbers stand to the right."""
    columns = [i for i in range(len(card.headings)) if any(row[i] for row in card.rows)]
    kinds = {i: ' class="xf-words"' if card.headings[i] in _WORDS else "" for i in columns}
    head = "".join(f"<th{kinds[i]}>{_text(card.headings[i])}</th>" for i in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{kinds[i]}>{_text(row[i])}</td>" for i in columns) + "</tr>"
        for row in card.rows[:_ROWS]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@singledispatch
def card_of(result: object) -> Card:
    raise TypeError(f"no card is known for {type(result).__name__}")


@card_of.register
def _(why: Explanation) -> Card:
    rows = [
        [
            path,
            _name(layer.shape),
            f"{layer.kernels:,}",
            percent(layer.low_share),
            f"{percent(layer.low_chance[0])} to {percent(layer.low_chance[1])}",
            percent(why.share_of(path)) if why.weighted else "",
            layer.fixed_by or "",
        ]
        for path, layer in why.layers.items()
    ]
    kernels = sum(layer.kernels for layer in why.layers.values())
    size = f"{_count(len(why), 'spatial layer')}, {_count(kernels, 'kernel')}"
    shape, paths = _main_shape(why, why.layers)
    shown = Condensed.of(shape, why.totals)
    columns = [against_chance(shown.energies(why[path].ed), shown.even) for path in paths]
    return Card(
        title=f"Explanation of {why.title}",
        sentences=[
            RANDOM if why.untrained else "",
            f"{size}. {why.weighting}.",
            f"{_name(shape)} kernels, smooth on top: orange is more than chance, blue less.",
        ],
        headings=[
            *("layer", "kernel", "kernels", "low frequencies", "by chance", "saliency", "fixed by")
        ],
        rows=rows,
        picture=_heatmap(columns, paths, chance_limit(columns)),
    )


@card_of.register
def _(found: Comparison) -> Card:
    rows = [
        [
            path,
            as_change(change.change),
            "other shape"
            if change.changed is None
            else f"{change.changed:,} of {change.kernels:,}",
            f"{percent(found.before.layers[path].low_share)} → "
            f"{percent(found.after.layers[path].low_share)}",
            found.fixed_by(path) or "",
        ]
        for path, change in found.layers.items()
    ]
    picture, said = "", ""
    if found.layers:
        shape, _ = _main_shape(found.before, found.layers)
        paths = [p for p in found.before if p in found.layers and found.before[p].shape == shape]
        shown = Condensed.of(shape, found.before.totals)
        columns = [
            differences(*(shown.energies(why[path].ed) for why in (found.before, found.after)))
            for path in paths
        ]
        picture = _heatmap(columns, paths, difference_limit(columns))
        said = f"{_name(shape)} kernels, smooth on top: orange is more than before, blue less."
    return Card(
        title=f"{found.before.title} → {found.after.title}",
        sentences=[found.warning or "", found.verdict, said],
        headings=["layer", "change", "kernels changed", "low frequencies", "fixed by"],
        rows=rows,
        picture=picture,
    )


@card_of.register
def _(line: Timeline) -> Card:
    ends = [
        (path, line.drift(path).tolist(), line.low_share(path).tolist()) for path in line.layers
    ]
    ends.sort(key=lambda end: -end[1][-1] if math.isfinite(end[1][-1]) else 0.0)
    return Card(
        title=f"Timeline of {line.title}, until {line.snapshots[-1].name}",
        sentences=[line.verdict],
        headings=["layer", "drift", "low frequencies", "fixed by"],
        rows=[
            [
                path or "(the model)",
                percent(drift[-1] if math.isfinite(drift[-1]) else None),
                " → ".join(
                    percent(end if math.isfinite(end) else None) for end in (low[0], low[-1])
                ),
                line.layers[path].fixed_by or "",
            ]
            for path, drift, low in ends
        ],
    )


@card_of.register
def _(scores: Saliency) -> Card:
    rows = [
        [row["layer"], f"{row['kernels']:,}", percent(row["share"]), percent(row["top_10%"])]
        for row in sorted(scores.rows(), key=lambda row: -row["share"])
    ]
    title, *more = repr(scores).splitlines()
    return Card(
        title=title,
        sentences=more,
        headings=["layer", "kernels", "share", "of that in its top 10%"],
        rows=rows,
    )


@card_of.register
def _(report: CheckReport) -> Card:
    rows = [[finding.check, finding.layer, finding.text] for finding in report.failures]
    return Card(
        title=f"Check of {report.title}",
        sentences=[RANDOM if report.untrained else "", report.verdict],
        headings=["check", "layer", "what is wrong"],
        rows=rows,
    )


@card_of.register
def _(report: PruneReport) -> Card:
    said = pruning_data(report)
    rows = [
        [total["name"], total["before"], total["after"], percent(total["share"])]
        for total in said["totals"]
    ]
    return Card(
        title=said["answer"],
        sentences=[said["exactness"], *said["notes"]],
        headings=["", "before", "after", "kept"],
        rows=rows,
    )


@card_of.register
def _(recipe: Recipe) -> Card:
    return Card(
        title=f"{_count(len(recipe.digests), 'layer')} fixed by {recipe.method}",
        sentences=[repr(recipe)],
        headings=["layer", "digest of its kernels"],
        rows=list(recipe.digests.items()),
    )


@card_of.register
def _(report: SteerReport) -> Card:
    rows = [
        [
            path,
            _name(layer.kernel),
            f"{layer.filters} of {math.prod(layer.kernel)}",
            percent(layer.share_lost),
            f"{rough(layer.params_before)} → {rough(layer.params_after)}",
        ]
        for path, layer in report.layers.items()
    ]
    return Card(
        title=f"Steered by {report.method}",
        sentences=[f"{report}."],
        headings=["layer", "kernel", "filters", "energy lost", "weights"],
        rows=rows,
    )


def _heatmap(columns: Sequence[Sequence[float | None]], paths: Sequence[str], limit: float) -> str:
    """A column per layer, which says its name when it is pointed at."""
    wide, high = max(4, min(22, 800 // len(columns))), max(3, min(14, 240 // len(columns[0])))
    bars = []
    for x, (column, path) in enumerate(zip(columns, paths, strict=True)):
        cells = "".join(
            f'<rect x="{x * wide}" y="{y * high}" width="{wide - 1}" height="{high - 1}" '
            f'fill="{colour(None if value is None else value / limit)}"/>'
            for y, value in enumerate(column)
        )
        bars.append(f"<g><title>{_text(path)}</title>{cells}</g>")
    size = f'width="{wide * len(columns)}" height="{high * len(columns[0])}"'
    return (
        f'<svg {size} role="img" aria-label="spectra of {len(paths)} layers">{"".join(bars)}</svg>'
    )


def _main_shape(why: Explanation, paths: Iterable[str]) -> tuple[tuple[int, ...], list[str]]:
    """The kernel shape that most of these layers have, and the layers."""
    paths = list(paths)
    ((shape, _),) = Counter(why.layers[path].shape for path in paths).most_common(1)
    return shape, [path for path in paths if why.layers[path].shape == shape]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _name(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _text(value: Any) -> str:
    return html.escape(str(value))
