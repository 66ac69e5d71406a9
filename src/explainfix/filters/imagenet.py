"""The guide that ships with the package: how filters trained on ImageNet vary, by shape and depth.

`imagenet.safetensors` beside this file has a root of the second moments E[ffᵀ] of the filters of
MobileNetV2 and AlexNet, each layer counting the same and scaled to a mean squared norm of one;
`tools/make_guide.py` made it. Recipes depend on its numbers: they must never change.

Second moments are all that a spectrum depends on. Kernels have no mean here: one that all inputs of
a dense layer share adds up, is negative in trained layers, and without their biases every ReLU
behind them would end at zero.
"""

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors.numpy import load_file

from .exact import Array, Draw, ordered_product, ordered_sum

FILE = Path(__file__).with_suffix(".safetensors")
Kind = Literal["depthwise", "dense"]
DEPTHS = ("stem", "early", "middle", "late")


def depths(paths: Iterable[str]) -> dict[str, str]:
    """How deep each spatial layer of a network lies: the stem, or a third of the layers.

    >>> depths("abcdef")
    {'a': 'stem', 'b': 'early', 'c': 'middle', 'd': 'middle', 'e': 'late', 'f': 'late'}
    """
    names = list(paths)
    return {
        path: DEPTHS[1 + 3 * place // len(names)] if place else "stem"
        for place, path in enumerate(names)
    }


def sample_imagenet(shape: tuple[int, ...], draw: Draw, depth: str) -> Array:
    """Normal kernels of zero mean, with the second moments of the filters at that depth.

    >>> kernels = sample_imagenet((64, 32, 3, 3), Draw(0, "a"), "middle")
    >>> bool(abs((kernels**2).sum((2, 3)).mean() - 1) < 0.1)
    True
    """
    # A stem with one input channel sees an image, not what a depthwise layer sees.
    kind: Kind = "depthwise" if shape[1] == 1 and depth != "stem" else "dense"
    root = moment_root(kind, depth, shape[2:])
    kernels = ordered_product(root, draw.normal(root.shape[1], math.prod(shape[:2])))
    return np.ascontiguousarray(kernels.T).reshape(shape)


@cache
def moment_root(kind: Kind, depth: str, sides: tuple[int, ...]) -> Array:
    """R with RRᵀ the second moments, trace one, `(m, n)`, for kernels of any two sides.

    Kernels of another size are those of the nearest, drawn larger or smaller by the fourth root
    of the ratio, and zero beyond: trained filters hardly grow with the kernels they lie in.
    """
    known = _stored()
    if len(sides) != 2 or min(sides) < 2:
        shapes = sorted({"x".join(map(str, key[2])) for key in known})
        raise ValueError(
            f"the guide 'imagenet' has no {'x'.join(map(str, sides))} kernels, it has "
            f"{', '.join(shapes)} and makes other planes from these: give a network as guide"
        )

    def distance(key: tuple[str, str, tuple[int, int]]) -> tuple[bool, bool, float, int]:
        ratio = math.prod(key[2]) / math.prod(sides)
        apart = abs(DEPTHS.index(key[1]) - DEPTHS.index(depth))
        other_end = (key[1] == "stem") != (depth == "stem")
        return key[0] != kind, other_end, max(ratio, 1 / ratio), apart

    nearest = min(sorted(known), key=distance)
    root = known[nearest]
    if nearest[2] != sides:
        resampling: Array = np.asarray(np.kron(*map(_resampling, nearest[2], sides)), np.float64)
        root = ordered_product(resampling, root)
    entries = root.ravel()
    return root / np.sqrt(ordered_sum(entries * entries))


def _resampling(old: int, new: int) -> Array:
    """The matrix that draws `old` values, about their centre, on `new` places, `(new, old)`."""
    stretch = math.sqrt(math.sqrt(new / old))
    places = (np.arange(new) - (new - 1) / 2) / stretch + (old - 1) / 2
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(old))))


@cache
def _stored() -> dict[tuple[str, str, tuple[int, int]], Array]:
    """The roots by kind, depth and sides, of which the file has the lower triangles."""
    found = {}
    for name, triangle in load_file(FILE).items():
        kind, depth, shape = name.split(".")
        height, width = map(int, shape.split("x"))
        root = np.zeros((height * width, height * width))
        root[np.tril_indices(height * width)] = triangle
        found[kind, depth, (height, width)] = root
    return found
