"""classification: fixed initialisations against learned filters, three architectures on x-rays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...lab.measure.statistics import Interval, holm, paired_wilcoxon
from ...lab.run.folder import Run
from ..contrast import Measure, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, LABELS, Figure, new_figure, tidy
from ..scores import MARGIN, PSINE, STEERED, say_reach
from ..setting import Setting
from ..verdict import InWords, Verdict, decide, difference, signed, untested, word_of  # fmt: skip
from ..xrays import (
    Key,
    all_starts,
    finals,
    finding_scores,
    methods,
    on_chexpert,
    titles,
    train_methods,
)  # fmt: skip
from ..xrays import notes as shared_notes

LITERATURE = 0.863  # AUC of the published baseline on CheXpert, Fig. B.1a

PAPER_P = {  # of Fig. 10, two-sided: is the method equal to learned?
    "dct2": 2e-05,
    "ghaar": 0.026,
    "psine": 0.31,
    "unchanged": 0.33,
    "guidedsteer": 0.3,
}


@dataclass(frozen=True)
class ScoreKey:
    """What tells scores apart: `split` is what was scored, val or test."""

    split: str
    family: str
    begin: str
    method: str
    seed: int


AUC = Measure("test AUC", Key)
learned = AUC.mean("learned", method="learned")
dct2 = AUC.mean("DCT2", method="dct2")


def compare_best(scores: Scores) -> dict[str, tuple[str, Interval]]:
    """By architecture: the steered method that does best on validation, less learned, on test."""
    found = {}
    for family in dict.fromkeys(key.family for key in scores):
        base = pick(scores, split="test", family=family, method="learned")
        if len(base) > 1:
            by_val = {m: mean_of(scores, split="val", family=family, method=m) for m in STEERED}
            best = max(by_val, key=by_val.__getitem__)
            ours = pick(scores, split="test", family=family, method=best)
            found[family] = best, difference(ours, base)
    return found


def judge_best(scores: Scores) -> Verdict:
    """Agrees if one architecture does, disagrees if all do."""
    best = compare_best(scores)
    if not best:
        return untested("one run of each, of which no interval can be made")
    words = {word_of(found, counts=MARGIN) for _, found in best.values()}
    said = (f"{family} {LABELS[m]} {signed(found)}" for family, (m, found) in best.items())
    return decide(", ".join(said), agrees="agrees" in words, disagrees=words == {"disagrees"})


CLAIMS = (
    Claim(
        "steered",
        "Steered fixed filters do better than the unsteered DCT2.",
        "steered > DCT2, significantly",
        (AUC.mean("the steered methods", method=STEERED) - dct2).exceeds(MARGIN),
        on="test AUC",
    ),
    Claim(
        "dct2",
        "DCT2 does worse than the learned baseline.",
        f"not equal, p = {PAPER_P['dct2']}",
        (learned - dct2).exceeds(MARGIN).in_full(),
        on="test AUC",
    ),
    Claim(
        "equal",
        "Over all networks, every steered method about equals the learned baseline.",
        "equal, p from 0.026 to 0.33",
        (AUC.each("each steered method", method=STEERED) - learned > -MARGIN).for_every("method"),
        on="test AUC",
    ),
    Claim(
        "specific",
        "On some architectures steered filters do better than learned ones.",
        "Psine on DenseNet, GHaar and GuidedSteer on EfficientNet",
        InWords(
            "For each architecture the steered method with the highest mean validation AUC, less "
            "learned, on test, over starts and seeds. Agrees if the 95% t interval lies above 0 "
            f"for one architecture at least, disagrees if it lies below {MARGIN} for all, which is "
            "nothing that counts, else undecided.",
            judge_best,
        ),
        on="val and test AUC",
    ),
    Claim(
        "comparable",
        "The learned baselines are comparable to the literature's.",
        f"about {LITERATURE} on CheXpert",
        AUC.mean("learned", method="learned").within(MARGIN, of=LITERATURE),
        on="test AUC",
    ),
)


def train(setting: Setting) -> dict[Key, Run]:
    """All methods on all networks, from scratch and pretrained."""
    return train_methods(setting, all_starts(setting), methods(setting), paper=1, pooled=True)


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare methods over networks, starts and seeds."""
    scores, columns = finals(runs), methods(setting)
    val = finals(runs, "val auc")
    means = {
        start.title: {m: mean_of(scores, **start.fields, method=m) for m in columns}
        for start in all_starts(setting)  # the rows of the paper's table
    }
    return Evidence(
        scores={
            "test AUC": scores,
            "val and test AUC": {
                ScoreKey(split, *vars(key).values()): score
                for split, all_ in (("val", val), ("test", scores))
                for key, score in all_.items()
            },
        },
        untested={} if on_chexpert(setting) else {"comparable": "these images are not CheXpert's"},
        tables={
            "Test AUC, mean over the five findings and over seeds": [
                {
                    "network": start.title,
                    "runs": len(pick(runs, **start.fields, method="learned")),
                    **{LABELS[m]: mean for m, mean in means[start.title].items()},
                }
                for start in all_starts(setting)
            ],
            "Less learned, on each network": by_network(setting, scores, columns),
            "Each method against learned, over all networks, starts and seeds": significance(
                scores,
                {m: [s for r in pick(runs, method=m) for s in finding_scores(r)] for m in columns},
            ),
        },
        figures={
            "Test AUC by network and method, mean over seeds": plot_heat(means),
            f"The learned baselines, a dot each (Fig. B.1a); dashed: {LITERATURE}, the "
            "literature's on CheXpert": plot_baselines(setting, scores),
        },
        notes=notes(setting, runs, scores),
    )


