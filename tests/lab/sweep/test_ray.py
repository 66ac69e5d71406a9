"""Sweeps on a Ray cluster of two nodes, of which a worker dies, and then a node."""

import os
import socket
import subprocess
import time

import pytest

from explainfix.lab.sweep.sweep import SweepError, Workers, sweep
from sweeping import EPOCHS, STEPS, check_one_was_killed, log_of, make_configs

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore::Warning:ray.*")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # else its workers wait for all other tests
        made = Cluster(initialize_head=True, head_node_args=node)
        made.add_node(**node)
        made.wait_for_nodes()
        yield made
        made.shutdown()


@pytest.fixture
def make(tmp_path):
    return make_configs(tmp_path)


def test_a_worker_that_is_killed_is_replaced(cluster, make, tmp_path):
    configs = {str(seed): make("dying", seed=seed) for seed in range(3)} | {"bad": make("broken")}
    workers = Workers("ray", address=cluster.address)
    moments = []
    with pytest.raises(SweepError, match=r"1 of 4 runs failed:\n  bad: .*no such luck today"):
        sweep(configs, runs=tmp_path / "runs", workers=workers, report=moments.append)
    assert not ray.is_initialized()
    assert (moments[-1].done, moments[-1].failed, moments[-1].epochs_done) == (3, 1, 3 * EPOCHS)
    assert max(moment.running for moment in moments) <= 2
    del configs["bad"]
    check_one_was_killed(tmp_path, sweep(configs, runs=tmp_path / "runs"))
    lines = [line.split() for line in (tmp_path / "steps.log").read_text().splitlines()]
    assert str(os.getpid()) not in {process for _, process, _ in lines}
    assert {threads for _, _, threads in lines} == {"1"}  # those that were declared


def test_stopped_by_the_user_it_goes_on_elsewhere(cluster, make, tmp_path):
    def stop(moment):
        if moment.epochs_done >= 1:
            raise KeyboardInterrupt

    configs = {str(seed): make("slow", seed=seed) for seed in range(3)}
    workers = Workers("ray", address=cluster.address)
    with pytest.raises(KeyboardInterrupt):
        sweep(configs, runs=tmp_path / "runs", workers=workers, report=stop)
    found = sweep(configs, runs=tmp_path / "runs")
    assert [len(run.history) for run in found.values()] == [EPOCHS] * 3
    assert max(log_of(tmp_path, "starts.log").values()) <= 2
    assert max(log_of(tmp_path, "steps.log").values()) <= (EPOCHS + 1) * STEPS


def test_a_node_that_is_killed_loses_an_epoch_of_one_run(cluster, make, tmp_path):
    def kill(moment):
        if moment.epochs_done < 4 or not cluster.worker_nodes:
            return
        pids = {line.split()[1] for line in (tmp_path / "starts.log").read_text().splitlines()}
        assert len(pids) == 2  # both wait in their third epoch, one on each node
        [node] = cluster.worker_nodes  # all but the head
        cluster.remove_node(node, allow_graceful=False)
        until = time.monotonic() + 30
        while all(map(is_alive, pids)) and time.monotonic() < until:
            time.sleep(0.1)
        (tmp_path / "released").touch()

    configs = {str(seed): make("held", seed=seed) for seed in range(3)}
    workers = Workers("ray", address=cluster.address)
    found = sweep(configs, runs=tmp_path / "runs", workers=workers, report=kill)
    assert not cluster.worker_nodes
    assert [[row["epoch"] for row in run.history] for run in found.values()] == [[1, 2, 3]] * 3
    starts, steps = log_of(tmp_path, "starts.log"), log_of(tmp_path, "steps.log")
    assert sorted(starts.values()) == [1, 1, 2]
    # the step in which it waited is all that was done again
    assert steps == {key: EPOCHS * STEPS + starts[key] - 1 for key in starts}


def is_alive(process):
    shown = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True)
    return shown.stdout.strip()[:1] not in ("", "Z")


def test_an_address_that_does_not_answer(make, tmp_path, monkeypatch):
    monkeypatch.setattr("explainfix.lab.sweep.ray._ANSWER", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        for address, message in (
            ("127.0.0.1:1", "'127.0.0.1:1' does not answer .*is the cluster running"),
            (f"127.0.0.1:{port}", f"something listens at '127.0.0.1:{port}', but no Ray cluster"),
            ("somewhere", "HOST:PORT or ray://HOST:PORT, not 'somewhere'"),
        ):
            with pytest.raises(ValueError, match=message):
                sweep({"a": make()}, runs=tmp_path / "r", workers=Workers("ray", address=address))
        assert time.monotonic() - began < 15
    assert not (tmp_path / "r").exists()
