"""inference: most kernels of a trained fixed network can be zero if the others learn on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...lab.run.folder import Run
from ..contrast import pick
from ..experiment import Claim, Evidence, Experiment
from ..scores import say_reach
from ..setting import Setting
from ..xrays import (
    BRIEF_SEEDS,
    FAMILIES,
    NETWORKS,
    Start,
    brief,
    configure,
    finals,
    seeds,
    stand_ins,
    starts,
)
from ..xrays import notes as shared_notes
from ..zeroing import ZeroedKey, nearly_equal, plot_zeroed, zeroed_options, zeroed_table

SHARES = {"resnet": 0.99, "densenet": 0.95, "efficientnet": 0.85}
BEFORE = "before"  # what a run's method ends with if it is the training that others go on from

CLAIMS = tuple(
    Claim(
        family,
        f"A trained {NETWORKS['paper'][family].title} with fixed ImageNet filters, {share:.0%} of "
        "them zeroed, nearly equals the learned baseline after its other weights have learned on.",
        f"{share:.0%} unnecessary for inference",
        nearly_equal(family, share),
    )
    for family, share in SHARES.items()
)


def networks(setting: Setting) -> list[tuple[Start, float]]:
    """The networks with ImageNet weights and the share of their kernels that is zeroed."""
    found = [(start, SHARES[family]) for family, start in stand_ins(setting, "pretrained").items()]
    others = [start for start in starts(setting, "pretrained") if start.family not in FAMILIES]
    found += [(start, SHARES["efficientnet"]) for start in others]
    return [(brief(setting, start), share) for start, share in found]


def train(setting: Setting) -> dict[ZeroedKey, Run]:
    """Learned and fixed networks; both go on, these with a share of their kernels zeroed."""
    begins = {start.family: (start, share) for start, share in networks(setting)}
    first = setting.sweep(
        {
            ZeroedKey(family, f"{method} {BEFORE}", 0.0, seed): configure(
                setting, start, method, seed
            )
            for family, (start, _) in begins.items()
            for method in ("learned", "unchanged")
            for seed in seeds(setting, start, paper=6)
        }
    )
    later, after = {}, {}
    for key, trained in first.items():
        start, share = begins[key.family]
        on = {"model": str(trained.folder), "weights": None}
        method = key.method.partition(" ")[0]
        key = replace(key, method=method, zeroed=share if method == "unchanged" else 0.0)
        changes = zeroed_options(setting, share) if key.zeroed else {}
        later[key] = configure(setting, start, "learned", key.seed, **on, **changes)
        after[key] = trained
    return first | setting.sweep(later, after=after)


def judge(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> Evidence:
    """Compare zeroed networks with learned ones, both trained on for as long."""
    found = {key: run for key, run in runs.items() if not key.method.endswith(BEFORE)}
    scores = finals(found)
    missing = [family for family in SHARES if not pick(scores, family=family)]
    tables, figures = {}, {}
    if shares := networks(setting):
        caption = (
            "Test AUC of trained networks with kernels zeroed, fine-tuned, and of learned ones"
        )
        tables[caption] = zeroed_table(scores, shares)
        figures[
            "Test AUC at each epoch of fine-tuning, mean over seeds with its 95% t interval; grey "
            "is learned"
        ] = plot_zeroed(found, shares)
    return Evidence(
        scores={"AUC": scores},
        untested=dict.fromkeys(missing, "no ImageNet weights of it are at hand"),
        tables=tables or {"Networks": [{"network": "none with ImageNet weights"}]},
        figures=figures,
        notes=notes(setting, runs, found),
    )


def notes(
    setting: Setting, runs: Mapping[ZeroedKey, Run], found: Mapping[ZeroedKey, Run]
) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs) if runs else []
    scores = finals(found)
    said.append(
        "Zeroed and learned networks have trained twice as long as elsewhere: half of it before "
        "zeroing and half after, the learned ones likewise, as in the authors' code. Kernels are "
        "zeroed by their absolute gradients, as there."
    )
    if scores:
        pairs = {
            start.title: (
                pick(scores, family=start.family, zeroed=share),
                pick(scores, family=start.family, method="learned"),
            )
            for start, share in networks(setting)
        }
        said.append(say_reach(pairs))
    if setting.scale == "smoke":
        said.append("There is no tiny DenseNet: it is left out.")
    if setting.scale == "cpu":
        said.append(f"{BRIEF_SEEDS} runs each, the paper has six.")
    return said


EXPERIMENT = Experiment(
    name="inference",
    title="Few filters suffice for inference",
    reference="Fig. K.1 (b), Sec. 4.5",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "5 s",
        "cpu": "about an hour on 2 cores",
        "paper": "about 17 GPU-days",
    },
    train=train,
    judge=judge,
)
