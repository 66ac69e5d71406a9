"""How much to scale fixed kernels so that activations neither die nor explode without BatchNorm.

Kaiming's mean square 2/fan_in keeps the activations of a ReLU network for independent weights.
Fixed kernels are not independent: those of GHaar are smooth, and meet inputs that are smooth and
positive, so with 2/fan_in a VGG16's activations grow 300-fold; those of Psine have no mean and
they shrink. So we ask for the effect of Kaiming's initialisation instead of its number: follow
the statistics of the activations through a deep network of such layers until they settle, and
choose the factor that keeps their mean square there.
"""

import math

import numpy as np

from .exact import Array

_ROUNDS = 60  # the statistics settle in a few; the factor changes by less than 1% after twenty


def kaiming_gain(kernels: Array) -> float:
    """The factor for the kernels `(outputs, inputs, *taps)` that each output of a layer sums.

    An input is a common mean, a part that is constant over the kernel, and a part that differs
    from place to place: of its mean square, 1 in all, `mean`², `smooth` - `mean`² and 1 - `smooth`.
    An output z = Σ w·x of such inputs is normal, and relu(z) is the input of the next layer.

    >>> independent = np.random.default_rng(0).normal(size=(64, 32, 3, 3))
    >>> abs(kaiming_gain(independent) / math.sqrt(2 / (32 * 9)) - 1) < 0.1
    True
    """
    sums = kernels.sum(axis=tuple(range(2, kernels.ndim)))
    per_place = float((kernels**2).sum() / len(kernels))
    per_input = float((sums**2).sum() / len(kernels))
    per_output = float((sums.sum(axis=1) ** 2).mean())
    offset = abs(float(sums.sum(axis=1).mean()))
    if per_place == 0:
        return 1.0

    neighbours = _neighbour_correlation(kernels)
    mean, smooth, square = math.sqrt(1 / math.pi), 0.5, 1.0
    for _ in range(_ROUNDS):
        constant = (smooth - mean**2) * per_input + mean**2 * (per_output - offset**2)
        varying = (1 - smooth) * per_place
        deviation = math.sqrt(max(constant + varying, 1e-12 * per_place))
        first, square = _relu_moments(offset * mean, deviation)
        shared = (constant + varying * neighbours) / deviation**2
        mean = first / math.sqrt(square)
        smooth = mean**2 + (1 - mean**2) * _after_relu(shared)
    return 1 / math.sqrt(square)


def _neighbour_correlation(kernels: Array) -> float:
    """The mean correlation of two outputs within one kernel's reach, for inputs without any."""
    taps = kernels.shape[2:]
    size = math.prod(taps)
    if size == 1:
        return 0.0
    rows = kernels.reshape(-1, size)
    products = rows.T @ rows
    pairs = np.ones((1, 1))  # how often two places of the kernel lie as far apart as these two
    for length in taps:
        place = np.arange(length)
        pairs = np.kron(pairs, length - np.abs(place[:, None] - place))
    np.fill_diagonal(pairs, 0)
    return float((products * pairs).sum() / (np.trace(products) * size * (size - 1)))


def _relu_moments(mean: float, deviation: float) -> tuple[float, float]:
    """E[relu(z)] and E[relu(z)²] of a normal z."""
    t = mean / deviation
    density = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    positive = (1 + math.erf(t / math.sqrt(2))) / 2
    first = mean * positive + deviation * density
    return first, (mean**2 + deviation**2) * positive + mean * deviation * density


def _after_relu(correlation: float) -> float:
    """The correlation of relu(z) and relu(z') for normal z, z' of zero mean with that of z, z'."""
    c = min(max(correlation, -1.0), 1.0)
    product = (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
    return (product - 1 / math.pi) / (1 - 1 / math.pi)
