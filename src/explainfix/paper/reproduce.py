"""Do an experiment: its runs, its verdicts, its page."""

from __future__ import annotations

import json
import shlex
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..extras import require
from ..lab.run.folder import Run, is_finished
from .experiment import Experiment, list_experiments
from .experiment import find_experiment as find_experiment
from .results.ledger import ledger_name
from .results.record import (
    FORMAT,
    OUTCOME,
    Record,
    judge_again,
    read_outcome,
    write_outcome,
    write_page,
)
from .setting import Scale, Setting


def reproduce(name: str, setting: Setting, *, force: bool = False) -> Record:
    """Do what is left of an experiment's runs, judge them, and write the outcome and its page.

    An outcome of another version is not written over, unless by `force`; runs never are.
    """
    require("lab", "an experiment")
    experiment = find_experiment(name)
    folder = outcome_folder(name, setting)
    check_before(experiment, setting, force=force)
    began = time.monotonic()
    runs = experiment.train(setting)
    evidence = experiment.judge(setting, runs)
    trained = {run.folder: training_seconds(run) for run in runs.values()}
    about = {
        "scale": setting.scale,
        "command": command_of(experiment, setting),
        "seconds": round(time.monotonic() - began, 1),
        "runs": sorted({ledger_name(run.config, runs.values()) for run in runs.values()}),
        "seeds": sorted({run.config.seed for run in runs.values()}),
        "training_seconds": round(sum(trained.values()), 1),  # of all runs, whenever they were done
        "trained": describe_runs(runs),
    }
    record = write_outcome(folder, experiment, evidence, about)
    write_page(folder, record)
    return record


def measure_finished(setting: Setting) -> None:
    """What experiments measure of weights, of the runs that are there, so that it is kept."""
    for name in list_experiments():
        experiment = find_experiment(name)
        if experiment.measure is None:
            continue
        runs = experiment.train(replace(setting, dry=True))
        there = {key: run for key, run in runs.items() if is_finished(run.folder)}
        if there:
            experiment.measure(setting, there)


def describe_runs(runs: Mapping[Any, Run]) -> dict[str, Any]:
    """What was trained: by key, the parameters, those that learn, and the seconds of an epoch."""
    fields = list(vars(next(iter(runs)))) if runs else []
    rows = [
        [
            *vars(key).values(),
            run.result["parameters"],
            run.result["learned_parameters"],
            round(statistics.median(row["seconds"] for row in run.history), 2),
        ]
        for key, run in runs.items()
    ]
    return {"fields": [*fields, "parameters", "learned", "seconds"], "rows": rows}


def check_outcomes(folder: Path) -> dict[str, list[str]]:
    """Judge again what docs/results, or a folder of `reproduce`, holds; what differs, by file."""
    files = sorted([*folder.glob("*.json"), *folder.glob(f"*/{OUTCOME}")])
    if not files:
        raise ValueError(f"{str(folder)!r} holds no outcome: neither NAME.json nor */{OUTCOME}")
    found = {}
    for file in files:
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise ValueError(f"it has format {record['format']}, not {FORMAT}")
            found[str(file)] = judge_again(find_experiment(record["name"]), record)
        except (ValueError, KeyError, TypeError) as error:
            found[str(file)] = [f"cannot be read: {error}"]
    return found


def training_seconds(run: Run) -> float:
    """A run's epochs at their median pace, so that a pause does not count."""
    return statistics.median(row["seconds"] for row in run.history) * len(run.history)


def check_before(experiment: Experiment, setting: Setting, *, force: bool) -> None:
    """Raise, before hours of work, if the data is not there or the outcome cannot be written."""
    if setting.folder.exists() and not setting.folder.is_dir():
        raise NotADirectoryError(f"{str(setting.folder)!r} is a file; give a folder (--folder)")
    if not force:
        read_outcome(outcome_folder(experiment.name, setting))
    for kind in experiment.needs:
        try:
            setting.open_data(kind)
        except ValueError as error:
            raise ValueError(f"experiment {experiment.name!r}: {error}") from None


def outcome_folder(name: str, setting: Setting) -> Path:
    return setting.folder / f"{name}-{setting.scale}"


def command_of(experiment: Experiment, setting: Setting) -> str:
    """What to type for the same again."""
    words = ["explainfix", "reproduce", experiment.name, "--scale", setting.scale]
    for kind in experiment.needs:
        if kind in setting.given:
            words += ["--data", setting.given[kind]]
    if setting.folder != Path("reproduced"):
        words += ["--folder", str(setting.folder)]
    return shlex.join(words)


def count_runs(experiment: Experiment, setting: Setting) -> tuple[int, int]:
    """How many of an experiment's runs are finished, and how many there are."""
    dry = replace(setting, dry=True)
    folders = {run.folder for run in experiment.train(dry).values()}
    return sum(map(is_finished, folders)), len(folders)


def what_exists(experiment: Experiment, scale: Scale, folder: Path) -> Record | str | None:
    """The outcome at a scale; why it cannot be read; or nothing."""
    try:
        return read_outcome(folder / f"{experiment.name}-{scale}")
    except ValueError as error:
        return str(error)
