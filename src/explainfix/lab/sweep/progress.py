"""How far a sweep is, counted from what its runs have written, and the time that is left."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from ..run.metrics import MAIN_SCORE
from .job import Ending, Trial, failure_of, rows_of


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


class Tally:
    """The counts of a sweep."""

    def __init__(self, trials: Iterable[Trial], report: SweepReport | None) -> None:
        self.trials = {trial.name: trial for trial in trials}
        self.report = report
        self.epochs = {name: len(rows_of(trial)) for name, trial in self.trials.items()}
        self.before = sum(self.epochs.values())
        self.done: set[str] = set()
        self.running: set[str] = set()
        self.failed: dict[str, str] = {}  # with the reason
        self.began = monotonic()

    def begin(self, trial: Trial) -> None:
        self.running.add(trial.name)
        at = self.epochs[trial.name]
        self.say(trial, f"goes on after epoch {at}" if at else "begins")

    def look(self) -> None:
        """See which of the runs that are going on have ended an epoch."""
        for name in sorted(self.running):
            trial, rows = self.trials[name], rows_of(self.trials[name])
            if len(rows) > self.epochs[name]:
                self.epochs[name] = len(rows)
                place = f"epoch {len(rows)}/{trial.config.epochs}"
                self.say(trial, f"{place}  {_score(trial, rows[-1])}".rstrip())

    def restart(self, trial: Trial, why: str) -> None:
        self.say(trial, f"{why}; started again")

    def end(self, trial: Trial, ending: Ending) -> None:
        self.look()
        self.running.discard(trial.name)
        if ending == "done":
            self.done.add(trial.name)
            self.say(trial, "done")
            return
        why = failure_of(trial) if ending == "failed" else None
        self.failed[trial.name] = why or "is being run by another process"
        self.say(trial, f"failed: {self.failed[trial.name]}")

    def say(self, trial: Trial, what: str) -> None:
        if self.report is None:
            return
        wanted = {n: t.config.epochs for n, t in self.trials.items() if n not in self.failed}
        reached = sum(self.epochs[name] for name in wanted)
        total = sum(wanted.values())
        new = sum(self.epochs.values()) - self.before
        left = (total - reached) * (monotonic() - self.began) / new if new > 0 else None
        counts = f"{len(self.done)}/{len(self.trials)} runs"
        if self.failed:
            counts += f", {len(self.failed)} failed"
        parts = [counts, f"{reached}/{total} epochs"]
        if left is not None and reached < total:
            parts.append(f"{duration(left)} left")
        line = f"{', '.join(parts)}  {trial.label}: {what}"
        self.report(
            SweepMoment(
                len(self.done), len(self.running), len(self.failed), len(self.trials),
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


def _score(trial: Trial, row: dict[str, str]) -> str:
    """The score that chooses the best weights, if this epoch has one."""
    for kind in MAIN_SCORE.values():
        name = f"{trial.config.evaluate_on[0]} {kind}"
        if row.get(name):
            return f"{name} {float(row[name]):.4f}"
    return ""
