"""What the experiments share that zero kernels on x-rays: keys, runs, scores and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..fix import unfix_
from ..lab.measure.statistics import mean_interval, paired_wilcoxon
from ..lab.run.folder import Run, build_model, open_data
from ..store import save
from .contrast import Measure, Rule, Scores, pick
from .experiment import Rows
from .figures import COLOURS, Figure, new_figure, tidy
from .scores import MARGIN, Array, curves
from .setting import Setting
from .verdict import difference, signed
from .xrays import Start

K = TypeVar("K")


@dataclass(frozen=True)
class ZeroedKey:
    """What tells runs apart; each family begins in one way."""

    family: str
    method: str
    zeroed: float  # the share of its kernels
    seed: int


AUC = Measure("test AUC", ZeroedKey)
ROUNDS = 30  # of training steps, where times are compared at cpu scale


def zeroed_options(setting: Setting, share: float) -> dict[str, Any]:
    """Of a run with a share of its kernels zeroed, chosen as in the authors' code.

    That takes absolute gradients over 50 batches of four images; the text has Eq. (7).
    """
    batches = setting.pick(smoke=2, cpu=8, paper=50)  # 8 of 32 images
    return {"zero": share, "zero_by": "gradient", "zero_batches": batches}


def make_pruned(setting: Setting, runs: Mapping[K, Run]) -> None:
    """Write the networks that fixed pruned runs began with, their filters learnable."""
    for run in setting.tracked(list(runs.values()), "Pruning"):
        file = pruned_file(setting, run)
        if not file.is_file():
            model = build_model(run.config, open_data(run.config))
            unfix_(model)
            file.parent.mkdir(parents=True, exist_ok=True)
            save(model, file)


def pruned_file(setting: Setting, run: Run) -> Path:
    """Where the network is that a fixed pruned run began with."""
    return setting.folder / "weights" / f"pruned-{run.folder.name}.safetensors"


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
