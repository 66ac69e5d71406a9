"""classification: fixed initialisations against learned filters, three architectures on x-rays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...lab.measure.statistics import holm, mean_interval, paired_wilcoxon
from ...lab.run.folder import Run
from ..experiment import Claim, Experiment, Outcome, Verdict, Word, register
from ..figures import LABELS, new_figure
from ..scores import runs_of
from ..setting import Setting
from ..verdicts import Paired, above, compare_paired, every
from ..xrays import MARGIN, STEERED, Start, final, finals, starts, train_methods
from ..xrays import notes as shared_notes
from .steering import PSINE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PAPER_P = {  # of Fig. 10, two-sided: is the method equal to learned?
    "dct2": 2e-05,
    "ghaar": 0.026,
    "psine": 0.31,
    "unchanged": 0.33,
    "guidedsteer": 0.3,
}
Scores = dict[str, dict[str, list[float]]]  # by row of the heat table and method

CLAIMS = (
    Claim(
        "steered",
        "Steered fixed filters do better than the unsteered DCT2.",
        "steered > DCT2, significantly",
        "For each network, start and seed: the mean test AUC of the four steered methods less "
        "that of DCT2. Agrees if the 95% t interval of these differences lies above 0, disagrees "
        "if below, else undecided.",
    ),
    Claim(
        "dct2",
        "DCT2 does worse than the learned baseline.",
        "not equal, p = 2e-05",
        "The same with learned less DCT2.",
    ),
    Claim(
        "equal",
        "Over all networks, every steered method about equals the learned baseline.",
        "equal, p from 0.026 to 0.33",
        "For each steered method less learned, over all networks, starts and seeds: agrees if the "
        f"95% t interval lies above -{MARGIN} for all four, disagrees if it lies below -{MARGIN} "
        "for one, else undecided.",
    ),
    Claim(
        "specific",
        "On some architectures steered filters do better than learned ones.",
        "Psine on DenseNet, GHaar and GuidedSteer on EfficientNet",
        "For each architecture the steered method with the highest mean validation AUC, less "
        "learned, on test, over starts and seeds. Agrees if the 95% t interval lies above 0 for "
        "one architecture at least, disagrees if it lies below 0 for all, else undecided.",
    ),
)


def train(setting: Setting) -> dict[str, Run]:
    """All methods on all networks, from scratch and pretrained."""
    begins = [*starts(setting, "scratch"), *starts(setting, "pretrained")]
    seeds = range(setting.pick(smoke=2, cpu=2, paper=1))
    return train_methods(setting, begins, methods(setting), seeds)


def methods(setting: Setting) -> tuple[str, ...]:
    """The columns of the paper's table; Ones, which it has not, where there is time."""
    ones = () if setting.scale == "cpu" else ("ones",)
    return ("learned", *ones, "dct2", *STEERED)


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare methods over networks, starts and seeds."""
    begins = [*starts(setting, "scratch"), *starts(setting, "pretrained")]
    test = collect(runs, begins, methods(setting), "test auc")
    val = collect(runs, begins, methods(setting), "val auc")
    families = {start.title: start.family for start in begins}
    return Outcome(
        verdicts=verdicts(test, val, families),
        tables={
            "Test AUC, mean over the five findings and over seeds": heat_table(test),
            "Each method against learned, over all networks, starts and seeds": significance(
                test, collect_findings(runs, begins, methods(setting))
            ),
        },
        figures={"Test AUC by network and method, mean over seeds": plot_heat(test)},
        notes=notes(setting, runs),
    )


def collect(
    runs: Mapping[str, Run], begins: Sequence[Start], names: Sequence[str], column: str
) -> Scores:
    """Scores by network and start, then by method, in the order of the seeds."""
    return {
        start.title: {name: finals(runs, start.label(name), column) for name in names}
        for start in begins
    }


def collect_findings(
    runs: Mapping[str, Run], begins: Sequence[Start], names: Sequence[str]
) -> dict[str, list[float]]:
    """The AUC of every finding of every run by method, in one order for all methods."""
    found: dict[str, list[float]] = {}
    for name in names:
        mine = [run for start in begins for run in runs_of(runs, start.label(name))]
        columns = [c for c in mine[0].history[-1] if c.startswith("test auc ")]
        found[name] = [final(run, column) for run in mine for column in columns]
    return found


def pool(scores: Scores, method: str) -> list[float]:
    """A method's scores over all networks, starts and seeds."""
    return [value for row in scores.values() for value in row[method]]


