"""Runs of a sweep as tasks of a Ray cluster. All its machines must see the folder of the runs."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...extras import needed_for
from ..run.process import prepare_process
from .job import RESTARTS, Ending, Job, attempt, note_failure, start_stamp
from .progress import Progress

_ANSWER = 15.0  # seconds that a cluster has to answer
_PATIENCE = 120.0  # so long may a file server take to notice that a machine, and its lock, is gone


def do_on_ray(
    jobs: Sequence[Job], progress: Progress, *, cpus: int, gpus: float, address: str | None
) -> None:
    """Do these runs, each with so many CPUs and GPUs, wherever the cluster has them.

    Ray starts the run of a worker or machine that died again on another, where it goes on from its
    checkpoint.
    """
    ray = _import_ray()
    with _connected(ray, address) as borrowed:
        lacking = find_lacking(ray.nodes(), cpus, gpus)
        if lacking and address is None:
            raise ValueError(lacking)
        if lacking:  # a cluster may grow
            progress.say(jobs[0], f"waits, as {lacking}")
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RESTARTS)(_work)
        stamps = {job.name: start_stamp(job) for job in jobs}
        here = str(Path.cwd())
        waiting = {task.remote(job, cpus, here): job for job in jobs}
        try:
            while waiting:
                # As many as there are: a look at all of them for each would grow with the square.
                ended, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=1.0)
                # What was running ends before what began since then is seen to run.
                for reference in sorted(
                    ended, key=lambda r: waiting[r].name not in progress.running
                ):
                    job = waiting.pop(reference)
                    _note_start(job, stamps, progress)
                    _note_ending(ray, reference, job, progress)
                for job in waiting.values():
                    _note_start(job, stamps, progress)
                progress.look()
        finally:
            # Our own connection ends its tasks when it is closed. Cancelling them first would now
            # and then end this process: Ray 2.60 does not expect it of a task about to begin.
            for reference in waiting if borrowed else ():
                ray.cancel(reference, force=True)


def find_lacking(nodes: Sequence[Mapping[str, Any]], cpus: int, gpus: float) -> str | None:
    """What no machine of the cluster has, if a run needs it.

    >>> find_lacking([{"Alive": True, "Resources": {"CPU": 4.0}}], 2, 0.5)
    'no machine of the cluster has 2 CPUs and 0.5 GPUs; they have 4 CPUs and 0 GPUs'
    """
    have = [node["Resources"] for node in nodes if node["Alive"]]
    offers = [(found.get("CPU", 0), found.get("GPU", 0)) for found in have]
    if any(cpu >= cpus and gpu >= gpus for cpu, gpu in offers):
        return None
    known = ", ".join(f"{cpu:g} CPUs and {gpu:g} GPUs" for cpu, gpu in sorted(set(offers)))
    return f"no machine of the cluster has {cpus} CPUs and {gpus:g} GPUs; they have {known}"


def _work(job: Job, cpus: int, folder: str) -> Ending:
    """The task: one run, with the paths in its options as they were meant."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ValueError(f"this machine of the cluster does not see {folder!r}: {error}") from None
    prepare_process()
    return attempt(job, threads=cpus, patience=_PATIENCE)


def _note_start(job: Job, stamps: dict[str, Any], progress: Progress) -> None:
    """Tell that a run began, or began again, if it did since the last look."""
    stamp = start_stamp(job)
    if stamp not in (None, stamps[job.name]):
        stamps[job.name] = stamp
        if job.name in progress.running:
            progress.restart(job, "its worker died")
        else:
            progress.begin(job)


def _note_ending(ray: Any, reference: Any, job: Job, progress: Progress) -> None:
    try:
        ending: Ending = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        note_failure(job, str(error.cause), str(error))
        ending = "failed"
    except ray.exceptions.RayError as error:
        reason = str(error).partition("\n")[0]
        note_failure(job, f"its worker died, {RESTARTS + 1} times: {reason}", str(error))
        ending = "failed"
    progress.end(job, ending)


def _import_ray() -> Any:
    with needed_for("a sweep on a cluster"):
        import ray
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[bool]:
    """Ray for as long as it takes, and whether the connection was there before, and stays."""
    if ray.is_initialized():
        yield True
        return
    if address is not None:
        _check_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="WARNING")
    except (ConnectionError, RuntimeError) as error:
        raise ValueError(f"no Ray cluster at {address!r}: {error}") from None
    try:
        yield False
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Raise unless a Ray cluster answers: left alone, Ray would try for minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not port.isdigit():
        if address in ("auto", "local"):
            return
        raise ValueError(f"a Ray address is HOST:PORT or ray://HOST:PORT, not {address!r}")
    hint = "is the cluster running (ray start --head), and can this machine reach it?"
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ValueError(f"the Ray address {address!r} does not answer ({error}): {hint}") from None
    code = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False)"
    try:
        subprocess.run(
            [sys.executable, "-c", code, address],
            check=True,
            capture_output=True,
            text=True,
            timeout=_ANSWER,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"something listens at {address!r}, but no Ray cluster answers: {hint}"
        ) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ValueError(f"no Ray cluster can be used at {address!r}: {last}") from None
