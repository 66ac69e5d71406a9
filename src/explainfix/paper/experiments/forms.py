"""forms: a network without learned mixing, fixed as it is, mixed and steered."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...lab.data.dataset import collate
from ...lab.measure.timing import time_training
from ...lab.run.folder import Run, open_data
from ..contrast import Measure, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import plot_groups
from ..scores import MARGIN, say_reach
from ..setting import Setting
from ..verdict import difference, signed
from ..xrays import Start, configure, finals, lasting, seeds
from ..xrays import notes as shared_notes
from ..zeroing import ROUNDS

LEARNED, FIXED, MIXED, STEERED = FORMS = ("learned", "fixed", "mixed", "steered")
OPTIONS: dict[str, dict[str, Any]] = {
    LEARNED: {},
    FIXED: {},
    MIXED: {"mix": True},
    STEERED: {"steer": True, "steer_filters": 1},
}


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    form: str
    seed: int


AUC = Measure("test AUC", Key)
learned, fixed, mixed, steered = (AUC.mean(form, form=form) for form in FORMS)
CLAIMS = (
    Claim(
        "fixed",
        "Where nothing learned lies between spatial layers, fixing them costs accuracy.",
        "not said",
        (learned - fixed).exceeds(MARGIN),
        kind="beyond",
    ),
    Claim(
        "mixed",
        "With a learned 1x1 behind each fixed layer it equals the learned network.",
        "not said",
        mixed - learned > -MARGIN,
        kind="beyond",
    ),
    Claim(
        "steered",
        "With one fixed filter a channel and a learned 1x1 in its place it does too.",
        "not said",
        steered - learned > -MARGIN,
        kind="beyond",
    ),
)


def network(setting: Setting) -> Start:
    """A ResNet of basic blocks: its 3x3 layers follow each other."""
    model = setting.pick(
        smoke="timm:test_resnet", cpu="torchvision:resnet18", paper="torchvision:resnet18"
    )
    options = {"model": model, **(lasting(8) if setting.scale == "cpu" else {})}
    return Start("resnet18", "scratch", "ResNet18, from scratch", options, seeds=3)


def train(setting: Setting) -> dict[Key, Run]:
    """Every form, fixed by GHaar."""
    return setting.sweep(
        {
            Key(form, seed): configure(
                setting,
                network(setting),
                "learned" if form == LEARNED else "ghaar",
                seed,
                **OPTIONS[form],
            )
            for form in FORMS
            for seed in seeds(setting, network(setting), paper=3)
        }
    )


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare forms seed by seed, and time them."""
    scores = finals(runs)
    seconds = time_forms(setting, runs)
    return Evidence(
        scores={"test AUC": scores},
        tables={"Test AUC, size and time": table(scores, runs, seconds)},
        figures={
            "Every run (dots) and the mean of each form with its 95% t interval": plot_groups(
                {form: pick(scores, form=form) for form in FORMS}, ylabel="test AUC"
            )
        },
        notes=notes(setting, runs, scores),
    )


def time_forms(setting: Setting, runs: Mapping[Key, Run]) -> dict[str, float]:
    """Seconds of a training step, forms taking turns; the median."""
    config = runs[Key(LEARNED, 0)].config
    data = open_data(config)
    images = data.split(config.train_split)
    x, _ = collate([data.prepare(images[i]) for i in range(config.batch_size)])
    first = setting.with_weights({form: runs[Key(form, 0)] for form in FORMS})
    networks = {form: run.model("last") for form, run in first.items()}
    rounds = setting.pick(smoke=3, cpu=ROUNDS, paper=ROUNDS)
    found = time_training(networks, x, rounds=rounds, narrow=0).times
    return {form: statistics.median(times) for form, times in found.items()}


def table(scores: Scores, runs: Mapping[Key, Run], seconds: Mapping[str, float]) -> Rows:
    """A row per form."""
    base = pick(scores, form=LEARNED)
    rows: Rows = []
    for form in FORMS:
        result = runs[Key(form, 0)].result
        less = signed(difference(pick(scores, form=form), base)) if form != LEARNED else None
        rows.append(
            {
                "form": form,
                "runs": len(pick(scores, form=form)),
                "AUC": mean_of(scores, form=form),
                "less learned": less,
                "parameters": result["parameters"],
                "learned parameters": result["learned_parameters"],
                "time of a step": f"{seconds[form] / seconds[LEARNED]:.0%}",
            }
        )
    return rows


def notes(setting: Setting, runs: Mapping[Key, Run], scores: Scores) -> list[str]:
    """How it was done."""
    said = shared_notes(setting, runs, usual=False)
    said.append("ResNet18 has no 1x1 convolution between its 3x3 layers; all are fixed by GHaar.")
    base = pick(scores, form=LEARNED)
    said.append(say_reach({form: (pick(scores, form=form), base) for form in FORMS[1:]}))
    said.append(
        "Earlier runs of these forms, with bfloat16 at 64 pixels and 12 epochs, were known when "
        "the rules were written."
    )
    return said


EXPERIMENT = Experiment(
    name="forms",
    title="A network without mixing: fixed, mixed, steered",
    reference="Beyond the paper",
    needs=("xrays",),
    claims=CLAIMS,
    cost={"smoke": "10 s", "cpu": "about 40 min on 2 cores", "paper": "about 5 GPU-days"},
    train=train,
    judge=judge,
)
