"""Workers that check many networks each, and die of one without taking the run along."""

import os
import resource
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

SECONDS = {"load": 240, "ours": 120, "rival": 40}  # of each stage
MEMORY = 8 << 30
NETWORKS = 60  # that a worker checks before a new one takes over: packages keep some memory


def serve(pipe, log, alone):
    """Check the networks whose names come in, and tell after every stage.

    Alone is without Torch-Pruning.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    import torch

    from . import rival
    from .check import check
    from .sources import find

    torch.set_num_threads(1)
    while name := pipe.recv():
        print(f"\n{name}", flush=True)
        network = find(name)
        pipe.send(("ours", None))
        result, left = check(network)
        rivals = left is not None and not alone
        pipe.send(("rival" if rivals else "done", result))
        if rivals:
            pipe.send(("done", {"rival": rival.challenge(network, *left)}))


@dataclass
class Worker:
    log: str
    alone: bool
    process: Any = None
    pipe: Any = None
    name: str = ""
    stage: str = ""
    deadline: float = 0.0
    given: float = 0.0
    served: int = 0
    result: dict = field(default_factory=dict)

    def give(self, name):
        if self.process is None or self.served >= NETWORKS:
            self.stop()
            context = get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(
                target=serve, args=(theirs, self.log, self.alone), daemon=True
            )
            self.process.start()
            theirs.close()
            self.served = 0
        self.name, self.result, self.served = name, {"name": name}, self.served + 1
        self.given = time.monotonic()
        self.enter("load")
        self.pipe.send(name)

    def enter(self, stage):
        self.stage = stage
        self.deadline = time.monotonic() + SECONDS.get(stage, 0)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = None

    def hear(self):
        """Take what the worker says; true if the network is done."""
        try:
            stage, part = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.fail("crash", f"the process ended with {self.process.exitcode}")
            return True
        self.result |= part or {}
        self.enter(stage)
        return stage == "done"

    def fail(self, status, reason):
        """The process is lost: note it for what it was doing."""
        self.stop()
        if self.stage == "rival":
            self.result["rival"] = {"verdict": "fails", "reason": reason}
        else:
            self.result |= {"status": status, "reason": reason}


def check_all(names, count, log, *, alone=False):
    """The results of all networks as they come."""
    workers = [Worker(log, alone) for _ in range(count)]
    names = list(names)
    busy = []
    try:
        while names or busy:
            for worker in workers:
                if worker not in busy and names:
                    worker.give(names.pop(0))
                    busy.append(worker)
            soonest = min(worker.deadline for worker in busy)
            ready = wait([w.pipe for w in busy], max(0.0, soonest - time.monotonic()))
            for worker in list(busy):
                done = worker.pipe in ready and worker.hear()
                if not done and time.monotonic() > worker.deadline:
                    worker.fail("too slow", f"more than {SECONDS[worker.stage]} s")
                    done = True
                if done:
                    busy.remove(worker)
                    worker.result["elapsed"] = time.monotonic() - worker.given
                    yield worker.result
    finally:
        for worker in workers:
            with suppress(OSError):
                worker.stop()
    sys.stdout.flush()
