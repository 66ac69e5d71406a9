"""How the levels of one's own images are normalised, and whether they use their range."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import cache
from .archive import Tree
from .images import Levels
from .preparation import IMAGENET, Preparation

Normalise = Literal["auto", "range", "percentiles", "dataset", "window", "imagenet"]

Images = Mapping[str, Sequence[str]]  # names and their files
_LOOKED_AT = 16  # images, to tell whether a range is used
_HARDLY = 1 / 8  # of the range


def levels_of(normalise: Normalise, *, volumes: bool = False) -> Levels:
    """What of a picture, or of volumes, becomes 0 and 1."""
    if volumes:
        if normalise in ("range", "window"):
            raise ValueError(f"volumes have no normalise={normalise}: take percentiles or dataset")
        return "percentiles"
    return normalise if normalise in ("range", "percentiles", "window") else "file"


def standardise(
    preparation: Preparation, normalise: Normalise, tree: Tree, images: Images
) -> Preparation:
    """The preparation with the mean and deviation to take out, of ImageNet or of these images."""
    if normalise == "imagenet":
        mean, deviation = np.array(IMAGENET)
        if preparation.channels == 1:
            mean, deviation = mean.mean(keepdims=True), deviation.mean(keepdims=True)
    elif normalise == "dataset":
        mean, deviation = _measured("statistics", _statistics, preparation, tree, images)
        if not deviation.all():
            raise ValueError("normalise=dataset needs images to train on that are not all even")
    else:
        return preparation
    return replace(preparation, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))


def hardly_used(preparation: Preparation, tree: Tree, images: Images) -> list[str]:
    """A sentence if the images hardly use the range of their levels, with what mends it."""
    if preparation.levels not in ("file", "range") or preparation.mean:
        return []
    names, count = list(images), min(_LOOKED_AT, len(images))
    places = np.unique(np.linspace(0, len(names) - 1, count).round().astype(int))
    looked_at = {names[place]: images[names[place]] for place in places}
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
    measure: Callable[[Preparation, Tree, Images], NDArray[np.float64]],
    preparation: Preparation,
    tree: Tree,
    images: Images,
) -> NDArray[np.float64]:
    """What was measured the last time, if no file has changed since."""
    where = tree.path.absolute().as_posix()
    how = f"{preparation.channels} {preparation.size} {preparation.levels}"
    key, stamp = (
        f"{what} {how} {where}",
        tree.stamp([file for files in images.values() for file in files]),
    )
    return cache.remember(key, stamp, lambda: measure(preparation, tree, images))


def _statistics(preparation: Preparation, tree: Tree, images: Images) -> NDArray[np.float64]:
    """Mean and deviation of each channel `(2, channels)` over all pixels of all images."""
    sums = np.zeros((2, preparation.channels))
    pixels = 0
    for name, files in images.items():
        image = (
            preparation.read([tree.read(file) for file in files], name).flatten(1).double().numpy()
        )
        sums += image.sum(1), (image**2).sum(1)
        pixels += image.shape[1]
    mean, square = sums / pixels
    return np.array([mean, np.sqrt((square - mean**2).clip(0))])


def _extremes(preparation: Preparation, tree: Tree, images: Images) -> NDArray[np.float64]:
    """The least and the largest number in any of the images."""
    seen = [
        preparation.decode([tree.read(file) for file in files], name)
        for name, files in images.items()
    ]
    return np.array([min(float(x.min()) for x in seen), max(float(x.max()) for x in seen)])