def by_network(setting: Setting, scores: Scores, columns: list[str]) -> Rows:
    """A row per network, with the interval of each method over seeds."""
    rows: Rows = []
    for start in all_starts(setting):
        base = pick(scores, **start.fields, method="learned")
        ours = {m: pick(scores, **start.fields, method=m) for m in columns if m != "learned"}
        if len(base) > 1:
            cells = {LABELS[m]: signed(difference(values, base)) for m, values in ours.items()}
            rows.append({"network": start.title, **cells})
    return rows


def plot_baselines(setting: Setting, scores: Scores) -> Figure:
    """A row of dots for each network."""
    figure = new_figure(6.0, 2.4)
    axes = figure.subplots()
    named = titles(setting)
    for place, (family, begin) in enumerate(named):
        dots = pick(scores, family=family, begin=begin, method="learned")
        axes.plot(dots, [place] * len(dots), "o", color=COLOURS["ghaar"], alpha=0.6, markersize=5)
    axes.set_yticks(range(len(named)), list(named.values()))
    axes.axvline(LITERATURE, color=COLOURS["learned"], linestyle="--", linewidth=1)
    tidy(axes, x="test AUC")
    return figure


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
                "one-sided": paired_wilcoxon(
                    findings[m], findings["learned"], alternative="less"
                ).p,
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


def notes(setting: Setting, runs: Mapping[Key, Run], scores: Scores) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    if setting.scale == "cpu":
        said.append(
            "Three seeds of each network, the paper has one; Ones, which its table has not, is "
            "left out."
        )
    else:
        said.append("Ones is not in the paper's table.")
    base = pick(scores, method="learned")
    said.append(say_reach({LABELS[m]: (pick(scores, method=m), base) for m in STEERED}))
    said.append(PSINE)
    said.append(
        "Verdicts go by Student's t interval over pairs of runs, which differ between networks "
        "more than between seeds: the interval holds both. The authors' p-values are one-sided, of "
        "30 pairs, six networks by five findings; findings of one run depend on each other, so "
        "that they decide nothing here."
    )
    return said


EXPERIMENT = Experiment(
    name="classification",
    title="Fixed filters match learned ones on chest x-rays",
    reference="Fig. 10, Sec. 4.1",
    needs=("xrays",),
    claims=CLAIMS,
    cost={"smoke": "30 s", "cpu": "about 5 h on 2 cores", "paper": "about 13 GPU-days"},
    train=train,
    judge=judge,
)
