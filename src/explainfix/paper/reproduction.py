"""Do an experiment: its runs, its verdicts, its page."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from ..lab.runs import is_finished
from ..registry import experiments
from . import list_experiments
from .experiment import Experiment
from .page import write_page
from .results import Record, read_outcome, write_outcome
from .setting import Scale, Setting


def find_experiment(name: str) -> Experiment:
    """The experiment of that name, or an error with near misses."""
    list_experiments()
    found: Experiment = experiments.find(name)
    return found


def reproduce(name: str, setting: Setting, *, force: bool = False) -> Record:
    """Do what is left of an experiment's runs, judge them, and write the outcome and its page.

    An outcome of another version is not written over, unless by `force`; runs never are.
    """
    experiment = find_experiment(name)
    folder = outcome_folder(name, setting)
    if not force:
        read_outcome(folder)
    for kind in experiment.needs:
        setting.open_data(kind)  # before hours of work, not after
    began = time.monotonic()
    runs = experiment.train(setting)
    outcome = experiment.judge(setting, runs)
    trained = {run.folder: run.result.get("seconds", 0.0) for run in runs.values()}
    about = {
        "scale": setting.scale,
        "command": command_of(name, setting),
        "seconds": round(time.monotonic() - began, 1),
        "runs": sorted(path.name for path in trained),
        "training_seconds": round(sum(trained.values()), 1),  # of all runs, whenever they were done
    }
    record = write_outcome(folder, experiment, outcome, about)
    write_page(folder, record)
    return record


def outcome_folder(name: str, setting: Setting) -> Path:
    return setting.folder / f"{name}-{setting.scale}"


def command_of(name: str, setting: Setting) -> str:
    """What to type for the same again."""
    words = ["explainfix", "reproduce", name, "--scale", setting.scale]
    for spec in setting.given.values():
        words += ["--data", spec]
    if setting.folder != Path("reproduced"):
        words += ["--folder", str(setting.folder)]
    return shlex.join(words)


def count_runs(experiment: Experiment, setting: Setting) -> tuple[int, int]:
    """How many of an experiment's runs are finished, and how many there are."""
    dry = Setting(setting.scale, setting.given, setting.folder, dry=True)
    folders = {run.folder for run in experiment.train(dry).values()}
    return sum(map(is_finished, folders)), len(folders)


def what_exists(experiment: Experiment, scale: Scale, folder: Path) -> Record | str | None:
    """The outcome at a scale; why it cannot be read; or nothing."""
    try:
        return read_outcome(folder / f"{experiment.name}-{scale}")
    except ValueError as error:
        return str(error)
