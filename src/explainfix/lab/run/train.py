"""Training: one loop on Lightning Fabric, from one CPU to several processes, that can be killed.

A run is a folder. It holds config.toml (all options), data.json (what goes into the network and
what comes out), metrics.csv (a row per epoch), spectra.json (how the spectra of its layers moved),
the weights best.safetensors and last.safetensors, checkpoint.safetensors to go on from, and, once
the run is finished, result.json.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.spawn import ProcessException

from ...recipe import check_fixed, recipes
from ...watch import Watch, to_tensorboard
from ..data.dataset import Dataset
from .checkpoint import remove_leftovers, writing
from .config import RunConfig
from .devices import launch, leave_group_at_exit, open_fabric, started_by_torchrun
from .folder import (
    BEST,
    CHECKPOINT,
    DATA,
    Moment,
    Report,
    Run,
    begin_with,
    find_beginning,
    find_folder,
    is_finished,
    locked,
    open_data,
    other_lengths,
    read_run,
    settle,
    start_run,
    write_result,
    write_signature,
)
from .history import (
    count_stale,
    is_stale,
    read_history,
    write_events,
    write_metrics,
    write_spectra,
)
from .metrics import MAIN_SCORE
from .process import prepare_process
from .work import Work

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(
    config: RunConfig,
    *,
    runs: str | Path = "runs",
    report: Report | None = None,
    tell: Callable[[str], None] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Run:
    """Do a run, or go on with it; a finished one is read. Its folder in `runs` has its name.

    Killed at any moment, it goes on from its last checkpoint to the same weights, bit for bit on
    the same machine's CPU. With several processes `report` is called in the first and must be
    picklable. `tell` gets sentences about what is going to be done. `beside` are texts to write
    into the folder, by the names of their files.
    """
    elastic = started_by_torchrun()
    if elastic:
        config = replace(config, devices=int(os.environ["WORLD_SIZE"]))
    fabric = open_fabric(config)
    given, config = config, settle(config)
    dataset = open_data(config)
    if config != given:
        note = "Pretrained weights: images are normalised by ImageNet's mean and deviation."
        dataset = replace(dataset, notes=(note, *dataset.notes))
    config = config.resolved(dataset.task, len(dataset.classes))
    folder = find_folder(Path(runs), config)
    if is_finished(folder):
        if not (folder / DATA).is_file():
            write_signature(folder, config, dataset)
        return read_run(folder)
    first = not elastic or os.environ["RANK"] == "0"
    beginning = None
    if first and not (folder / CHECKPOINT).is_file():
        beginning = find_beginning(folder, config, _chosen_by(config, dataset))
    if first and tell is not None:
        for sentence in _announce(folder, config, dataset, beginning):
            tell(sentence)
    with locked(folder) if first else nullcontext():
        if first:
            remove_leftovers(folder)
            if beginning:
                begin_with(beginning, folder)
            start_run(folder, config)
            write_signature(folder, config, dataset)
            for name, text in (beside or {}).items():
                with writing(folder / name) as file:
                    file.write_text(text)
        alone = config.devices == 1 or elastic  # a spawned process opens the data itself
        try:
            launch(fabric, partial(_work, config, folder, dataset if alone else None, report))
        except ProcessException as error:
            if not is_finished(folder):  # else it died of leaving, with nothing left to do
                line = str(error).strip().splitlines()[-1]  # of the other process's traceback
                raise ValueError(line.partition(": ")[2] or line) from error
    return read_run(folder)


def _announce(
    folder: Path, config: RunConfig, dataset: Dataset, beginning: Path | None
) -> Iterator[str]:
    """What a user may want to know before a run begins, or goes on."""
    yield from dataset.notes
    so_far = beginning or folder
    if done := len(read_history(so_far)):
        yield f"Going on from {str(so_far)!r} after {done} of {config.epochs} epochs."
    elif config.schedule == "onecycle":
        for other, options in other_lengths(folder.parent, config).items():
            yield (
                f"{str(other)!r} is the same with --epochs {options.epochs}: one cycle's rate "
                "depends on how many there are, so this is a run of its own, from the start."
            )


def _chosen_by(config: RunConfig, dataset: Dataset) -> str:
    """The column of the score that the best weights are chosen by."""
    return f"{config.evaluate_on[0]} {MAIN_SCORE[dataset.task]}"


def _work(
    config: RunConfig,
    folder: Path,
    dataset: Dataset | None,
    report: Report | None,
    fabric: "Fabric",
) -> None:
    """What each process does."""
    if fabric.world_size > 1:
        leave_group_at_exit()
        if not started_by_torchrun():  # a process that Fabric started
            prepare_process()
    with torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []):
        work = Work(fabric, config, folder, dataset or open_data(config))
        progress, first = work.progress, fabric.is_global_zero
        report = report if first else None
        events = None
        if first and config.tensorboard:
            events = to_tensorboard(folder / "events", since=progress.epoch + 1)
        watch = None
        if work.spectra:
            seen = work.spectra.until(progress.epoch)
            watch = Watch(work.network, timeline=seen, log=events, fixed="ignore")
        chosen_by = _chosen_by(config, work.dataset)
        stale = count_stale(progress.history, chosen_by)
        while progress.epoch < config.epochs and not is_stale(stale, config):
            epoch = progress.epoch + 1
            row: dict[str, float] = {"epoch": epoch, "loss": work.train_epoch(report)}
            row["seconds"] = round(progress.seconds, 3)
            if epoch % config.evaluate_every == 0 or epoch == config.epochs:
                row |= work.evaluate()
            progress.history.append(row)
            progress.epoch, progress.step, progress.loss, progress.seconds = epoch, 0, 0.0, 0.0
            reached = row.get(chosen_by)
            better = reached is not None and (progress.best is None or reached > progress.best)
            progress.best = reached if better else progress.best
            stale = count_stale(progress.history, chosen_by)
            if first and better:  # before the checkpoint, which says that it is there
                work.save_model(BEST)
            if watch:
                watch.epoch(epoch)
                write_spectra(folder, watch.timeline)
            if first:
                write_metrics(folder, progress.history)
            work.save()
            if report:
                report(Moment(epoch - 1, config.epochs, work.steps, work.steps, row["loss"], row))
            if events:
                write_events(events, row)
        if recipes(work.network):
            check_fixed(work.network)
        if first:
            work.save_model("last.safetensors")
            write_result(folder, work.network, progress)
        fabric.barrier()  # the others read the result too
