"""What the sources of datasets share: checks of options, tables, examples parted at random."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...extras import needed_for

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def check_share(name: str, share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError(f"{name} must be from 0 to below 1, not {share!r}")


def check_least(least: int, **options: int | None) -> None:
    """An error for an option, unless it is `None`, that is less than `least`."""
    for name, value in options.items():
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, not {value!r}")


def read_table(path: Path, columns: Sequence[str]) -> "pd.DataFrame":
    """A CSV file as texts, empty where nothing stands, or an error if it lacks a column."""
    with needed_for("reading a table"):
        import pandas as pd
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:  # pandas raises subclasses of ValueError
        raise ValueError(f"{str(path)!r} cannot be read as a table: {error}") from None
    missing = [column for column in columns if column not in table]
    if missing:
        found = ", ".join(map(repr, table.columns[:6]))
        raise ValueError(f"{str(path)!r} has no column {missing[0]!r}: found {found}")
    return table


def divide(
    items: Sequence[T], share: float, seed: int, *, group: Callable[[T], Hashable] | None = None
) -> tuple[list[T], list[T]]:
    """The items without a random `share` of them, and that share; both in the order they had.

    Items of one `group`, such as a patient, stay together; the share is then one of groups.

    >>> divide("abcdefgh", 0.25, seed=0)
    (['a', 'b', 'd', 'f', 'g', 'h'], ['c', 'e'])
    """
    keys: list[Hashable] = [group(item) for item in items] if group else list(range(len(items)))
    groups = list(dict.fromkeys(keys))
    number = max(round(share * len(groups)), 1) if share and len(groups) > 1 else 0
    order = np.random.default_rng(np.random.SeedSequence([seed])).permutation(len(groups))
    taken = {groups[place] for place in order[:number]}
    first = [item for item, key in zip(items, keys, strict=True) if key not in taken]
    second = [item for item, key in zip(items, keys, strict=True) if key in taken]
    return first, second
