"""What the experiments share that zero kernels on x-rays: keys, runs, scores and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..lab.measure.statistics import mean_interval, paired_wilcoxon
from ..lab.run.folder import Run
from .contrast import Measure, Rule, Scores, difference, pick, signed
from .experiment import Rows
from .figures import COLOURS, Figure, new_figure, tidy
from .scores import MARGIN, Array, curves
from .setting import Setting
from .xrays import Key, Start, train_methods


@dataclass(frozen=True)
class ZeroedKey:
    """What tells runs apart; each family begins in one way."""

    family: str
    method: str
    zeroed: float  # the share of its kernels
    seed: int


AUC = Measure("test AUC", ZeroedKey)
ROUNDS = 30  # of training steps, where times are compared at cpu scale


def train_zeroed(
    setting: Setting, start: Start, share: float, seeds: Iterable[int], **changes: Any
) -> dict[ZeroedKey, Run]:
    """Unchanged filters of which a share is zeroed before the first step."""
    found = train_methods(setting, [start], ["unchanged"], seeds, zero=share, **changes)
    return {ZeroedKey(key.family, key.method, share, key.seed): run for key, run in found.items()}


def with_none_zeroed(runs: Mapping[Key, Run]) -> dict[ZeroedKey, Run]:
    """Whole networks beside those with kernels zeroed."""
    return {ZeroedKey(key.family, key.method, 0.0, key.seed): run for key, run in runs.items()}


def nearly_equal(family: str, share: float) -> Rule:
    """A network with a share zeroed against the learned one."""
    zeroed = f"the network with {share:.0%} of its kernels zeroed"
    ours = AUC.mean(zeroed, family=family, method="unchanged", zeroed=share)
    return ours - AUC.mean("the learned one", family=family, method="learned", zeroed=0.0) > -MARGIN


def zeroed_table(scores: Scores, shares: Sequence[tuple[Start, float]]) -> Rows:
    """A row per network and share zeroed, against learned."""
    rows: Rows = []
    for start, share in shares:
        zeroed = pick(scores, family=start.family, zeroed=share)
        learned = pick(scores, family=start.family, method="learned")
        rows.append(
            {
                "network": start.title,
                "zeroed": f"{share:.0%}",
                "runs": len(zeroed),
                "AUC": float(np.mean(zeroed)),
                "learned": float(np.mean(learned)),
                "less learned": signed(difference(zeroed, learned)),
                "Wilcoxon p": paired_wilcoxon(zeroed, learned).p,
            }
        )
    return rows


def plot_zeroed(runs: Mapping[ZeroedKey, Run], shares: Sequence[tuple[Start, float]]) -> Figure:
    """A panel for each network: its test AUC by epoch, learned and with kernels zeroed."""
    figure = new_figure(7.0, 2.6)
    grid = figure.subplots(1, len(shares), sharey=True, squeeze=False)[0]
    for axes, (start, share) in zip(grid, shares, strict=True):
        least = 1.0
        for colour, fields in (
            ("learned", {"method": "learned"}),
            ("unchanged", {"zeroed": share}),
        ):
            epochs, values = curves(pick(runs, family=start.family, **fields), "test auc")
            spans = [mean_interval(column) for column in values.T]
            axes.plot(epochs, [s.mean for s in spans], color=COLOURS[colour], linewidth=1.6)
            low, high = [s.low for s in spans], [s.high for s in spans]
            axes.fill_between(epochs, low, high, color=COLOURS[colour], alpha=0.15, linewidth=0)
            least = min(least, values.min())
        axes.set_ylim(max(min(axes.get_ylim()[0], least), 0.3), min(axes.get_ylim()[1], 1.0))
        title = f"{start.title.partition(',')[0]}, {share:.0%} zeroed"
        tidy(axes, x="epoch", y="test AUC", title=title)
        axes.label_outer()
    return figure


def shares_saved(seconds: Sequence[float], learned: Sequence[float]) -> Array:
    """The share of learned time that is saved, round by round."""
    return np.asarray(1 - np.array(seconds) / np.array(learned))
