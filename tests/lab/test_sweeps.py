"""Sweeps: every run once, whatever happens to the processes that do them."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from explainfix.lab.config import RunConfig
from explainfix.lab.runs import locked
from explainfix.lab.sweeps import SweepError, Workers, sweep
from explainfix.lab.training import train

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
        time.sleep(0.1)

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

def cursed(num_classes, in_channels):
    return _make(Cursed, num_classes, in_channels)

def broken(num_classes, in_channels):
    if (HERE / "mended").exists():
        return plain(num_classes, in_channels)
    raise ValueError("no such luck\\ntoday")
"""
EPOCHS, STEPS = 3, 2  # eight images in batches of four


@pytest.fixture
def make(tmp_path):
    """A config with one of the networks, which log beside their file."""
    (tmp_path / "networks.py").write_text(NETWORKS)

    def config(network="plain", **changes):
        return RunConfig(
            model=f"{tmp_path / 'networks.py'}:{network}",
            data_options={"count": 8, "size": 32},
            epochs=EPOCHS,
            batch_size=4,
            accelerator="cpu",
            **changes,
        )

    return config


def log_of(folder, name):
    """How often each network is in a log, by key."""
    file = folder / name
    return Counter(line.split()[0] for line in file.read_text().splitlines() if file.exists())


def losses_of(run):
    return [row["loss"] for row in run.history]


def test_each_run_is_done_once_and_given_by_label(make, tmp_path):
    moments = []
    configs = {"b": make(seed=1), "a": make(seed=0), "also b": make(seed=1, workers=1)}
    found = sweep(configs, runs=tmp_path / "runs", report=moments.append)
    assert list(found) == ["b", "a", "also b"]
    assert found["b"] == found["also b"] != found["a"]
    alone = train(make(seed=1), runs=tmp_path / "alone")
    assert losses_of(found["b"]) == losses_of(alone)
    assert sorted(log_of(tmp_path, "starts.log").values()) == [1, 2]  # the other one is `alone`
    assert [moment.epochs_done for moment in moments] == [0, 1, 2, 3, 3, 3, 4, 5, 6, 6]
    assert all((moment.total, moment.epochs, moment.failed) == (2, 6, 0) for moment in moments)
    assert (moments[0].seconds_left, moments[0].running) == (None, 1)
    assert moments[0].line == "0/2 runs, 0/6 epochs  b: begins"
    assert "b: epoch 2/3  val dice 0." in moments[2].line
    assert moments[-1].line == "2/2 runs, 6/6 epochs  a: done"

    again = sweep(configs, runs=tmp_path / "runs", report=lambda m: pytest.fail("done twice"))
    assert again == found


def test_the_time_left_is_that_of_the_epochs_left(make, tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("explainfix.lab.tally.monotonic", lambda: next(clock))
    moments = []
    sweep({"a": make(), "b": make(seed=1)}, runs=tmp_path / "runs", report=moments.append)
    assert moments[1].seconds_left == 5 * 20  # one epoch of six took 20 s
    assert "1/6 epochs, 2 min left" in moments[1].line


def test_a_failure_stops_nobody_else_and_waits_for_retry(make, tmp_path):
    configs = {"bad": make("broken"), "good": make(), "worse": make("broken", seed=1)}
    moments = []
    with pytest.raises(SweepError) as caught:
        sweep(configs, runs=tmp_path / "runs", report=moments.append)
    message = str(caught.value)
    assert message.startswith("2 of 3 runs failed:\n  bad: no such luck today (")
    assert "--retry" in message
    assert caught.value.failed == {"bad": "no such luck today", "worse": "no such luck today"}
    assert (moments[-1].done, moments[-1].failed, moments[-1].epochs) == (1, 2, 3)
    failed = [
        folder for folder in (tmp_path / "runs").iterdir() if (folder / "failed.txt").exists()
    ]
    assert len(failed) == 2
    lines = (failed[0] / "failed.txt").read_text().splitlines()
    assert lines[0] == "no such luck today"
    assert any("networks.py" in line for line in lines)  # the traceback

    (tmp_path / "mended").touch()
    with pytest.raises(SweepError, match="2 of 3 runs failed"):  # not tried, but told
        sweep(configs, runs=tmp_path / "runs", report=lambda m: pytest.fail("tried again"))
    found = sweep(configs, runs=tmp_path / "runs", workers=Workers(retry=True))
    assert list(found) == ["bad", "good", "worse"]
    assert not list((tmp_path / "runs").glob("*/failed.txt"))
    assert set(log_of(tmp_path, "starts.log").values()) == {1, 2}  # seed 0 by two names, seed 1


def test_threads_here_are_as_they_were(make, tmp_path):
    before = torch.get_num_threads()
    sweep({"a": make()}, runs=tmp_path / "runs", workers=Workers(cpus=1))
    assert torch.get_num_threads() == before


def test_a_run_that_somebody_else_is_at_is_no_failure_of_its_own(make, tmp_path, monkeypatch):
    monkeypatch.setattr("explainfix.lab.trials.PATIENCE", 0.3)
    [name] = {make().resolved("segmentation").name()}
    with locked(tmp_path / name), pytest.raises(SweepError, match="a: is being run by another"):
        sweep({"a": make(), "b": make(seed=1)}, runs=tmp_path)
    assert not list(tmp_path.glob("*/failed.txt"))
    assert list(sweep({"a": make()}, runs=tmp_path)) == ["a"]


def test_stopped_by_the_user_it_goes_on(make, tmp_path):
    def stop(moment):
        if moment.epochs_done == EPOCHS + 1:
            raise KeyboardInterrupt

    configs = {str(seed): make(seed=seed) for seed in range(3)}
    with pytest.raises(KeyboardInterrupt):
        sweep(configs, runs=tmp_path / "runs", report=stop)
    found = sweep(configs, runs=tmp_path / "runs")
    assert [len(run.history) for run in found.values()] == [EPOCHS] * 3
    assert sorted(log_of(tmp_path, "starts.log").values()) == [1, 1, 2]
    assert sorted(log_of(tmp_path, "steps.log").values()) == [EPOCHS * STEPS] * 3  # none twice


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "procesess"}, "unknown engine 'procesess': did you mean 'processes'"),
        ({"count": 2}, "count=2 needs engine='processes'"),
        ({"engine": "processes", "count": 0}, "count=0"),
        ({"cpus": 0}, "cpus=0"),
        ({"gpus": -1}, "gpus must be at least 0"),
        ({"engine": "processes", "address": "x"}, "address='x' needs engine='ray'"),
    ],
)
def test_wrong_workers(wrong, message):
    with pytest.raises(ValueError, match=message):
        Workers(**wrong)


def test_data_that_is_not_there_is_said_before_anything_is_done(make, tmp_path):
    configs = {"a": make(), "b": replace(make(), data="nuklei")}
    with pytest.raises(ValueError, match="unknown dataset 'nuklei': did you mean 'nuclei'"):
        sweep(configs, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
