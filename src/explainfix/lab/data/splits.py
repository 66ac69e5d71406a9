"""Parting examples at random, the same way every time."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


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
