"""Sweeps: every run once, whatever happens to the processes that do them."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from explainfix.lab.run.folder import locked
from explainfix.lab.run.naming import run_name
from explainfix.lab.run.train import train
from explainfix.lab.sweep.sweep import SweepError, Workers, sweep
from sweeping import EPOCHS, STEPS, check_one_was_killed, log_of, make_configs


@pytest.fixture
def make(tmp_path):
    return make_configs(tmp_path)


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
    monkeypatch.setattr("explainfix.lab.sweep.progress.monotonic", lambda: next(clock))
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
    assert message.startswith("2 of 3 runs failed:\n  bad: '")
    assert ":broken' raised ValueError: no such luck today (" in message
    assert "--retry" in message
    assert list(caught.value.failed) == ["bad", "worse"]
    assert (moments[-1].done, moments[-1].failed, moments[-1].epochs) == (1, 2, 3)
    failed = [
        folder for folder in (tmp_path / "runs").iterdir() if (folder / "failed.txt").exists()
    ]
    assert len(failed) == 2
    lines = (failed[0] / "failed.txt").read_text().splitlines()
    assert lines[0] == caught.value.failed["bad"]
    assert any("networks.py" in line for line in lines)  # the traceback

    (tmp_path / "mended").touch()
    with pytest.raises(SweepError, match="2 of 3 runs failed"):  # not tried, but told
        sweep(configs, runs=tmp_path / "runs", report=lambda m: pytest.fail("tried again"))
    found = sweep(configs, runs=tmp_path / "runs", workers=Workers(retry=True))
    assert list(found) == ["bad", "good", "worse"]
    assert not list((tmp_path / "runs").glob("*/failed.txt"))
    assert set(log_of(tmp_path, "starts.log").values()) == {1, 2}  # seed 0 by two names, seed 1


def test_a_longer_run_begins_with_a_shorter_one(make, tmp_path):
    configs = {"short": make(), "long": replace(make(), epochs=EPOCHS + 1)}
    found = sweep(configs, runs=tmp_path / "runs")
    assert [len(found[label].history) for label in configs] == [EPOCHS, EPOCHS + 1]
    assert found["long"].history[:EPOCHS] == list(found["short"].history)  # seconds too


def test_threads_here_are_as_they_were(make, tmp_path):
    before = torch.get_num_threads()
    sweep({"a": make()}, runs=tmp_path / "runs", workers=Workers(cpus=1))
    assert torch.get_num_threads() == before


def test_a_run_that_somebody_else_is_at_is_no_failure_of_its_own(make, tmp_path, monkeypatch):
    monkeypatch.setattr("explainfix.lab.sweep.job.PATIENCE", 0.3)
    name = run_name(make().resolved("segmentation"))
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
        ({"engine": "here", "count": 2}, "count=2 needs engine='processes'"),
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


def test_processes_do_what_one_does(make, tmp_path):
    configs = {str(seed): make(seed=seed) for seed in range(3)}
    workers = Workers("processes", count=2)
    moments = []
    found = sweep(configs, runs=tmp_path / "runs", workers=workers, report=moments.append)
    assert max(moment.running for moment in moments) == 2
    assert moments[-1].epochs_done == moments[-1].epochs == 3 * EPOCHS
    here = sweep(configs, runs=tmp_path / "here", workers=Workers(cpus=1))
    assert list(found) == list(here)
    for label, run in found.items():
        assert losses_of(run) == pytest.approx(losses_of(here[label]), rel=1e-6)
    lines = [line.split() for line in (tmp_path / "steps.log").read_text().splitlines()]
    others = [line for line in lines if int(line[1]) != os.getpid()]
    assert len({process for _, process, _ in others}) == 2
    share = max(1, os.cpu_count() // 2)
    assert {int(threads) for _, _, threads in others} == {share}


def test_a_process_that_is_killed_is_replaced(make, tmp_path):
    configs = {str(seed): make("dying", seed=seed) for seed in range(3)}
    moments = []
    found = sweep(
        configs,
        runs=tmp_path / "runs",
        workers=Workers("processes", count=2, cpus=1),
        report=moments.append,
    )
    check_one_was_killed(tmp_path, found)
    [line] = [moment.line for moment in moments if "started again" in moment.line]
    assert "its process was killed (SIGKILL" in line


def test_a_run_that_always_kills_its_process_fails_in_the_end(make, tmp_path, monkeypatch):
    monkeypatch.setattr("explainfix.lab.sweep.workers.RESTARTS", 1)
    configs = {"cursed": make("cursed"), "bad": make("broken"), "good": make()}
    with pytest.raises(SweepError, match=r"cursed: its process was killed .*, 2 times") as caught:
        sweep(configs, runs=tmp_path / "runs", workers=Workers("processes", cpus=1))
    assert "raised ValueError: no such luck today" in caught.value.failed["bad"]
    assert sorted(log_of(tmp_path, "starts.log").values()) == [3]  # twice one, once the other
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 1


SWEEPER = """
import signal
import sys
from pathlib import Path
from explainfix.lab.run.config import make_config, read_config
from explainfix.lab.sweep.sweep import Workers, sweep

if __name__ == "__main__":
    # These tests may run in the background of a shell, whose children are told to ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(sys.argv[1])
    configs = {file.stem: make_config(read_config(file)) for file in sorted(folder.glob("*.toml"))}
    sweep(configs, runs=folder / "runs", workers=Workers("processes", count=2, cpus=1),
          report=lambda moment: print(moment.line, flush=True))
"""


@pytest.mark.parametrize("how", ["group", "parent", "interrupt"])
def test_a_whole_sweep_is_stopped_and_goes_on(make, tmp_path, how):
    configs = {str(seed): make("slow", seed=seed) for seed in range(4)}
    for label, config in configs.items():
        (tmp_path / f"{label}.toml").write_text(config.to_toml())
    (tmp_path / "sweeper.py").write_text(SWEEPER)
    started = subprocess.Popen(
        [sys.executable, str(tmp_path / "sweeper.py"), str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    for line in started.stdout:
        if "epoch 1/3" in line or "epoch 2/3" in line:
            break
    if how == "parent":
        os.kill(started.pid, signal.SIGKILL)
    else:
        os.killpg(started.pid, signal.SIGKILL if how == "group" else signal.SIGINT)
    _, errors = started.communicate(timeout=30)
    if how == "interrupt":
        assert errors.count("KeyboardInterrupt") == 1  # one traceback, not three
    assert not list((tmp_path / "runs").glob("*/failed.txt"))
    assert len(list((tmp_path / "runs").glob("*/result.json"))) < 4

    found = sweep(configs, runs=tmp_path / "runs")  # here, with what those processes left
    assert [[row["epoch"] for row in run.history] for run in found.values()] == [[1, 2, 3]] * 4
    starts, steps = log_of(tmp_path, "starts.log"), log_of(tmp_path, "steps.log")
    assert len(starts) == 4
    assert max(starts.values()) <= 2
    assert sum(starts.values()) <= 4 + 2  # two were under way
    # what was under way lost at most an epoch, everything else nothing
    assert all(EPOCHS * STEPS <= count <= (EPOCHS + 1) * STEPS for count in steps.values())
    assert sum(steps.values()) <= 4 * EPOCHS * STEPS + 2 * STEPS
