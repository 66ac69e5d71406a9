"""training: most fixed kernels can be zero before the first step, and the rest still learns."""

from __future__ import annotations

from collections.abc import Mapping

from ...lab.run.folder import Run
from ..contrast import ABSENT, Scores, Verdict, every
from ..experiment import Claim, Evidence, Experiment, judge_claims
from ..setting import Setting
from ..xrays import NETWORKS, Start, finals, starts, train_methods
from ..xrays import notes as shared_notes
from ..zeroing import (
    ZeroedKey,
    nearly_equal,
    plot_zeroed,
    train_zeroed,
    with_none_zeroed,
    zeroed_table,
)

TITLES = {family: network.title for family, network in NETWORKS["paper"].items()}
SHARES = {"resnet": 0.90, "densenet": 0.85, "efficientnet": 0.80}  # of the paper's figure
TEXT = {"resnet": 0.95, "densenet": 0.90, "efficientnet": 0.85}  # of its text

CLAIMS = (
    *(
        Claim(
            family,
            f"A fixed random {TITLES[family]} with {share:.0%} of its kernels zeroed before "
            "training nearly equals the learned baseline.",
            f"{share:.0%} unnecessary for training",
            nearly_equal(family, share),
        )
        for family, share in SHARES.items()
    ),
    Claim(
        "text",
        "The same holds with 95, 90 and 85%, as the text has it.",
        "95, 90 and 85% unnecessary",
        "The same for each network with the text's shares: agrees if all do, disagrees if one "
        "does, else undecided.",
    ),
)


def train(setting: Setting) -> dict[ZeroedKey, Run]:
    """Learned networks, and fixed ones of which a share is zero from the first step on."""
    seeds = range(setting.pick(smoke=2, cpu=3, paper=6))
    begins = starts(setting, "scratch")
    runs = with_none_zeroed(train_methods(setting, begins, ["learned"], seeds))
    for start, share in shares(setting):
        runs |= train_zeroed(setting, start, share, seeds)
    return runs


def shares(setting: Setting) -> list[tuple[Start, float]]:
    """What is zeroed: the figure's share of each network and, where there is time, the text's."""
    both = (SHARES,) if setting.scale == "cpu" else (SHARES, TEXT)
    return [(start, part[start.family]) for start in starts(setting, "scratch") for part in both]


def judge(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> Evidence:
    """Compare zeroed networks with learned ones."""
    scores = finals(runs)
    figure = [(start, SHARES[start.family]) for start in starts(setting, "scratch")]
    return Evidence(
        verdicts=judge_claims(CLAIMS, scores) | {"text": judge_text(scores)},
        tables={"Test AUC with kernels zeroed, and learned": zeroed_table(scores, shares(setting))},
        figures={
            "Test AUC at each epoch, mean over seeds with its 95% t interval; grey is "
            "learned": plot_zeroed(runs, figure)
        },
        notes=notes(setting, runs),
    )


def judge_text(scores: Scores) -> Verdict:
    """All networks with the shares of the text."""
    found = {f: nearly_equal(f, share).judge(scores) for f, share in TEXT.items()}
    said = "; ".join(f"{TITLES[family]} {verdict.ours}" for family, verdict in found.items())
    absent = all(verdict.ours == ABSENT for verdict in found.values())
    return Verdict(every(v.word for v in found.values()), ABSENT if absent else said)


def notes(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs, weights=False)
    said.append(
        "Saliency is computed on eight batches of the first epoch, on the random network; its "
        "zeroed kernels stay zero."
    )
    if setting.scale == "smoke":
        said.append("There is no tiny DenseNet: it is left out.")
    if setting.scale == "cpu":
        said.append("Three runs each, the paper has six; the text's larger shares are left out.")
    return said


EXPERIMENT = Experiment(
    name="training",
    title="Few filters suffice for training",
    reference="Fig. K.1 (a), Sec. 4.5",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "5 s",
        "cpu": "about 16 min on 2 cores after classification",
        "paper": "about 17 GPU-days",
    },
    train=train,
    judge=judge,
)
