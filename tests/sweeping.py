"""What the tests of sweeps share: networks that log what is done with them, and die."""

from collections import Counter

from explainfix.lab.run.config import RunConfig

# Networks that write down, beside their file, each start and each step in training.
NETWORKS = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn

HERE = Path(__file__).parent

class Logged(nn.Sequential):
    def forward(self, x):
        if self.training:
            with (HERE / "steps.log").open("a") as log:
                log.write(f"{self.key} {os.getpid()} {torch.get_num_threads()}\\n")
            self.before_step()
        return super().forward(x)

    def before_step(self):
        pass

class Slow(Logged):
    def before_step(self):
        time.sleep(0.4)  # an epoch is longer than the wait between two looks at it

class Dying(Logged):
    '''Kills its process in its fifth step: once, the first that comes there.'''
    steps = 0

    def before_step(self):
        self.steps += 1
        if self.steps == 5:
            try:
                (HERE / "killed").touch(exist_ok=False)
            except FileExistsError:
                return
            (HERE / "killed").write_text(self.key)
            os.kill(os.getpid(), signal.SIGKILL)

class Held(Logged):
    '''Waits in its fifth step until the test lets it go.'''
    steps = 0

    def before_step(self):
        self.steps += 1
        for _ in range(600):
            if self.steps != 5 or (HERE / "released").exists():
                return
            time.sleep(0.1)

class Cursed(Logged):
    def before_step(self):
        os.kill(os.getpid(), signal.SIGKILL)

def _make(kind, num_classes, in_channels):
    net = kind(nn.Conv2d(in_channels, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, num_classes, 1))
    net.key = f"{float(net[0].weight.detach().sum()):.6f}"  # as different as the seeds
    with (HERE / "starts.log").open("a") as log:
        log.write(f"{net.key} {os.getpid()}\\n")
    return net

def plain(num_classes, in_channels):
    return _make(Logged, num_classes, in_channels)

def slow(num_classes, in_channels):
    return _make(Slow, num_classes, in_channels)

def dying(num_classes, in_channels):
    return _make(Dying, num_classes, in_channels)

def held(num_classes, in_channels):
    return _make(Held, num_classes, in_channels)

def cursed(num_classes, in_channels):
    return _make(Cursed, num_classes, in_channels)

def broken(num_classes, in_channels):
    if (HERE / "mended").exists():
        return plain(num_classes, in_channels)
    raise ValueError("no such luck\\ntoday")
"""
EPOCHS, STEPS = 3, 2  # eight images in batches of four


def make_configs(folder):
    """A function that makes configs with these networks, which log into the folder."""
    (folder / "networks.py").write_text(NETWORKS)

    def make(network="plain", **changes):
        return RunConfig(
            model=f"{folder / 'networks.py'}:{network}",
            data_options={"count": 8, "size": 32},
            epochs=EPOCHS,
            batch_size=4,
            accelerator="cpu",
            **changes,
        )

    return make


def log_of(folder, name):
    """How often each network is in a log, by key."""
    return Counter(line.split()[0] for line in (folder / name).read_text().splitlines())


def check_one_was_killed(folder, found):
    """All runs are whole, and all but the one that was killed in its third epoch began once."""
    assert [[row["epoch"] for row in run.history] for run in found.values()] == [[1, 2, 3]] * 3
    killed = (folder / "killed").read_text()
    starts, steps = log_of(folder, "starts.log"), log_of(folder, "steps.log")
    assert starts == {key: 1 + (key == killed) for key in starts}
    assert len(starts) == 3
    # the step it died in was the first of an epoch, and is the only one that was done again
    assert steps == {key: EPOCHS * STEPS + (key == killed) for key in starts}
