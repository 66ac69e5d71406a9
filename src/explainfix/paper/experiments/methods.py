"""methods: filters that the paper has not, and the guide that ships, against learned ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...lab.run.folder import Run
from ..contrast import Measure, Rule, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import LABELS
from ..scores import MARGIN, say_reach
from ..setting import Setting
from ..verdict import difference, signed
from ..xrays import Key, Start, finals, starts, train_methods
from ..xrays import notes as shared_notes

NEW = ("covariance", "masterkeys", "guidedsteer")
DEPTHWISE = ("mobilenet", "efficientnet")  # master keys are filters of depthwise networks

AUC = Measure("test AUC", Key)


def equals_learned(method: str) -> Rule:
    """A method against learned filters."""
    ours = AUC.mean(LABELS[method], method=method)
    return ours - AUC.mean("learned", method="learned") > -MARGIN


CLAIMS = (
    Claim(
        "covariance",
        "Filters that vary together as trained ones do about equal learned ones.",
        "not said",
        equals_learned("covariance"),
        kind="beyond",
    ),
    Claim(
        "masterkeys",
        "Eight master key filters about equal learned ones in a depthwise network.",
        "not said",
        equals_learned("masterkeys"),
        kind="beyond",
    ),
    Claim(
        "guide",
        "Filters guided by what ships of ImageNet's about equal learned ones.",
        "not said",
        equals_learned("guidedsteer"),
        kind="beyond",
    ),
)


def networks(setting: Setting) -> list[Start]:
    """A dense network and a depthwise one, from scratch."""
    found = starts(setting, "scratch")
    return [start for start in found if start.family != "densenet"]


def train(setting: Setting) -> dict[Key, Run]:
    """The new methods; learned, GHaar and the shipped guide are those of classification."""
    runs: dict[Key, Run] = {}
    for start in networks(setting):
        names = ["learned", "ghaar", "guidedsteer", "covariance"]
        if start.family in DEPTHWISE:
            names.append("masterkeys")
        changes: dict[str, Any] = {"fix_guide": "imagenet"}
        guided = [name for name in names if name == "guidedsteer"]
        plain = [name for name in names if name not in guided]
        runs |= train_methods(setting, [start], plain, paper=3, pooled=True)
        runs |= train_methods(setting, [start], guided, paper=3, pooled=True, **changes)
    return runs


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Compare with learned, seed by seed."""
    scores = finals(runs)
    return Evidence(
        scores={"test AUC": scores},
        tables={"Test AUC": table(setting, scores)},
        notes=notes(setting, runs, scores),
    )


def table(setting: Setting, scores: Scores) -> Rows:
    """A row per network and method."""
    rows: Rows = []
    for start in networks(setting):
        base = pick(scores, **start.fields, method="learned")
        for method in ("learned", "ghaar", *NEW):
            mine = pick(scores, **start.fields, method=method)
            if mine:
                less = signed(difference(mine, base)) if method != "learned" else None
                rows.append(
                    {
                        "network": start.title,
                        "method": LABELS[method],
                        "runs": len(mine),
                        "AUC": mean_of(scores, **start.fields, method=method),
                        "less learned": less,
                    }
                )
    return rows


def notes(setting: Setting, runs: Mapping[Key, Run], scores: Scores) -> list[str]:
    """How it was done."""
    said = shared_notes(setting, runs, usual=False)
    pairs = {}
    for method in NEW:
        families = {key.family for key in scores if key.method == method}
        mine = pick(scores, method=method)
        base = pick(scores, method="learned", family=tuple(families))
        pairs[LABELS[method]] = (mine, base)
    said.append(say_reach(pairs))
    said.append(
        "The guide that ships was made of the filters of MobileNetV2 and AlexNet, trained on "
        "ImageNet: to ResNet26 they are another network's."
    )
    return said


EXPERIMENT = Experiment(
    name="methods",
    title="Covariance, master keys, and a guide that ships",
    reference="Beyond the paper",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "10 s",
        "cpu": "about 40 min on 2 cores after classification",
        "paper": "about 12 GPU-days",
    },
    train=train,
    judge=judge,
)
