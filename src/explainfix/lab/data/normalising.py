"""How the levels of one's own images are normalised, and whether they use their range."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import cache
from .archive import Tree
from .images import Levels
from .preparation import IMAGENET, Preparation

Normalise = Literal["auto", "range", "percentiles", "dataset", "window", "imagenet"]

_LOOKED_AT = 16  # images, to tell whether a range is used
_HARDLY = 1 / 8  # of the range


def levels_of(normalise: Normalise) -> Levels:
    """What of a picture becomes 0 and 1."""
    return normalise if normalise in ("range", "percentiles", "window") else "file"


def standardise(
    preparation: Preparation, normalise: Normalise, tree: Tree, names: Sequence[str]
) -> Preparation:
    """The preparation with the mean and deviation to take out, of ImageNet or of these images."""
    if normalise == "imagenet":
        mean, deviation = np.array(IMAGENET)
        if preparation.channels == 1:
            mean, deviation = mean.mean(keepdims=True), deviation.mean(keepdims=True)
    elif normalise == "dataset":
        mean, deviation = _measured("statistics", _statistics, preparation, tree, names)
        if not deviation.all():
            raise ValueError("normalise=dataset needs images to train on that are not all even")
    else:
        return preparation
    return replace(preparation, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))


def hardly_used(preparation: Preparation, tree: Tree, names: Sequence[str]) -> list[str]:
    """A sentence if the images hardly use the range of their levels, with what mends it."""
    if preparation.levels not in ("file", "range") or preparation.mean:
        return []
    places = np.linspace(0, len(names) - 1, min(_LOOKED_AT, len(names))).round().astype(int)
    looked_at = [names[place] for place in np.unique(places)]
    low, high = _measured("extremes", _extremes, preparation, tree, looked_at)
    if high - low >= _HARDLY:
        return []
    return [
        f"Images use {high - low:.1%} of the range of their levels (seen in {len(looked_at)} of "
        "them), as 12 bits in files of 16 do, and are nearly even to a network: --data-option "
        "normalise=percentiles stretches each, normalise=dataset takes out the mean and deviation "
        "of those to train on."
    ]


def _measured(
    what: str,
    measure: Callable[[Preparation, Tree, Sequence[str]], NDArray[np.float64]],
    preparation: Preparation,
    tree: Tree,
    names: Sequence[str],
) -> NDArray[np.float64]:
    """What was measured the last time, if no file has changed since."""
    where = tree.path.absolute().as_posix()
    how = f"{preparation.channels} {preparation.size} {preparation.levels}"
    key, stamp = f"{what} {how} {where}", tree.stamp(names)
    return cache.remember(key, stamp, lambda: measure(preparation, tree, names))


def _statistics(preparation: Preparation, tree: Tree, names: Sequence[str]) -> NDArray[np.float64]:
    """Mean and deviation of each channel `(2, channels)` over all pixels of all images."""
    sums = np.zeros((2, preparation.channels))
    pixels = 0
    for name in names:
        image = preparation.read(tree.read(name), name).flatten(1).double().numpy()
        sums += image.sum(1), (image**2).sum(1)
        pixels += image.shape[1]
    mean, square = sums / pixels
    return np.array([mean, np.sqrt((square - mean**2).clip(0))])


def _extremes(preparation: Preparation, tree: Tree, names: Sequence[str]) -> NDArray[np.float64]:
    """The least and the largest number in any of the images."""
    images = [preparation.decode(tree.read(name), name) for name in names]
    lows, highs = zip(*((float(image.min()), float(image.max())) for image in images), strict=True)
    return np.array([min(lows), max(highs)])
