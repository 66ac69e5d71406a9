"""classification: fixed initialisations against learned filters, three architectures on x-rays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...lab.measure.statistics import Interval, holm, paired_wilcoxon
from ...lab.run.folder import Run
from ..contrast import Scores, Verdict, decide, difference, mean_of, pick, word_of
from ..experiment import Claim, Evidence, Experiment, Rows, judge_claims
from ..figures import LABELS, Figure, new_figure
from ..scores import MARGIN, PSINE, STEERED
from ..setting import Setting
from ..xrays import AUC, Key, all_starts, finals, finding_scores, methods, train_methods
from ..xrays import notes as shared_notes

PAPER_P = {  # of Fig. 10, two-sided: is the method equal to learned?
    "dct2": 2e-05,
    "ghaar": 0.026,
    "psine": 0.31,
    "unchanged": 0.33,
    "guidedsteer": 0.3,
}

learned = AUC.mean("learned", method="learned")
dct2 = AUC.mean("DCT2", method="dct2")
CLAIMS = (
    Claim(
        "steered",
        "Steered fixed filters do better than the unsteered DCT2.",
        "steered > DCT2, significantly",
        AUC.mean("the steered methods", method=STEERED) - dct2 > 0,
    ),
    Claim(
        "dct2",
        "DCT2 does worse than the learned baseline.",
        f"not equal, p = {PAPER_P['dct2']}",
        (learned - dct2 > 0).in_full(),
    ),
    Claim(
        "equal",
        "Over all networks, every steered method about equals the learned baseline.",
        "equal, p from 0.026 to 0.33",
        (AUC.each("each steered method", method=STEERED) - learned > -MARGIN).for_every("method"),
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


def train(setting: Setting) -> dict[Key, Run]:
    """All methods on all networks, from scratch and pretrained."""
    seeds = range(setting.pick(smoke=2, cpu=2, paper=1))
    return train_methods(setting, all_starts(setting), methods(setting), seeds)


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare methods over networks, starts and seeds."""
    scores, columns = finals(runs), methods(setting)
    means = {
        start.title: {m: mean_of(scores, **start.fields, method=m) for m in columns}
        for start in all_starts(setting)  # the rows of the paper's table
    }
    count = setting.pick(smoke=2, cpu=2, paper=1)
    return Evidence(
        verdicts=judge_claims(CLAIMS, scores)
        | {"specific": judge_best(compare_best(scores, finals(runs, "val auc")))},
        tables={
            "Test AUC, mean over the five findings and over seeds": [
                {"network": title, "runs": count, **{LABELS[m]: mean for m, mean in row.items()}}
                for title, row in means.items()
            ],
            "Each method against learned, over all networks, starts and seeds": significance(
                scores,
                {m: [s for r in pick(runs, method=m) for s in finding_scores(r)] for m in columns},
            ),
        },
        figures={"Test AUC by network and method, mean over seeds": plot_heat(means)},
        notes=notes(setting, runs),
    )


def compare_best(test: Scores, val: Scores) -> dict[str, tuple[str, Interval]]:
    """By architecture: the steered method that does best on validation, less learned, on test."""
    found = {}
    for family in dict.fromkeys(key.family for key in test):
        base = pick(test, family=family, method="learned")
        if len(base) > 1:
            by_val = {m: mean_of(val, family=family, method=m) for m in STEERED}
            best = max(by_val, key=by_val.__getitem__)
            found[family] = best, difference(pick(test, family=family, method=best), base)
    return found


def judge_best(best: Mapping[str, tuple[str, Interval]]) -> Verdict:
    """Agrees if one architecture does, disagrees if all do."""
    words = {word_of(found) for _, found in best.values()}
    said = (f"{family} {LABELS[m]} {found.mean:+.3f}" for family, (m, found) in best.items())
    return decide(", ".join(said), agrees="agrees" in words, disagrees=words == {"disagrees"})


def significance(scores: Scores, findings: Mapping[str, list[float]]) -> Rows:
    """A row per method: its difference from learned, and tests over runs and over findings."""
    pairs = {m: (pick(scores, method=m), pick(scores, method="learned")) for m in findings}
    del pairs["learned"]
    tests = {m: paired_wilcoxon(*pair) for m, pair in pairs.items()}
    corrected = holm(tests)
    rows: Rows = []
    for m, pair in pairs.items():
        found = difference(*pair)
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
    return rows


def plot_heat(means: Mapping[str, Mapping[str, float]]) -> Figure:
    """The paper's heat table: rows are networks and starts, columns methods."""
    titles, names = list(means), list(next(iter(means.values())))
    values = np.array([list(row.values()) for row in means.values()])
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


def notes(setting: Setting, runs: Mapping[Key, Run]) -> list[str]:
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


EXPERIMENT = Experiment(
    name="classification",
    title="Fixed filters match learned ones on chest x-rays",
    reference="Fig. 10, Sec. 4.1",
    needs=("xrays",),
    claims=CLAIMS,
    cost={"smoke": "30 s", "cpu": "about 45 min on 2 cores", "paper": "about 13 GPU-days"},
    train=train,
    judge=judge,
)
