"""robustness: what noise and blur cost networks with fixed and with learned filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ...lab.run.folder import Run, open_data
from .. import xrays
from ..contrast import Measure, Scores, mean_of, pick
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import LABELS
from ..rivals import gaussian
from ..scores import MARGIN, score_on
from ..setting import Setting, first_batches
from ..verdict import difference, signed

FIXED = ("unchanged", "ghaar")
METHODS = ("learned", *FIXED)
CORRUPTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "noise 0.05": lambda images: add_noise(images, 0.05),
    "noise 0.1": lambda images: add_noise(images, 0.1),
    "blur 0.75": lambda images: blur(images, 0.75),
    "blur 1.5": lambda images: blur(images, 1.5),
}


@dataclass(frozen=True)
class Key:
    """What tells scores apart."""

    network: str
    method: str
    corruption: str
    seed: int


LOST = Measure("test AUC of corrupted images less that of clean ones", Key)
lost = LOST.mean("learned", method="learned")
CLAIMS = tuple(
    Claim(
        method,
        f"{LABELS[method]} filters, fixed, lose no more to noise and blur than learned ones.",
        "not said",
        (LOST.mean(LABELS[method], method=method) - lost > -MARGIN).for_every("corruption"),
        kind="beyond",
    )
    for method in FIXED
)


def train(setting: Setting) -> dict[xrays.Key, Run]:
    """Runs of classification: nothing is trained for this alone."""
    return xrays.train_methods(setting, xrays.few_starts(setting), METHODS, paper=1, pooled=True)


def judge(setting: Setting, runs: Mapping[xrays.Key, Run]) -> Evidence:
    """Score the best weights of every run on clean and corrupted test images."""
    titles = xrays.titles(setting)
    scores, whole = {}, {}
    for key, found in measure(setting, runs).items():
        title = titles[key.family, key.begin]
        whole[Key(title, key.method, "", key.seed)] = found[""]
        for name in CORRUPTIONS:
            scores[Key(title, key.method, name, key.seed)] = found[name] - found[""]
    return Evidence(
        scores={"AUC lost": scores},
        tables={"Test AUC of clean images, and what is lost": table(scores, whole)},
        notes=notes(setting, runs),
    )


def measure(setting: Setting, runs: Mapping[xrays.Key, Run]) -> dict[xrays.Key, dict[str, float]]:
    """For each run the AUC of clean images, under "", and of corrupted ones."""
    data = open_data(next(iter(runs.values())).config)
    clean = first_batches(data, "test", setting.pick(smoke=1, cpu=None, paper=None), size=64)
    sets = {"": clean} | {
        name: [(corrupt(images), targets) for images, targets in clean]
        for name, corrupt in CORRUPTIONS.items()
    }

    def score_all(_: xrays.Key, run: Run) -> dict[str, float]:
        model = run.model("best").eval()
        return {name: score_on(model, batches, data) for name, batches in sets.items()}

    return setting.measure(runs, EXPERIMENT.name, score_all)


def add_noise(images: Tensor, deviation: float) -> Tensor:
    """Normal noise, the same for every network, clipped to the range of images."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(images.shape, generator=generator)
    return (images + deviation * noise).clamp(0, 1)


def blur(images: Tensor, width: float) -> Tensor:
    """A Gaussian blur of so many pixels, the border repeated.

    >>> blur(torch.ones(1, 1, 9, 9), 1.5).sub(1).abs().max().item() < 1e-6
    True
    """
    window = gaussian(width)
    reach = window.shape[-1] // 2
    padded = F.pad(images, [reach] * 4, mode="replicate")
    channels = images.shape[1]
    return F.conv2d(padded, window.expand(channels, 1, -1, -1), groups=channels)


def table(scores: Scores, whole: Scores) -> Rows:
    """A row per network and method, with its difference from learned for each corruption."""
    rows: Rows = []
    for network in dict.fromkeys(key.network for key in scores):
        for method in METHODS:
            row = {
                "network": network,
                "method": LABELS[method],
                "clean": mean_of(whole, network=network, method=method),
            }
            for name in CORRUPTIONS:
                mine, base = (
                    pick(scores, network=network, method=m, corruption=name)
                    for m in (method, "learned")
                )
                row[name] = mean_of(scores, network=network, method=method, corruption=name)
                if method != "learned" and len(mine) > 1:
                    row[f"{name}, less learned"] = signed(difference(mine, base))
            rows.append(row)
    return rows


def notes(setting: Setting, runs: Mapping[xrays.Key, Run]) -> list[str]:
    """How it was done."""
    few = ["DenseNet121 and MobileNetV2 from scratch are left out, for time."]
    return [
        *xrays.notes(setting, runs)[:-1],
        *(few if setting.scale == "cpu" else []),
        "Scored with the weights best on validation. Images are from 0 to 1: noise is normal, of "
        "that deviation, and the same for every network; blur is Gaussian, of that width in "
        "pixels. No network was trained on noisy or blurred images.",
    ]


EXPERIMENT = Experiment(
    name="robustness",
    title="Noise and blur",
    reference="Beyond the paper",
    needs=("xrays",),
    claims=CLAIMS,
    cost={
        "smoke": "5 s after classification",
        "cpu": "about 15 min after classification",
        "paper": "an hour after classification",
    },
    train=train,
    judge=judge,
    measure=measure,
)
