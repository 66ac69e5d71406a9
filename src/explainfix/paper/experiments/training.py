"""training: most fixed kernels can be zero before the first step, and the rest still learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...lab.run.folder import Run
from ..contrast import ABSENT, Scores, pick
from ..experiment import Claim, Evidence, Experiment
from ..scores import say_reach
from ..setting import Setting
from ..verdict import InWords, Verdict, every
from ..xrays import NETWORKS, Start, configure, finals, seeds, stand_ins
from ..xrays import notes as shared_notes
from ..zeroing import ZeroedKey, nearly_equal, plot_zeroed, zeroed_options, zeroed_table

TITLES = {family: network.title for family, network in NETWORKS["paper"].items()}
SHARES = {"resnet": 0.90, "densenet": 0.85, "efficientnet": 0.80}  # of the paper's figure
TEXT = {"resnet": 0.95, "densenet": 0.90, "efficientnet": 0.85}  # of its text


def judge_text(scores: Scores) -> Verdict:
    """All networks with the shares of the text."""
    found = {f: nearly_equal(f, share).judge(scores) for f, share in TEXT.items()}
    said = "; ".join(f"{TITLES[family]} {verdict.ours}" for family, verdict in found.items())
    absent = all(verdict.ours == ABSENT for verdict in found.values())
    return Verdict(every(v.word for v in found.values()), ABSENT if absent else said)


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
        InWords(
            "The same for each network with the text's shares: agrees if all do, disagrees if one "
            "does, else undecided; not tested if one is not trained.",
            judge_text,
        ),
    ),
)


def train(setting: Setting) -> dict[ZeroedKey, Run]:
    """Learned networks, and fixed ones of which a share is zero from the first step on.

    Which kernels those are is decided by the saliency of the trained network of the same seed, as
    in the authors' code.
    """
    learned = {
        ZeroedKey(family, "learned", 0.0, seed): configure(setting, start, "learned", seed)
        for family, start in stand_ins(setting, "scratch").items()
        for seed in seeds(setting, start, paper=6)
    }
    runs = setting.sweep(learned)
    zeroed, after = {}, {}
    for family, start, share in shares(setting):
        for seed in seeds(setting, start, paper=6):
            trained = runs[ZeroedKey(family, "learned", 0.0, seed)]
            changes = zeroed_options(setting, share)
            changes["zero_from"] = str(trained.folder)
            key = ZeroedKey(family, "unchanged", share, seed)
            zeroed[key] = configure(setting, start, "unchanged", seed, **changes)
            after[key] = trained
    return runs | setting.sweep(zeroed, after=after)


def shares(setting: Setting) -> list[tuple[str, Start, float]]:
    """What is zeroed: the figure's share of each network and, where there is time, the text's."""
    both = (SHARES,) if setting.scale == "cpu" else (SHARES, TEXT)
    found = stand_ins(setting, "scratch")
    return [(family, start, part[family]) for family, start in found.items() for part in both]


def judge(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> Evidence:
    """Compare zeroed networks with learned ones."""
    scores = finals(runs)
    found = stand_ins(setting, "scratch")
    figure = [(named(start, family), SHARES[family]) for family, start in found.items()]
    everything = [(named(start, family), share) for family, start, share in shares(setting)]
    return Evidence(
        scores={"AUC": scores},
        tables={"Test AUC with kernels zeroed, and learned": zeroed_table(scores, everything)},
        figures={
            "Test AUC at each epoch, mean over seeds with its 95% t interval; grey is "
            "learned": plot_zeroed(runs, figure)
        },
        notes=notes(setting, runs, scores),
    )


def named(start: Start, family: str) -> Start:
    """What stands in for a family, by the name of that family."""
    return replace(start, family=family)


def notes(setting: Setting, runs: Mapping[ZeroedKey, Run], scores: Scores) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    said.append(
        "Which kernels of a fresh network are zero is decided by the absolute gradients of the "
        "trained network of the same seed, as in the authors' code; the paper speaks of networks "
        "that were never trained. Zeroed kernels stay zero."
    )
    pairs = {
        TITLES[family]: (
            pick(scores, family=family, zeroed=share),
            pick(scores, family=family, method="learned"),
        )
        for family, _, share in shares(setting)
    }
    said.append(say_reach(pairs))
    if setting.scale == "smoke":
        said.append("There is no tiny DenseNet: it is left out.")
    if setting.scale == "cpu":
        said.append(
            "Three or five runs each, the paper has six; the text's larger shares are left out."
        )
    return said


EXPERIMENT = Experiment(
    name="training",
    title="Few filters suffice for training",
    reference="Fig. K.1 (a), Sec. 4.5",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "5 s",
        "cpu": "about an hour on 2 cores after classification",
        "paper": "about 17 GPU-days",
    },
    train=train,
    judge=judge,
)
