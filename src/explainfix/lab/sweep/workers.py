"""Who does the runs of a sweep: this process, several processes, or a Ray cluster."""

import math
import multiprocessing
import os
import signal
import threading
import typing
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Literal

import torch
from threadpoolctl import threadpool_limits

from ...registry import unknown
from ..run.folder import Moment, is_finished
from ..run.process import prepare_process
from .job import RESTARTS, Ending, Job, attempt, note_failure
from .progress import Progress

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Engine = Literal["here", "processes", "ray"]

_GRACE = 5.0  # seconds that a process has to end


@dataclass(frozen=True)
class Workers:
    """Where runs are done and what each of them may use.

    Parameters
    ----------
    engine
        In this process, in several, or on a Ray cluster (default: here, or in processes if there
        are several workers).
    count
        Runs at a time, for processes.
    cpus
        Threads of each run (default: the cores shared out; 1 on Ray).
    gpus
        GPUs of each run.
    address
        Of the Ray cluster (default: one on this machine).
    retry
        Try failed runs again.
    """

    engine: Engine | None = None
    count: int = 1
    cpus: int | None = None
    gpus: float = 0
    address: str | None = None
    retry: bool = False

    def __post_init__(self) -> None:
        if self.engine is None:
            object.__setattr__(self, "engine", "processes" if self.count > 1 else "here")
        if self.engine not in typing.get_args(Engine):
            raise unknown("engine", self.engine, typing.get_args(Engine))
        if self.count < 1 or (self.cpus is not None and self.cpus < 1):
            raise ValueError(f"count={self.count} and cpus={self.cpus} must be at least 1")
        if not 0 <= self.gpus < float("inf"):
            raise ValueError(f"gpus must be at least 0, not {self.gpus!r}")
        if self.engine != "processes" and self.count != 1:
            raise ValueError(f"count={self.count} needs engine='processes', not {self.engine!r}")
        if self.engine != "ray" and self.address is not None:
            raise ValueError(f"address={self.address!r} needs engine='ray', not {self.engine!r}")

    def do(self, jobs: Sequence[Job], progress: Progress) -> None:
        """Do these runs; however they end, they are told to the progress."""
        if self.engine == "here":
            _do_here(jobs, progress, self)
        elif self.engine == "processes":
            _do_in_processes(jobs, progress, self)
        else:
            from .ray import do_on_ray

            do_on_ray(jobs, progress, cpus=self.cpus or 1, gpus=self.gpus, address=self.address)


def _note_death(job: Job, deaths: int, why: str, progress: Progress) -> bool:
    """Whether a run whose process died is to be started again; else it has failed."""
    if deaths <= RESTARTS:
        progress.restart(job, why)
        return True
    note_failure(job, f"{why}, {deaths} times")
    progress.end(job, "failed")
    return False


def _do_here(jobs: Sequence[Job], progress: Progress, workers: Workers) -> None:
    def look(moment: Moment) -> None:
        if moment.row is not None:
            progress.look()

    threads = torch.get_num_threads()
    try:
        for job in jobs:
            progress.begin(job)
            alone = job.config.devices == 1  # else it would be called in another process
            ending = attempt(job, threads=workers.cpus, report=look if alone else None)
            progress.end(job, ending)
    finally:
        torch.set_num_threads(threads)


def _do_in_processes(jobs: Sequence[Job], progress: Progress, workers: Workers) -> None:
    count = min(workers.count, len(jobs))
    threads = workers.cpus or max(1, (os.cpu_count() or 1) // workers.count)
    gpus = [_visible_gpus(slot, workers.gpus) for slot in range(count)]
    waiting, deaths = deque(jobs), Counter[str]()
    idle: dict[int, _Worker] = {}
    busy: dict[int, tuple[_Worker, Job]] = {}
    try:
        while waiting or busy:
            for slot in [slot for slot in range(count) if slot not in busy][: len(waiting)]:
                worker = idle.pop(slot, None) or _Worker(threads, gpus[slot])
                busy[slot] = worker, waiting.popleft()
                with suppress(BrokenPipeError):  # it died idle, as is seen below
                    worker.pipe.send(busy[slot][1])
                progress.begin(busy[slot][1])
            wait([worker.pipe for worker, _ in busy.values()], timeout=1.0)
            progress.look()
            for slot, (worker, job) in list(busy.items()):
                if not worker.pipe.poll():
                    continue
                del busy[slot]
                ending = worker.ending()
                if ending:
                    idle[slot] = worker
                elif is_finished(job.folder):  # it died just after
                    ending = "done"
                if ending:
                    progress.end(job, ending)
                    continue
                deaths[job.name] += 1
                if _note_death(job, deaths[job.name], worker.death(), progress):
                    waiting.appendleft(job)
    finally:
        _stop([*idle.values(), *(worker for worker, _ in busy.values())])


class _Worker:
    """A process that does one run after another."""

    def __init__(self, threads: int, gpus: str | None) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, threads, gpus))
        self.process.start()
        theirs.close()  # so that the process's death closes the pipe

    def ending(self) -> Ending | None:
        """How the run ended, or nothing if the process did."""
        try:
            ending: Ending = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return ending

    def death(self) -> str:
        """What the process died of."""
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended with code {code}"
        if -code == signal.SIGKILL:
            return "its process was killed (SIGKILL; out of memory?)"
        return f"its process died of {signal.Signals(-code).name}"


def _work(pipe: "Connection[Ending, Job]", threads: int, gpus: str | None) -> None:
    """What such a process does, until it is told to stop or the one that started it is gone."""
    prepare_process()
    # Processes that each use all cores wait for each other most of the time.
    os.environ |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    threadpool_limits(threads)
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches all; the first ends the others
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(job, threads=threads))


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join(_GRACE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()


def _visible_gpus(slot: int, gpus: float) -> str | None:
    """The GPUs of a slot, as CUDA_VISIBLE_DEVICES: its own, or one that it shares."""
    if gpus == 0:
        return None
    known = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = known.split(",") if known else [str(n) for n in range(torch.cuda.device_count())]
    first = int(slot * gpus)
    mine = range(first, first + math.ceil(gpus))
    if mine[-1] >= len(names):
        raise ValueError(
            f"{slot + 1} runs at a time with {gpus:g} GPUs each, but there are {len(names)} GPUs"
        )
    return ",".join(names[n] for n in mine)
