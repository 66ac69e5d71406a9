"""Sweeps: many runs, each done once, wherever there are processors for them."""

from collections.abc import Mapping
from pathlib import Path

from ..data.dataset import Task, open_dataset
from ..run.config import RunConfig
from ..run.devices import started_by_torchrun
from ..run.folder import Run, find_folder, is_finished, read_run, settle
from .job import FAILED, Job, failure_of
from .progress import Progress
from .progress import SweepMoment as SweepMoment
from .progress import SweepReport as SweepReport
from .workers import Engine as Engine
from .workers import Workers as Workers


class SweepError(ValueError):
    """Some runs of a sweep failed; `failed` has the reason of each, by label."""

    def __init__(self, failed: Mapping[str, str], total: int, message: str) -> None:
        super().__init__(message)
        self.failed, self.total = dict(failed), total


def sweep(
    configs: Mapping[str, RunConfig],
    *,
    runs: str | Path,
    workers: Workers = Workers(),  # noqa: B008 (frozen)
    report: SweepReport | None = None,
) -> dict[str, Run]:
    """Do the runs that are not done yet and give all of them, by label.

    Two labels with the same options are one run. A finished run is read. One that was stopped, with
    the sweep or alone, goes on from its last checkpoint. One that failed is not tried again without
    `workers.retry`; after all others are done a `SweepError` names those that failed.
    """
    if started_by_torchrun():
        raise ValueError("a sweep starts its processes itself: start it without torchrun")
    jobs = _plan(configs, Path(runs))
    different: dict[str, Job] = {}
    for job in jobs.values():
        different.setdefault(job.name, job)
    progress = Progress(different.values(), report)
    waiting = []
    for job in different.values():
        reason = failure_of(job)
        if is_finished(job.folder):
            (job.folder / FAILED).unlink(missing_ok=True)
            progress.done.add(job.name)
        elif reason is not None and not workers.retry:
            progress.failed[job.name] = reason
        else:
            waiting.append(job)
    if waiting:
        workers.do(waiting, progress)
    if progress.failed:
        raise _failure(jobs, progress)
    return {label: read_run(job.folder) for label, job in jobs.items()}


def _plan(configs: Mapping[str, RunConfig], runs: Path) -> dict[str, Job]:
    """The folder of each run, which depends on the task of its data."""
    tasks: dict[str, tuple[Task, int]] = {}
    jobs = {}
    for label, given in configs.items():
        config = settle(given)
        data = repr((config.data, config.data_options, config.skip_damaged))
        if data not in tasks:
            opened = open_dataset(
                config.data, skip_damaged=config.skip_damaged, **config.data_options
            )
            tasks[data] = opened.task, len(opened.classes)
        whole = config.resolved(*tasks[data])
        jobs[label] = Job(label, whole, find_folder(runs, whole))
    return jobs


def _failure(jobs: Mapping[str, Job], progress: Progress) -> SweepError:
    failed = {k: progress.failed[t.name] for k, t in jobs.items() if t.name in progress.failed}
    lines = [f"{len(progress.failed)} of {len(progress.jobs)} runs failed:"]
    for label, reason in failed.items():
        lines.append(f"  {label}: {reason} ({jobs[label].folder})")
    lines.append(f"{FAILED} in each folder has more; try them again with retry=True (--retry)")
    return SweepError(failed, len(progress.jobs), "\n".join(lines))
