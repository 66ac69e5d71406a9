"""inference: most kernels of a trained fixed network can be nought if the others learn on."""

from __future__ import annotations

from collections.abc import Mapping

from ...lab.run.config import RunConfig
from ...lab.run.folder import Run
from ..experiment import Claim, Experiment, Outcome, register
from ..setting import Setting
from ..xrays import Start, options, starts, train_methods
from ..xrays import notes as shared_notes
from .training import FAMILIES, RULE, Pair, compare, plot, table

SHARES = {"resnet": 0.99, "densenet": 0.95, "efficientnet": 0.85}

CLAIMS = tuple(
    Claim(
        family,
        f"A trained {title} with fixed ImageNet filters, {SHARES[family]:.0%} of them zeroed, "
        "nearly equals the learned baseline after its other weights have learned on.",
        f"{SHARES[family]:.0%} unnecessary for inference",
        RULE,
    )
    for family, title in FAMILIES.items()
)


def train(setting: Setting) -> dict[str, Run]:
    """Learned networks and fixed ones; these go on with a share of their kernels zeroed."""
    seeds = range(setting.pick(smoke=2, cpu=3, paper=6))
    runs = train_methods(setting, begins(setting), ["learned", "unchanged"], seeds)
    later = {}
    for start in begins(setting):
        for s in seeds:
            trained = runs[f"{start.label('unchanged')} {s}"]
            later[f"{start.label('zeroed')} {s}"] = RunConfig(
                model=str(trained.folder / "best.safetensors"),
                zero=SHARES[start.family],
                seed=s,
                **options(setting),
            )
    return runs | setting.sweep(later)


def begins(setting: Setting) -> list[Start]:
    """Each network from ImageNet weights if they can be had, else from scratch."""
    trained = {start.family: start for start in starts(setting, "pretrained")}
    return [trained.get(start.family, start) for start in starts(setting, "scratch")]


def judge(setting: Setting, runs: dict[str, Run]) -> Outcome:
    """Compare zeroed networks with learned ones."""
    pairs = {
        start.family: Pair(
            start.title, SHARES[start.family], start.label("zeroed"), start.label("learned")
        )
        for start in begins(setting)
    }
    return Outcome(
        verdicts={family: compare(runs, pairs.get(family)) for family in FAMILIES},
        tables={
            "Test AUC of trained networks with kernels zeroed, fine-tuned, and of learned ones": (
                table(runs, list(pairs.values()))
            )
        },
        figures={
            "Test AUC at each epoch of fine-tuning, mean over seeds with its 95% t interval; grey "
            "is the training of the learned network": plot(runs, list(pairs.values()))
        },
        notes=notes(setting, runs),
    )


def notes(setting: Setting, runs: Mapping[str, Run]) -> list[str]:
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


register(
    Experiment(
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
)
