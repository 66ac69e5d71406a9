"""Rounds on disk: what each network is, costs and scores. What is written is never done again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ...explanation import explain
from ...layers import spatial_layers
from ..measure.timing import Ratio
from ..run.checkpoint import writing
from ..run.metrics import Outcomes, Score
from .cost import Costs, size_of
from .goal import Done

ROUND, OUTCOMES, MADE, RESULT = "round.json", "validation.safetensors", "made.json", "result.json"
_TAPS = 49  # of a spectrum on the page: larger kernels have none there


@dataclass(frozen=True)
class Layer:
    """What is left of a layer: channels, parameters, and the spectrum of spatial filters."""

    inputs: int
    outputs: int
    parameters: int
    spectrum: tuple[float, ...] = ()


@dataclass(frozen=True)
class Round:
    """A network of the search; number 0 is the original.

    `change` is how its validation score differs from the original's, with the paired interval.
    """

    number: int
    parent: int
    model: str  # what opens it
    way: str  # how it was cut
    aim: float
    knob: float  # the share of what was cut to that is left
    score: float
    change: Score
    costs: Costs
    layers: Mapping[str, Layer] = field(repr=False)
    tried: Mapping[str, float] = field(default_factory=dict)  # ways: their loss after a few steps
    smallest: bool = False
    seconds: float = 0.0

    @property
    def lost(self) -> float:
        """How much of the score is lost, on validation."""
        return -self.change.value

    def is_good(self, max_loss: float | None) -> bool:
        return max_loss is None or self.lost <= max_loss

    def done(self, cost: Any, max_loss: float | None) -> Done:
        """What counts of it for the next round."""
        return Done(self.knob, self.costs.shares[cost], self.is_good(max_loss), self.smallest)


def write_round(folder: Path, done: Round) -> None:
    """Write what is known of a round; it counts as done from then on."""
    write_json(folder / ROUND, asdict(done))


def read_round(folder: Path) -> Round | None:
    """The round in a folder, if it is done."""
    if not (folder / ROUND).is_file():
        return None
    held = json.loads((folder / ROUND).read_text())
    costs = held["costs"] | {"latency": Ratio(**held["costs"]["latency"])}
    layers = {
        path: Layer(**{**layer, "spectrum": tuple(layer["spectrum"])})
        for path, layer in held["layers"].items()
    }
    parts = {"costs": Costs(**costs), "layers": layers, "change": Score(**held["change"])}
    return Round(**{**held, **parts})


def describe_layers(model: nn.Module, x: torch.Tensor) -> dict[str, Layer]:
    """Every layer with weights; spatial ones with the shares of their energy by frequency."""
    _, sizes = size_of(model, x)
    spectra = {path: spectrum.ed for path, spectrum in explain(model).items()}
    known = spatial_layers(model)
    found = {}
    for path, size in sizes.items():
        shares: tuple[float, ...] = ()
        if path in known and path in spectra and len(spectra[path]) <= _TAPS:
            energies = spectra[path] / spectra[path].sum().clamp(min=1e-30)
            shares = tuple(round(value, 4) for value in energies.tolist())
        found[path] = Layer(size.inputs, size.outputs, size.parameters, shares)
    return found


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Keep what metrics need of every image."""
    tensors = {"values": outcomes.values}
    if outcomes.targets is not None:
        tensors["targets"] = outcomes.targets
    with writing(path) as temporary:
        save_file(tensors, temporary)


def read_outcomes(path: Path, like: Any) -> Outcomes:
    """What was kept, for the task and classes of a dataset."""
    held = load_file(path)
    return Outcomes(like.task, like.classes, held["values"], held.get("targets"))


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")
