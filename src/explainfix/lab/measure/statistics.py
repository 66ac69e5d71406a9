"""Is one method better than another? Paired tests, bands over epochs, intervals, corrections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...extras import needed_for

if TYPE_CHECKING:
    import pandas as pd

Alternative = Literal["two-sided", "greater", "less"]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Significance:
    """The outcome of a test, with what was tested."""

    name: str
    pairs: int
    p: float
    statistic: float


@dataclass(frozen=True)
class Interval:
    """A mean and where it lies."""

    name: str
    count: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Bands:
    """One-sided tests around every epoch: does the first method score higher, or lower?"""

    name: str
    pairs: NDArray[np.int64]  # of each epoch: fewer near the ends
    higher: Array
    lower: Array

    def table(self) -> "pd.DataFrame":
        """A row per epoch, numbered from 1."""
        with needed_for("a table"):
            import pandas as pd
        columns = {"pairs": self.pairs, "p higher": self.higher, "p lower": self.lower}
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.pairs) + 1, name="epoch"))


def paired_wilcoxon(
    first: ArrayLike, second: ArrayLike, *, alternative: Alternative = "two-sided"
) -> Significance:
    """Wilcoxon's signed-rank test of paired scores; "greater" asks if the first are.

    Pairs without a difference are left out of the test, as Wilcoxon did, but counted. If no pair
    differs there is no evidence: p is 1.

    >>> paired_wilcoxon([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], alternative="greater")
    Significance(name='paired Wilcoxon signed-rank, greater', pairs=5, p=0.03125, statistic=15.0)
    """
    a, b = _paired(first, second)
    name = f"paired Wilcoxon signed-rank, {alternative}"
    if np.allclose(a, b, rtol=0, atol=5e-13):
        return Significance(name, len(a), 1.0, 0.0)
    with needed_for("a test of significance"):
        from scipy import stats
    # 0.74 - 0.73 and 0.71 - 0.70 are a tie: without rounding they would not be
    rounded = (a - b).round(12)
    found: Any = stats.wilcoxon(rounded[rounded != 0], alternative=alternative)
    return Significance(name, len(a), float(found.pvalue), float(found.statistic))


def epoch_bands(first: ArrayLike, second: ArrayLike, *, width: int = 10) -> Bands:
    """The paper's bands: for every epoch, all pairs within `width` epochs in one one-sided test.

    Scores are `(runs, epochs)`; run i of the one is paired with run i of the other. The paper
    calls p < 0.001 significant; pairs from neighbouring epochs of one run are not independent, so
    that says less than it seems to.
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"scores must be two arrays (runs, epochs), not {a.shape} and {b.shape}")
    if width < 0:
        raise ValueError(f"width must be at least 0, not {width!r}")
    pairs, higher, lower = [], [], []
    for epoch in range(a.shape[1]):
        window = slice(max(epoch - width, 0), epoch + width + 1)
        x, y = a[:, window].ravel(), b[:, window].ravel()
        pairs.append(x.size)
        higher.append(paired_wilcoxon(x, y, alternative="greater").p)
        lower.append(paired_wilcoxon(x, y, alternative="less").p)
    name = f"paired Wilcoxon signed-rank, one-sided, ±{width} epochs"
    return Bands(name, np.array(pairs), np.array(higher), np.array(lower))


def mean_interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """The mean of independent runs and Student's t interval.

    >>> mean_interval([0.8, 0.82, 0.81])
    Interval(name="95% Student's t", count=3, mean=0.81, low=0.785..., high=0.834...)
    """
    with needed_for("an interval"):
        from scipy import stats
    x = np.asarray(values, float)
    if x.ndim != 1 or len(x) < 2:
        raise ValueError(f"an interval needs at least two values in a row, not shape {x.shape}")
    reach = float(stats.t.ppf((1 + level) / 2, len(x) - 1) * x.std(ddof=1) / len(x) ** 0.5)
    mean = float(x.mean())
    return Interval(f"{level:.0%} Student's t", len(x), mean, mean - reach, mean + reach)


def holm(tests: Mapping[str, Significance]) -> dict[str, Significance]:
    """The same tests, their p-values corrected for their number by Holm's step-down method.

    >>> tests = {"a": Significance("t", 6, 0.01, 0.0), "b": Significance("t", 6, 0.04, 0.0)}
    >>> [(test.name, test.p) for test in holm(tests).values()]
    [('t, Holm over 2 tests', 0.02), ('t, Holm over 2 tests', 0.04)]
    """
    ordered = sorted(tests, key=lambda key: tests[key].p)
    corrected: dict[str, float] = {}
    largest = 0.0
    for rank, key in enumerate(ordered):
        largest = max(largest, min(1.0, tests[key].p * (len(tests) - rank)))
        corrected[key] = largest
    suffix = f", Holm over {len(tests)} tests"
    return {
        key: Significance(test.name + suffix, test.pairs, corrected[key], test.statistic)
        for key, test in tests.items()
    }


def compare_methods(
    scores: Mapping[str, Sequence[float]], baseline: str, *, alternative: Alternative = "two-sided"
) -> dict[str, Significance]:
    """Each method against the baseline, paired by place, corrected for the number of methods."""
    if baseline not in scores:
        raise ValueError(f"no scores for the baseline {baseline!r}")
    others = {name: values for name, values in scores.items() if name != baseline}
    return holm(
        {
            name: paired_wilcoxon(values, scores[baseline], alternative=alternative)
            for name, values in others.items()
        }
    )


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    a, b = np.asarray(first, float), np.asarray(second, float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"paired scores must be two rows of one length, not {a.shape}, {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("paired scores must be finite")
    return a, b