def verdicts(test: Scores, val: Scores, families: Mapping[str, str]) -> dict[str, Verdict]:
    """The four claims, by their rules; `families` has the architecture of each row."""
    steered = np.mean([pool(test, m) for m in STEERED], axis=0)
    over_dct2 = compare_paired(steered, pool(test, "dct2"))
    worse = compare_paired(pool(test, "learned"), pool(test, "dct2"))
    against = {m: compare_paired(pool(test, m), pool(test, "learned")) for m in STEERED}
    lowest = min(STEERED, key=lambda m: against[m].interval.low)
    equal = every([above(found.interval, -MARGIN) for found in against.values()])
    best = compare_best(test, val, families)
    return {
        "steered": Verdict(above(over_dct2.interval), str(over_dct2)),
        "dct2": Verdict(above(worse.interval), f"learned less DCT2 {worse}"),
        "equal": Verdict(equal, f"lowest: {LABELS[lowest]} {against[lowest]}"),
        "specific": judge_best(best),
    }


def compare_best(
    test: Scores, val: Scores, families: Mapping[str, str]
) -> dict[str, tuple[str, Paired]]:
    """By architecture: the steered method that does best on validation, less learned, on test."""
    found = {}
    for family in dict.fromkeys(families.values()):
        rows = [title for title in test if families[title] == family]
        mine, chosen_by = {r: test[r] for r in rows}, {r: val[r] for r in rows}
        if len(pool(mine, "learned")) < 2:
            continue
        best = max(STEERED, key=lambda m: float(np.mean(pool(chosen_by, m))))
        found[family] = best, compare_paired(pool(mine, best), pool(mine, "learned"))
    return found


def judge_best(best: Mapping[str, tuple[str, Paired]]) -> Verdict:
    """Agrees if one architecture does, disagrees if all do."""
    words: list[Word] = [above(found.interval) for _, found in best.values()]
    word: Word = "undecided"
    if "agrees" in words:
        word = "agrees"
    elif words and set(words) == {"disagrees"}:
        word = "disagrees"
    said = (f"{family} {LABELS[m]} {p.interval.mean:+.3f}" for family, (m, p) in best.items())
    return Verdict(word, ", ".join(said))


def heat_table(scores: Scores) -> pd.DataFrame:
    """A row per network and start, a column per method."""
    import pandas as pd

    rows = []
    for title, row in scores.items():
        means = {LABELS[method]: float(np.mean(values)) for method, values in row.items()}
        rows.append({"network": title, "runs": len(row["learned"]), **means})
    return pd.DataFrame(rows)


def significance(scores: Scores, findings: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """A row per method: its difference from learned, and tests over runs and over findings."""
    import pandas as pd

    names = [name for name in findings if name != "learned"]
    learned = pool(scores, "learned")
    tests = {m: paired_wilcoxon(pool(scores, m), learned) for m in names}
    corrected = holm(tests)
    rows: list[dict[str, Any]] = []
    for m in names:
        found = mean_interval(np.subtract(pool(scores, m), learned))
        each = paired_wilcoxon(findings[m], findings["learned"])
        rows.append(
            {
                "method": LABELS[m],
                "pairs": tests[m].pairs,
                "less learned": found.mean,
                "95% t interval": f"{found.low:+.3f} to {found.high:+.3f}",
                "Wilcoxon p": tests[m].p,
                "Holm": corrected[m].p,
                f"p over {each.pairs} findings": each.p,
                "paper's p": PAPER_P.get(m),
            }
        )
    return pd.DataFrame(rows)


def plot_heat(scores: Scores) -> Figure:
    """The paper's heat table: rows are networks and starts, columns methods."""
    titles, names = list(scores), list(next(iter(scores.values())))
    values = np.array([[np.mean(scores[title][name]) for name in names] for title in titles])
    figure = new_figure(7.0, 0.9 + 0.42 * len(titles))
    axes = figure.subplots()
    axes.imshow(values, cmap="viridis", aspect="auto")
    middle = (values.min() + values.max()) / 2
    for (y, x), value in np.ndenumerate(values):
        # not black or white, which a dark page would exchange
        ink = "#0b2545" if value > middle else "#fff2cc"
        axes.text(x, y, f"{value:.3f}", ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks(range(len(names)), [LABELS[name] for name in names], fontsize=8)
    axes.set_yticks(range(len(titles)), titles, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def notes(setting: Setting, runs: Mapping[str, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    if setting.scale == "cpu":
        said.append(
            "Two seeds each, the paper has one; Ones, which its table has not, is left out."
        )
    else:
        said.append("Ones is not in the paper's table.")
    said.append(PSINE)
    said.append(
        "Verdicts go by Student's t interval over runs. The paper's p-values are too small for its "
        "six pairs, so it may have paired findings: both tests are in the table. Findings of one "
        "run depend on each other."
    )
    return said


register(
    Experiment(
        name="classification",
        title="Fixed filters match learned ones on chest x-rays",
        reference="Fig. 10, Sec. 4.1",
        needs=("xrays",),
        claims=CLAIMS,
        cost={"smoke": "30 s", "cpu": "about 45 min on 2 cores", "paper": "about 13 GPU-days"},
        train=train,
        judge=judge,
    )
)
