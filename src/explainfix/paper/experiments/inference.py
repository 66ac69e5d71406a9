"""inference: most kernels of a trained fixed network can be zero if the others learn on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...lab.run.config import RunConfig
from ...lab.run.folder import Run
from ..experiment import Claim, Evidence, Experiment, judge_claims
from ..setting import Setting
from ..xrays import NETWORKS, best_starts, finals, options, train_methods
from ..xrays import notes as shared_notes
from ..zeroing import ZeroedKey, nearly_equal, plot_zeroed, with_none_zeroed, zeroed_table

SHARES = {"resnet": 0.99, "densenet": 0.95, "efficientnet": 0.85}

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


def train(setting: Setting) -> dict[ZeroedKey, Run]:
    """Learned networks and fixed ones; these go on with a share of their kernels zeroed."""
    seeds = range(setting.pick(smoke=2, cpu=3, paper=6))
    methods = ["learned", "unchanged"]
    runs = with_none_zeroed(train_methods(setting, best_starts(setting), methods, seeds))
    later = {
        replace(key, zeroed=SHARES[key.family]): RunConfig(
            model=str(trained.folder / "best.safetensors"),
            zero=SHARES[key.family],
            seed=key.seed,
            **options(setting),
        )
        for key, trained in runs.items()
        if key.method == "unchanged"
    }
    return runs | setting.sweep(later)


def judge(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> Evidence:
    """Compare zeroed networks with learned ones."""
    scores = finals(runs)
    shares = [(start, SHARES[start.family]) for start in best_starts(setting)]
    return Evidence(
        verdicts=judge_claims(CLAIMS, scores),
        tables={
            "Test AUC of trained networks with kernels zeroed, fine-tuned, and of learned ones": (
                zeroed_table(scores, shares)
            )
        },
        figures={
            "Test AUC at each epoch of fine-tuning, mean over seeds with its 95% t interval; grey "
            "is the training of the learned network": plot_zeroed(runs, shares)
        },
        notes=notes(setting, runs),
    )


def notes(setting: Setting, runs: Mapping[ZeroedKey, Run]) -> list[str]:
    """What differs from the paper."""
    said = shared_notes(setting, runs)
    epochs = next(iter(runs.values())).config.epochs
    said.append(
        f"Zeroed networks have seen {2 * epochs} epochs, {epochs} before zeroing and {epochs} "
        f"after, learned ones {epochs}: the paper's figure is of the same kind, its text says that "
        "it zeroed before training."
    )
    if setting.scale == "smoke":
        said.append("There is no tiny DenseNet: it is left out.")
    if setting.scale == "cpu":
        said.append("Three runs each, the paper has six.")
    return said


EXPERIMENT = Experiment(
    name="inference",
    title="Few filters suffice for inference",
    reference="Fig. K.1 (b), Sec. 4.5",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "5 s",
        "cpu": "about 13 min on 2 cores after classification and training",
        "paper": "about 17 GPU-days",
    },
    train=train,
    judge=judge,
)
