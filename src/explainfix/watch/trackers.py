"""Numbers to whoever keeps them: TensorBoard, Weights & Biases, MLflow, or any function.

A log is a function of a dictionary of numbers by name and of the step they belong to. The names
of ours are those of `Timeline.metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..extras import needed_for

Log = Callable[[Mapping[str, float], int], None]

_MLFLOW_BATCH = 1000  # numbers that MLflow takes at once


def to_tensorboard(where: Any, *, since: int | None = None) -> Log:
    """A log of TensorBoard events: into a folder, or by a `SummaryWriter` that is open already.

    `since` makes the reader forget what an interrupted training wrote from that step on.
    """
    writer: Any = where
    if isinstance(where, str | Path):
        with needed_for("a log of TensorBoard"):
            from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter(str(where), purge_step=since)

    def log(numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log


def to_wandb(run: Any = None) -> Log:
    """A log of a Weights & Biases run, the one that is active by default.

    The numbers have a step of their own, `explainfix/step`: W&B's counts what you log yourself,
    and drops what comes with an earlier one.
    """
    if run is None:
        with needed_for("a log of Weights & Biases"):
            import wandb
        run = wandb.run
        if run is None:
            raise ValueError("no W&B run is active: call wandb.init() first, or give the run")
    run.define_metric("explainfix/step", hidden=True)
    run.define_metric("explainfix/*", step_metric="explainfix/step")

    def log(numbers: Mapping[str, float], step: int) -> None:
        run.log({**numbers, "explainfix/step": step})

    return log


def to_mlflow(run_id: str | None = None) -> Log:
    """A log of an MLflow run, the active one by default, at the tracking URI that is set."""
    with needed_for("a log of MLflow"):
        import mlflow
    if run_id is None:
        active = mlflow.active_run()
        if active is None:
            raise ValueError("no MLflow run is active: call mlflow.start_run() first, or give one")
        run_id = active.info.run_id

    def log(numbers: Mapping[str, float], step: int) -> None:
        named = [(re.sub(r"[^\w\-./ ]", "_", name), value) for name, value in numbers.items()]
        for start in range(0, len(named), _MLFLOW_BATCH):
            part = dict(named[start : start + _MLFLOW_BATCH])
            mlflow.log_metrics(part, step=step, run_id=run_id)

    return log
