"""What the page says about pruning: sizes, layers, and in words whether outputs stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..prune.outcome import PruneReport
from .page import percent, rough

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def pruning_data(report: PruneReport) -> dict[str, Any]:
    """The section on pruning, as plain numbers and text."""
    before, after = report.before, report.after
    return {
        "answer": f"{percent(1 - report.params_kept)} of the parameters are gone.",
        "exactness": describe_exactness(report),
        "notes": _notes(report),
        "barriers": _barriers(report),
        "totals": [
            _total("Parameters", "{:,}".format, before.parameters, after.parameters),
            _total("Memory", _bytes, before.bytes, after.bytes),
            _total("Multiply-adds", rough, before.multiply_adds, after.multiply_adds),
        ],
        "layers": [
            {key: row[key] for key in _COLUMNS} | {"path": row["layer"]}
            for row in report.as_dict()["layers"]
        ],
    }


_COLUMNS = (
    *("outputs_before", "outputs_after", "inputs_before", "inputs_after"),
    *("parameters_before", "parameters_after", "kernels_zeroed", "constants_folded"),
    *("ghosts_dropped", "weights_filled"),
)


def describe_exactness(report: PruneReport) -> str:
    """Whether the network that was cut computes what the zeroed one did, and when."""
    if report.ghosts_dropped:
        ghosts = _count(report.ghosts_dropped, "constant channel")
        was = "was" if report.ghosts_dropped == 1 else "were"
        return (
            f"The cut is not exact: {ghosts} (ghosts) {was} dropped, as in the paper. Kept, they "
            f"would have left {percent(report.params_with_ghosts)} of the parameters."
        )
    if report.differs_in_training:
        return "The cut is exact for evaluation: in training the outputs differ."
    if report.for_evaluation:
        return (
            f"The cut is exact for evaluation: {_count(report.for_evaluation, 'removed constant')} "
            "would have another value in training."
        )
    return "The cut is exact up to rounding, in training as well."


def _notes(report: PruneReport) -> list[str]:
    """What happened, step by step."""
    notes = []
    if zeroed := sum(report.zeroed.values()):
        share = f", {percent(report.zero_share)} of all" if report.zero_share is not None else ""
        notes.append(f"{_count(zeroed, 'kernel')} zeroed{share}: those that matter least.")
    if report.folded:
        notes.append(f"{_count(report.folded, 'constant channel')} folded into what reads them.")
    if report.difference:
        notes.append(
            "Cutting the dead channels changed the outputs of the example by at most "
            f"{report.difference:.1e} of their size."
        )
    else:
        notes.append("Cutting the dead channels changed no output of the example at all.")
    if report.constants_kept and not report.ghosts_dropped:
        notes.append(
            f"{_count(report.constants_kept, 'constant channel')} stayed: a gate, a sum or a "
            "padded convolution that reads them cannot take them over."
        )
    for name, (old, new) in report.rewritten.items():
        notes.append(f"{name} was {old} and is {new}.")
    notes += [f"Warning: {warning}" for warning in report.warnings]
    if filled := sum(report.filled.values()):
        notes.append(
            f"{_count(filled, 'weight')} that stayed zero filled with new values: train the "
            "network before you use it."
        )
    return notes


def _barriers(report: PruneReport) -> list[dict[str, Any]]:
    return [
        {
            "text": f"{_count(barrier.channels, 'channel')} stay because of",
            "operation": barrier.operation.removeprefix("aten."),
            "module": barrier.module,
        }
        for barrier in sorted(report.barriers, key=lambda barrier: -barrier.channels)
    ]


def _total(name: str, write: Callable[[int], str], before: int, after: int) -> dict[str, Any]:
    share = after / before if before else None
    return {"name": name, "before": write(before), "after": write(after), "share": share}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _bytes(number: int) -> str:
    """Bytes as people say them.

    >>> _bytes(512), _bytes(44_700_000)
    ('512 bytes', '44.7 MB')
    """
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
