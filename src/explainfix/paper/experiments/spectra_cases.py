"""The networks that spectra looks at, and what ExplainSteer says of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from ...explanation import Explanation, explain, saliency
from ...lab.data.dataset import Dataset
from ...lab.data.loader import evaluation_batches
from ...lab.run.folder import Run, open_data
from ...recipe import changed_layers
from .. import xrays
from ..pretrained import find_pretrained
from ..setting import Setting
from . import classification, steering

UNETD = "U-NetD"


@dataclass(frozen=True)
class Case:
    """A network, how its filters came about, and its spectra."""

    network: str
    method: str
    seed: int
    plain: Explanation
    weighted: Explanation | None
    changed: int | None  # fixed layers that training changed; `None` if it was not trained


def train(setting: Setting) -> dict[str, Run]:
    """The runs of steering; on x-rays learned networks and one from ImageNet with all methods."""
    seeds = range(setting.pick(smoke=2, cpu=3, paper=6))
    unetd = steering.train_methods(setting, seeds, **steering.options(setting))
    runs = {f"{UNETD}/{label}": run for label, run in unetd.items()}
    scratch = xrays.starts(setting, "scratch")
    learned = range(setting.pick(smoke=2, cpu=2, paper=1))
    runs |= _titled(scratch, xrays.train_methods(setting, scratch, ["learned"], learned))
    trained = [] if setting.scale == "smoke" else xrays.starts(setting, "pretrained")
    tuned = [start for start in trained if start.family == "densenet"] or trained[:1]
    methods = classification.methods(setting)
    return runs | _titled(tuned, xrays.train_methods(setting, tuned, methods, [0]))


def _titled(begins: Sequence[xrays.Start], runs: Mapping[str, Run]) -> dict[str, Run]:
    """Runs by "TITLE/METHOD SEED"."""
    titles = {start.label("").strip(): start.title for start in begins}
    found = {}
    for label, run in runs.items():
        family, begin, method, seed = label.split(" ")
        found[f"{titles[f'{family} {begin}']}/{method} {seed}"] = run
    return found


def trained_cases(setting: Setting, runs: Mapping[str, Run]) -> Iterator[Case]:
    """The runs; saliency only for what is learned or drawn."""
    batches: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for label, run in setting.tracked(list(runs.items()), "Explaining"):
        network, _, rest = label.partition("/")
        method, _, seed = rest.partition(" ")
        model = run.model("best")
        wrapped = network.replace(", ", "\n")  # below its bars
        scores = None
        if method == "learned" or seed == "0":
            data = run.config.data
            if data not in batches:
                batches[data] = some_batches(setting, open_data(run.config))
            scores = saliency(model, batches[data])
        yield Case(
            network,
            method,
            int(seed),
            explain(model, title=network),
            explain(model, saliency=scores, title=wrapped) if scores else None,
            None if method == "learned" else len(changed_layers(model)),
        )


def some_batches(setting: Setting, data: Dataset) -> list[tuple[Tensor, Tensor]]:
    """The first test images: one a batch for masks, four for labels."""
    size = 1 if data.task == "segmentation" else 4
    count = setting.pick(smoke=2, cpu=16, paper=64)
    found = evaluation_batches(data, "test", batch_size=size)
    return [(images, targets) for _, images, targets in islice(found, count)]


def untrained_cases(setting: Setting) -> Iterator[Case]:
    """Networks from ImageNet whose weights are here, as they are."""
    networks = {} if setting.scale == "smoke" else find_pretrained()
    if not networks:
        return
    grey = some_batches(setting, setting.open_data("xrays"))
    images = [(x.expand(-1, 3, -1, -1) - 0.45) / 0.225 for x, _ in grey]
    for name, network in setting.tracked(list(networks.items()), "Explaining what is pretrained"):
        title = f"{name} on ImageNet"
        scores = saliency(network, images)
        weighted = explain(network, saliency=scores, title=f"{name}\non ImageNet")
        yield Case(title, "learned", 0, explain(network, title=title), weighted, None)
