"""A run whose layout, precision and frugality are tried out before its first epoch.

What was chosen is noted in the run's folder, so that the same command finds it again: tried anew,
another choice could win by chance, and that would be another run.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path

import torch

from ..data.loader import Share, training_steps
from ..run.config import RunConfig
from ..run.devices import find_device, started_by_torchrun
from ..run.evaluation import check_shapes, compute_logits
from ..run.folder import build_model, open_data, settle
from ..run.naming import run_name, run_title
from .tuning import tune
from .ways import Settings

TUNING = "tuning.json"
_TUNED = [field.name for field in fields(Settings)]


@dataclass(frozen=True)
class TunedRun:
    """A run with the settings that were chosen, why, and what to write into its folder."""

    config: RunConfig
    why: tuple[str, ...]
    note: dict[str, str]


def tune_run(
    config: RunConfig, given: Collection[str], *, runs: Path, seconds: float = 20.0
) -> TunedRun:
    """Choose the settings that are not among the `given` options, by steps on the run's own data.

    They are those of an earlier run in `runs` if that one was asked for by the same options, but
    for when it ends.
    """
    kept = {name: getattr(config, name) for name in _TUNED if name in given}
    if config.compile:
        kept["frugal"] = False  # a compiler decides what is kept
    if len(kept) == len(_TUNED):
        raise ValueError(f"--tune has nothing to choose: {', '.join(_TUNED)} are given")
    if started_by_torchrun():
        raise ValueError(
            "--tune is for one process: use explainfix tune --write run.toml first, and start "
            "torchrun with --config run.toml"
        )
    asked = _identity(config, kept)
    for file in sorted(runs.glob(f"{run_title(config)}-*/{TUNING}")):
        about = json.loads(file.read_text())
        if about["asked"] == asked:
            why = (
                f"Settings as chosen for {str(file.parent)!r}: {Settings(**about['settings'])}.",
            )
            return TunedRun(_filled(config, about), why, {TUNING: file.read_text()})
    device = find_device(config.accelerator, config.devices)
    settled = settle(config)
    dataset = open_data(settled)
    share = Share(config.batch_size)
    steps = training_steps(dataset, config.train_split, share, seed=config.seed, epoch=0)
    [[(images, targets)]] = islice(steps, 1)
    network = build_model(settled, dataset).to(device)
    images = images.to(device)
    with torch.no_grad():
        check_shapes(compute_logits(network, images), targets, dataset)
    found = tune(network, images, seconds=seconds, given=kept)
    about = {"asked": asked, **found.as_dict()}
    return TunedRun(
        _filled(config, about),
        (*found.why, *found.risks),
        {TUNING: json.dumps(about, indent=2) + "\n"},
    )


def _filled(config: RunConfig, about: dict[str, dict[str, object]]) -> RunConfig:
    return replace(config, **about["settings"])  # type: ignore[arg-type]


def _identity(config: RunConfig, kept: dict[str, object]) -> str:
    """What the same command has in common, and no other, before anything is chosen for it."""
    name = run_name(replace(config, epochs=1, patience=None))
    return " ".join([name, *(f"{option}={value}" for option, value in kept.items())])
