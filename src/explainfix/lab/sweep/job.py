"""One run of a sweep. How it ended is in its folder: result.json, failed.txt, or neither."""

import csv
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ..run.checkpoint import writing
from ..run.config import RunConfig
from ..run.folder import CONFIG, BusyError, Report, is_finished, start_run
from ..run.history import METRICS

FAILED = "failed.txt"
PATIENCE = 5.0  # seconds
RESTARTS = 2  # of a run whose process or machine died
Ending = Literal["done", "failed", "busy"]


@dataclass(frozen=True)
class Job:
    """A run to be done: what it is called, its options, and its folder."""

    label: str
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name


def attempt(
    job: Job,
    *,
    threads: int | None,
    patience: float | None = None,
    report: Report | None = None,
) -> Ending:
    """Do the run or go on with it, and leave failed.txt behind if it fails.

    A run that another process is at is tried again for `patience` seconds: that process may be one
    that was killed just now.
    """
    from ..run.train import train  # Fabric takes seconds to import

    if threads is not None:
        torch.set_num_threads(threads)
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            train(job.config, runs=job.folder.parent, report=report)
        except BusyError:
            if time.monotonic() > until:
                return "busy"
            time.sleep(0.2)
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            note_failure(job, reason, traceback.format_exc())
            return "failed"
        else:
            (job.folder / FAILED).unlink(missing_ok=True)
            return "done"


def note_failure(job: Job, reason: str, details: str = "") -> None:
    """Write failed.txt: the reason in one line, and below it what helps to find the cause."""
    job.folder.mkdir(parents=True, exist_ok=True)
    if not (job.folder / CONFIG).exists():  # a run that never began leaves no folder
        start_run(job.folder, job.config)
    with writing(job.folder / FAILED) as file:
        file.write_text(f"{reason}\n\n{details}".rstrip() + "\n")


def failure_of(job: Job) -> str | None:
    """Why the run failed when it was last tried, if it did."""
    file = job.folder / FAILED
    if is_finished(job.folder) or not file.is_file():
        return None
    return file.read_text().partition("\n")[0]


def rows_of(job: Job) -> list[dict[str, str]]:
    """The rows of the epochs that are done, of a run that may be going on elsewhere."""
    try:
        with (job.folder / METRICS).open(newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []


def start_stamp(job: Job) -> tuple[int, int] | None:
    """What changes whenever the run is started: its config is written anew."""
    try:
        known = (job.folder / CONFIG).stat()
    except FileNotFoundError:
        return None
    return known.st_ino, known.st_mtime_ns
