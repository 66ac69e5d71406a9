"""The state of a run in one process: a step, an epoch, an evaluation, a checkpoint."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ...layers import spatial_layers
from ...layout import to_channels_last
from ...store import save
from ...watch import Timeline, Watch
from ..data.dataset import Dataset
from ..data.loader import Batch, Share, count_steps, step_seed, training_steps
from .checkpoint import Checkpoint, failures_named, read_checkpoint, write_checkpoint
from .config import RunConfig
from .devices import learning_rate, make_optimizer, make_ready_
from .evaluation import (
    average_statistics_,
    check_shapes,
    collect_outcomes,
    compute_logits,
    describe_fault,
)
from .folder import CHECKPOINT, Moment, Report, build_model, open_teacher
from .history import read_spectra
from .losses import Loss, distance, losses
from .metrics import score

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Work:
    """The state of a run in one process."""

    def __init__(self, fabric: "Fabric", config: RunConfig, folder: Path, dataset: Dataset) -> None:
        self.fabric, self.config, self.folder, self.dataset = fabric, config, folder, dataset
        self.network = build_model(config, dataset)
        make_ready_(self.network, channels_last=config.channels_last, frugal=config.frugal)
        self.spectra: Timeline | None = None  # from the start on, so before a checkpoint is read
        if fabric.is_global_zero and spatial_layers(self.network):
            self.spectra = (
                read_spectra(folder)
                or Watch(self.network, fixed="ignore", title=config.model).timeline
            )
        self.checkpoint = folder / CHECKPOINT
        self.optimizer = make_optimizer(config, fabric.to_device(self.network))
        self.progress = Checkpoint()
        if self.checkpoint.exists():
            self.progress = read_checkpoint(self.checkpoint, self.network, self.optimizer)
            fabric.strategy.precision.load_state_dict(self.progress.scaler)
        # Evaluation and files have the network itself; a compiled one shares its weights.
        trained = cast(nn.Module, torch.compile(self.network)) if config.compile else self.network
        self.model, self.stepper = fabric.setup(trained, self.optimizer)
        self.teacher = open_teacher(config, dataset)
        if self.teacher is not None:
            fabric.to_device(self.teacher)
        self.loss: Loss = losses.find(config.loss or "")(dataset.split(config.train_split))
        self.steps = count_steps(dataset, config.train_split, self._share)

    @property
    def _share(self) -> Share:
        config, fabric = self.config, self.fabric
        return Share(config.batch_size, config.accumulate, fabric.global_rank, fabric.world_size)

    def train_epoch(self, report: Report | None) -> float:
        """Do what is left of an epoch; the mean loss of all of it."""
        config, progress, fabric = self.config, self.progress, self.fabric
        began = saved = time.monotonic()
        self.network.train()
        for batches in training_steps(
            self.dataset,
            config.train_split,
            self._share,
            seed=config.seed,
            epoch=progress.epoch,
            start=progress.step,
            workers=config.workers,
        ):
            progress.loss += self.step(batches)
            progress.step += 1
            if report:
                place = (progress.epoch, config.epochs, progress.step, self.steps)
                report(Moment(*place, progress.loss / progress.step))
            now = time.monotonic()
            if fabric.broadcast(now - saved > config.checkpoint_seconds):
                progress.seconds, began, saved = progress.seconds + now - began, now, now
                self.save()
        progress.seconds += time.monotonic() - began
        return progress.loss / self.steps

    def step(self, batches: list[Batch]) -> float:
        """One step of the optimizer; the mean loss over its batches and all processes."""
        config, fabric, progress = self.config, self.fabric, self.progress
        done = progress.epoch * self.steps + progress.step
        rate = learning_rate(config, done / max(self.steps * config.epochs - 1, 1))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        seed = step_seed(config.seed, progress.epoch, progress.step, fabric.global_rank)
        torch.manual_seed(seed)  # inside the caller's fork_rng: for dropout and the like
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=fabric.device)
        for number, (images, targets) in enumerate(fabric.to_device(batches), start=1):
            if config.channels_last:
                images = to_channels_last(images)
            with fabric.no_backward_sync(self.model, enabled=number < len(batches)):
                logits = compute_logits(self.model, images)
                check_shapes(logits, targets, self.dataset)
                targets = targets.to(logits.dtype)
                loss = self.loss(logits, targets) / len(batches)
                if config.distil is not None:
                    taught = self.ask_teacher(images, targets).to(logits.dtype)
                    far = distance(logits, taught, targets, self.dataset.task) / len(batches)
                    loss = (1 - config.distil) * loss + config.distil * far
                if not loss.isfinite():
                    torch.manual_seed(seed)
                    with fabric.autocast():
                        cause = describe_fault(self.network, images)
                    place = f"epoch {progress.epoch + 1}, step {progress.step + 1}"
                    raise ValueError(f"the loss is {loss.item()} in {place}, because of {cause}")
                fabric.backward(loss)
            total += loss.detach()
        if config.clip is not None:
            fabric.clip_gradients(self.model, self.stepper, max_norm=config.clip)
        self.stepper.step()
        return _reduced(fabric, total, "mean").item()

    def ask_teacher(self, images: Tensor, targets: Tensor) -> Tensor:
        """The teacher's logits of a batch, as it was augmented."""
        assert self.teacher is not None
        try:
            with torch.no_grad(), self.fabric.autocast():
                logits = compute_logits(self.teacher, images.to(next(self.teacher.parameters())))
            check_shapes(logits, targets, self.dataset)
            if not logits.isfinite().all():
                raise ValueError("its outputs are not finite")
        except ValueError as error:
            raise ValueError(f"the teacher {self.config.teacher!r}: {error}") from error
        return logits

    def evaluate(self) -> dict[str, float]:
        """The scores on each split, each process doing its share."""
        config, fabric = self.config, self.fabric
        if config.recalibrate:
            self._recalibrate()
        for buffer in self.network.buffers() if fabric.world_size > 1 else ():
            torch.distributed.broadcast(buffer, 0)  # BatchNorm counts as in the first process
        row: dict[str, float] = {}
        for split in config.evaluate_on:
            losses = torch.zeros(2, dtype=torch.float64)  # their sum over images, and how many
            with fabric.autocast():
                outcomes = collect_outcomes(
                    self.network,
                    self.dataset,
                    split,
                    replace(self._share, batch_size=config.eval_batch_size or 1),
                    workers=config.workers,
                    total=partial(_reduced, fabric, how="sum"),
                    see=partial(self._add_loss, losses),
                )
            lost, images = _reduced(fabric, losses.float(), "sum").tolist()
            row[f"{split} loss"] = lost / images
            scores = score(outcomes)
            row |= {f"{split} {one.name}": one.value for one in scores.scores}
            self.progress.left_out[split] = scores.left_out
        return row

    def _recalibrate(self) -> None:
        """BatchNorm's statistics of the weights as they are now, over batches as in training."""
        config = self.config
        with self.fabric.autocast():
            average_statistics_(
                self.network,
                self.dataset,
                config.train_split,
                self._share,
                steps=config.recalibrate,
                seed=config.seed,
                epoch=self.progress.epoch,
                workers=config.workers,
            )

    def _add_loss(
        self, losses: Tensor, indices: list[int], logits: Tensor, targets: Tensor
    ) -> None:
        loss = self.loss(logits, targets.to(logits.dtype)).double().cpu()
        losses += torch.stack([loss * len(indices), torch.tensor(float(len(indices)))])

    def save(self) -> None:
        """Write a checkpoint, in the first process."""
        if self.fabric.is_global_zero:
            self.progress.scaler = self.fabric.strategy.precision.state_dict()
            write_checkpoint(self.checkpoint, self.network, self.optimizer, self.progress)

    def save_model(self, name: str) -> None:
        with failures_named(self.folder / name):
            save(self.network, self.folder / name, overwrite=True)


def _reduced(fabric: "Fabric", value: Tensor, how: str) -> Tensor:
    """The sum or mean over all processes, where the value was."""
    reduced = fabric.all_reduce(value.to(fabric.device), reduce_op=how)
    return cast(Tensor, reduced).to(value.device)
