"""How far a sweep is, counted from what its runs have written, and the time that is left."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from ..run.metrics import MAIN_SCORE
from .job import Ending, Job, failure_of, rows_of


@dataclass(frozen=True)
class SweepMoment:
    """What a sweep reports when a run begins, ends an epoch, ends, or dies."""

    done: int
    running: int
    failed: int
    total: int
    epochs_done: int
    epochs: int  # of all runs but those that failed
    seconds_left: float | None  # an estimate, once an epoch is done
    line: str


SweepReport = Callable[[SweepMoment], None]


class Progress:
    """The counts of a sweep."""

    def __init__(self, jobs: Iterable[Job], report: SweepReport | None) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.report = report
        self.epochs = {name: len(rows_of(job)) for name, job in self.jobs.items()}
        self.before = sum(self.epochs.values())
        self.done: set[str] = set()
        self.running: set[str] = set()
        self.failed: dict[str, str] = {}  # with the reason
        self.began = monotonic()

    def begin(self, job: Job) -> None:
        self.running.add(job.name)
        at = self.epochs[job.name]
        self.say(job, f"goes on after epoch {at}" if at else "begins")

    def look(self) -> None:
        """See which of the runs that are going on have ended an epoch."""
        for name in sorted(self.running):
            job, rows = self.jobs[name], rows_of(self.jobs[name])
            if len(rows) > self.epochs[name]:
                self.epochs[name] = len(rows)
                place = f"epoch {len(rows)}/{job.config.epochs}"
                self.say(job, f"{place}  {_score(job, rows[-1])}".rstrip())

    def restart(self, job: Job, why: str) -> None:
        self.say(job, f"{why}; started again")

    def end(self, job: Job, ending: Ending) -> None:
        self.look()
        self.running.discard(job.name)
        if ending == "done":
            self.done.add(job.name)
            self.say(job, "done")
            return
        why = failure_of(job) if ending == "failed" else None
        self.failed[job.name] = why or "is being run by another process"
        self.say(job, f"failed: {self.failed[job.name]}")

    def say(self, job: Job, what: str) -> None:
        if self.report is None:
            return
        wanted = {n: t.config.epochs for n, t in self.jobs.items() if n not in self.failed}
        reached = sum(self.epochs[name] for name in wanted)
        total = sum(wanted.values())
        new = sum(self.epochs.values()) - self.before
        left = (total - reached) * (monotonic() - self.began) / new if new > 0 else None
        counts = f"{len(self.done)}/{len(self.jobs)} runs"
        if self.failed:
            counts += f", {len(self.failed)} failed"
        parts = [counts, f"{reached}/{total} epochs"]
        if left is not None and reached < total:
            parts.append(f"{duration(left)} left")
        line = f"{', '.join(parts)}  {job.label}: {what}"
        self.report(
            SweepMoment(
                len(self.done), len(self.running), len(self.failed), len(self.jobs),
                reached, total, left, line,
            )
        )  # fmt: skip


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(42.3), duration(1500), duration(9000)
    ('42 s', '25 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _score(job: Job, row: dict[str, str]) -> str:
    """The score that chooses the best weights, if this epoch has one."""
    for kind in MAIN_SCORE.values():
        name = f"{job.config.evaluate_on[0]} {kind}"
        if row.get(name):
            return f"{name} {float(row[name]):.4f}"
    return ""
