"""The network to shrink: found, or trained first; its data, and how smaller ones are trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ...marks.untrained import is_untrained
from ...zoo.opening import is_complete, open_network, split_run, split_weights
from ...zoo.own import split_factory
from ..data.dataset import Dataset
from ..data.loader import Share
from ..run.config import RunConfig
from ..run.evaluation import collect_outcomes
from ..run.folder import network_of, open_data, read_run, settle
from ..run.metrics import Outcomes
from ..run.naming import run_name, run_title
from ..sweep.sweep import Workers, sweep
from .goal import Asked
from .progress import ShrinkMoment, ShrinkReport

_UNDECIDED = ("rounds", "despite_noise")  # options that say when to stop, not what to do


@dataclass(frozen=True)
class Original:
    """A trained network: what opens it, the options of its run, and its data."""

    model: str
    config: RunConfig
    dataset: Dataset

    @property
    def title(self) -> str:
        """Its run's name, or that of a run that would begin with it."""
        run = split_run(self.model)
        return run[0].resolve().name if run else run_title(self.config)

    @property
    def split(self) -> str:
        """The split that decides: validation."""
        return self.config.evaluate_on[0]

    @property
    def device(self) -> torch.device:
        """Where networks are tried and measured: where they are trained."""
        kind = self.config.accelerator
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        found = [name for name, is_there in there.items() if is_there and kind in ("auto", name)]
        return torch.device(found[0] if found else "cpu")

    def open(self, model: str | None = None) -> nn.Module:
        """The network, or a smaller one made of it, ready to be tried."""
        return open_network(model or self.model).to(self.device).eval()

    def folder(self, runs: Path, asked: Asked) -> Path:
        """Where its search is: another folder for everything that may change the outcome."""
        decisive = {k: v for k, v in dataclasses.asdict(asked).items() if k not in _UNDECIDED}
        text = json.dumps([run_name(self.config), decisive], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return runs / f"{self.title}-shrunk-{digest}"

    def batch(self, asked: Asked) -> Tensor:
        """What latency and memory are measured on: noise of the size of an image."""
        image = self.dataset.prepare(self.dataset.split(self.split)[0]).image
        size = asked.size or tuple(image.shape[1:])
        if len(size) == 1:
            size = size * (image.dim() - 1)
        if len(size) != image.dim() - 1:
            raise ValueError(
                f"images have {image.dim() - 1} axes beside the channels: a size of as many "
                f"numbers is needed, not {'x'.join(map(str, size))!r}"
            )
        shape = (asked.batch, len(image), *size)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        return noise.to(self.device)

    def outcomes(self, network: nn.Module, split: str) -> Outcomes:
        """What metrics need of every image of a split, which must have labels."""
        known = 0

        def see(indices: list[int], logits: Tensor, targets: Tensor) -> None:
            nonlocal known
            known += int((~targets.double().isnan()).sum())

        share = Share(self.config.eval_batch_size or 1)
        outcomes = collect_outcomes(network, self.dataset, split, share, see=see)
        if not known:
            raise ValueError(
                f"the images of {split!r} have no labels: what is lost of the score cannot be told"
            )
        return outcomes

    def tuning(self, file: Path, asked: Asked, teacher: Path | None = None) -> RunConfig:
        """The run that fine-tunes a file: one cycle, at a share of the original's rate."""
        return replace(
            self.config,
            model=self._named(file),
            epochs=asked.epochs,
            lr=asked.rate * (self.config.lr or 0.0),
            schedule="onecycle",
            teacher=None if teacher is None else self._named(teacher),
            distil=asked.distil if teacher else None,
        )

    def _named(self, file: Path) -> str:
        """What opens a file with a network that was made of this one."""
        built = network_of(self.model)
        return f"{built}@{file}" if split_factory(built) else str(file)


def find_original(
    model: str | RunConfig, runs: Path, workers: Workers, report: ShrinkReport
) -> Original:
    """The network of a run, or that of a run's options, which is trained if it is not yet."""
    if isinstance(model, RunConfig):
        config, spec = model, _trained(model, runs, workers, report)
    elif run := split_run(model):
        config, spec = read_run(run[0]).config, model
    else:
        raise ValueError(
            f"{model!r} is no run's folder: say what data to train on, "
            "RunConfig(model=..., data=...)"
        )
    config = settle(config)
    dataset = open_data(config)
    config = config.resolved(dataset.task, len(dataset.classes))
    return Original(spec, _plain(replace(config, model=spec)), dataset)


def _trained(config: RunConfig, runs: Path, workers: Workers, report: ShrinkReport) -> str:
    """What opens the trained network of these options."""
    given = is_complete(config.model) or split_weights(config.model)[1] is not None
    if given and config.fix is None and not is_untrained(open_network(config.model)):
        return config.model
    report(ShrinkMoment(0, "training the original"))
    [run] = sweep(
        {"original": config},
        runs=runs,
        workers=workers,
        report=lambda moment: report(ShrinkMoment(0, moment.line)),
    ).values()
    return str(run.folder)


def _plain(config: RunConfig) -> RunConfig:
    """The options of a run without its teacher, and what was done before the first step."""
    done = ("fix", "steer", "mix", "zero", "prune", "weights", "teacher", "distil")
    kept = {
        entry.name: getattr(config, entry.name)
        for entry in dataclasses.fields(RunConfig)
        if not entry.name.startswith(done)
    }
    kept |= {"evaluate_on": config.evaluate_on[:1], "evaluate_every": 1, "patience": None}
    return RunConfig(**kept, fix_seed=config.fix_seed)
