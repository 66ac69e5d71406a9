"""Colours that part at what says nothing: at chance, or at no difference.

Random kernels have every filter of an orthonormal basis alike. So a layer's share of a filter is
shown as so many times that of chance, on a scale of doublings, and a network that is nearly even
does not look like another one that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_LEAST = math.log2(1.25)  # doublings at the end of the scale: less would paint noise
_MOST = 3.0  # eight times as much, or as little
_LEAST_DIFFERENCE = 0.01  # of a layer's energy
_LESS, _EVEN, _MORE = (38, 105, 178), (238, 238, 236), (214, 96, 28)


def against_chance(energies: Sequence[float], even: Sequence[float]) -> list[float | None]:
    """How many doublings each energy's share is above chance, or below; `even` are its shares.

    >>> against_chance([4.0, 2.0, 1.0, 1.0], [0.25] * 4)
    [1.0, 0.0, -1.0, -1.0]
    """
    return [
        None if share is None else max(math.log2(share / chance), -_MOST) if share else -_MOST
        for share, chance in zip(shares(energies), even, strict=True)
    ]


def differences(before: Sequence[float], after: Sequence[float]) -> list[float | None]:
    """What share of a layer's energy each filter has more than before.

    >>> differences([1.0, 1.0], [1.0, 3.0])
    [-0.25, 0.25]
    """
    return [
        None if one is None or other is None else other - one
        for one, other in zip(shares(before), shares(after), strict=True)
    ]


def shares(energies: Sequence[float]) -> list[float | None]:
    """Each energy's share of the sum; of nothing there are none."""
    total = math.fsum(value for value in energies if math.isfinite(value))
    return [value / total if total > 0 and math.isfinite(value) else None for value in energies]


def chance_limit(columns: Iterable[Sequence[float | None]]) -> float:
    """The doublings at either end of the scale for these: a tenth of them may lie beyond.

    >>> chance_limit([[0.1, -0.1] * 50]), chance_limit([[1.0] * 95 + [9.0] * 5])
    (0.32192809488736235, 1.0)
    """
    sizes = sorted(_sizes(columns))
    return min(max(sizes[int(0.9 * len(sizes))], _LEAST), _MOST) if sizes else _LEAST


def difference_limit(columns: Iterable[Sequence[float | None]]) -> float:
    """The share of energy at either end of the scale for these."""
    return max(_LEAST_DIFFERENCE, *_sizes(columns), _LEAST_DIFFERENCE)


def colour(place: float | None) -> str:
    """The colour of a place from -1 to 1; grey in the middle.

    >>> colour(0), colour(1), colour(None)
    ('#eeeeec', '#d6601c', 'none')
    """
    if place is None:
        return "none"
    end, part = (_LESS if place < 0 else _MORE), min(abs(place), 1.0)
    mixed = (round(a + part * (b - a)) for a, b in zip(_EVEN, end, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _sizes(columns: Iterable[Sequence[float | None]]) -> list[float]:
    return [abs(value) for column in columns for value in column if value is not None]
