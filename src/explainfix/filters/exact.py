"""Numbers whose bits are the same on every machine, so that a recipe can stand for its kernels.

Libraries round cosines and sums differently from processor to processor. Here everything is made
of element-wise +, -, *, / and square roots, which IEEE 754 rounds in one way only, and of the raw
output of a bit generator, whose stream NumPy guarantees.
"""

import hashlib
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Taylor coefficients of sin(πs)/s in s². On |s| <= 1/2 the eleventh term is below 2^-53.
_SIN_PI = [(-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11)]
_ARTANH = [2 / (2 * k + 1) for k in range(11)]  # 2 artanh(s)/s in s², on |s| < 0.172
_EXP = [1 / math.factorial(k) for k in range(15)]  # on |x| < 0.35
_LN2 = 0.6931471805599453
_LN2_HIGH = 0.693147180369123816490  # the first 33 bits, and the rest
_LN2_LOW = 1.90821492927058770002e-10


class Draw:
    """A stream of random numbers that belongs to one seed and one layer, whoever else draws.

    >>> first, again = Draw(0, "layer1.conv"), Draw(0, "layer1.conv")
    >>> bool((first.uniform(3) == again.uniform(3)).all())
    True
    """

    def __init__(self, seed: int, path: str) -> None:
        key = hashlib.blake2b(f"{seed}:{path}".encode(), digest_size=16).digest()
        self.bits = np.random.PCG64DXSM(int.from_bytes(key, "little"))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Array:
        """Independent numbers from [low, high)."""
        return self._scaled(self.bits.random_raw(math.prod(shape)), low, high).reshape(shape)

    def uniform_at(self, where: NDArray[np.bool_], low: float = 0.0, high: float = 1.0) -> Array:
        """`uniform(*where.shape, ...)[where]`, at less cost.

        >>> where = np.array([[True, False], [False, True]])
        >>> whole, part = Draw(0, "a").uniform(2, 2), Draw(0, "a").uniform_at(where)
        >>> bool((whole[where] == part).all())
        True
        """
        if not where.any():
            self.bits.advance(where.size)
            return np.empty(0)
        raw = self.bits.random_raw(where.size)
        return self._scaled(raw if where.all() else raw[where.ravel()], low, high)

    def normal(self, *shape: int) -> Array:
        """Independent numbers of the standard normal distribution, by Box and Muller.

        >>> sample = Draw(0, "a").normal(100_000)
        >>> bool(abs(sample.mean()) < 0.01), bool(abs(sample.std() - 1) < 0.01)
        (True, True)
        """
        count = math.prod(shape)
        # 1 - u is in (0, 1], and exact. Two numbers a pair: the cosine and the sine of an angle.
        radius = np.sqrt(-2.0 * log(1.0 - self.uniform(-(-count // 2))))
        turn = self.uniform(len(radius), high=2)
        both = np.concatenate([radius * cos_pi(turn), radius * cos_pi(turn - 0.5)])
        return both[:count].reshape(shape)

    @staticmethod
    def _scaled(raw: NDArray[np.uint64], low: float, high: float) -> Array:
        raw >>= np.uint64(11)
        unit = raw.astype(np.float64)  # 53 bits: exact
        unit *= 2.0**-53 * (high - low)
        unit += low
        return unit


def cos_pi(t: Array) -> Array:
    """cos(πt), within 3e-16, exact at multiples of 1/2.

    >>> cos_pi(np.array([0, 0.5, 1, 1.5, 2, -4])).tolist()
    [1.0, 0.0, -1.0, 0.0, 1.0, 1.0]
    """
    # cos(πt) = sin(πs) with s = 1/2 - |t mod 2, taken from [-1, 1]|; each step here is exact.
    s = t * 0.5
    s -= np.rint(s)
    s *= 2.0
    np.abs(s, out=s)
    np.subtract(0.5, s, out=s)
    total = _polynomial(_SIN_PI, s * s)
    total *= s
    return total


def log(x: Array) -> Array:
    """The natural logarithm of positive numbers, within 3e-16 of it or of one.

    >>> log(np.array([1.0, 2.0])).tolist() == [0.0, math.log(2)]
    True
    """
    fraction, exponent = np.frexp(x)  # exact, as is doubling
    small = fraction < math.sqrt(0.5)
    fraction = np.where(small, fraction * 2.0, fraction)
    s = (fraction - 1.0) / (fraction + 1.0)  # log(fraction) = 2 artanh(s), |s| < 0.172
    return (exponent - small) * _LN2 + s * _polynomial(_ARTANH, s * s)


def exp(x: Array) -> Array:
    """e^x, within 1e-15 of it, relatively, for |x| up to 700.

    >>> exp(np.array([0.0, 1.0, -1.0])).round(12).tolist()
    [1.0, 2.718281828459, 0.367879441171]
    """
    twos = np.rint(x / _LN2)
    rest = x - twos * _LN2_HIGH - twos * _LN2_LOW  # the first product is exact
    return np.ldexp(_polynomial(_EXP, rest), twos.astype(np.int32))


def _polynomial(coefficients: list[float], z: Array) -> Array:
    """Σ coefficients[k] z^k, by Horner's rule."""
    total: Array = z * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        total += coefficient
        total *= z
    total += coefficients[0]
    return total


def ordered_sum(terms: Iterable[Array]) -> Array:
    """The sum, taken from left to right: NumPy's own reductions are free to choose an order."""
    iterator = iter(terms)
    total: Array = next(iterator).copy()
    for term in iterator:
        total += term
    return total


def ordered_product(matrix: Array, rows: Array) -> Array:
    """matrix @ rows, each sum from left to right.

    >>> ordered_product(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [[13.0, 16.0]]
    """
    return np.stack([ordered_sum(map(np.multiply, line, rows)) for line in matrix])
