"""Trackers: the numbers arrive, read back by each tracker's own means."""

import json
import struct
import sys
import time

import pytest
from torch import nn

from explainfix.watch import Watch, to_mlflow, to_tensorboard, to_wandb

NAMES = {
    "explainfix/drift/0", "explainfix/low_frequency_share/0", "explainfix/drift_mean",
    "explainfix/fixed_changed",
}  # fmt: skip


def watched(log):
    """Three looks at a layer that moves, and what was told of them: name → step → value."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3))
    told = {name: {} for name in NAMES}

    def both(numbers, step):
        for name, value in numbers.items():
            told[name][step] = value
        log(numbers, step)

    watch = Watch(model, log=both)
    for _ in range(2):
        for _ in range(5):
            watch.step()
        model[0].weight.data[0] += 0.3
        watch.epoch()
    assert [*told["explainfix/drift/0"]] == [0, 5, 10]
    assert told["explainfix/drift/0"][10] > 0
    return told


def test_tensorboard(tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="pip install 'explainfix[tensorboard]'",
    )
    told = watched(to_tensorboard(tmp_path / "events"))
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == NAMES
    for name, values in told.items():
        read = {event.step: event.value for event in events.Scalars(name)}
        assert read == pytest.approx(values, rel=1e-6)  # events are of float32


def test_tensorboard_by_a_writer_that_is_open(tmp_path):
    seen = []

    class Writer:
        def add_scalar(self, *event):
            seen.append(event)

        def flush(self):
            seen.append("flush")

    to_tensorboard(Writer())({"a": 1.0}, 3)
    assert seen == [("a", 1.0, 3), "flush"]


def wandb_records(file):
    """The records of a W&B run, as its file has them: LevelDB's log format around protobuf."""
    from wandb.proto.wandb_internal_pb2 import Record

    raw, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", raw[at : at + 7])
        whole += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def whole_run(file):
    """All of them, once the last is there: W&B's own process may still be writing."""
    for _ in range(100):
        records = list(wandb_records(file))
        if records and records[-1].WhichOneof("record_type") == "exit":
            return records
        time.sleep(0.2)
    pytest.fail("W&B did not write the end of its run")


@pytest.mark.filterwarnings("default")  # of the package itself
def test_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="pip install 'explainfix[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings = wandb.Settings(silent=True, x_disable_stats=True, disable_git=True)
    with pytest.raises(ValueError, match=r"call wandb\.init"):
        to_wandb()
    with wandb.init(dir=str(tmp_path), project="tests", settings=settings) as run:
        log = to_wandb()
        run.log({"loss": 1.0}, step=100)  # a step of its own does not lose ours
        told = watched(log)
    [file] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    read = {name: {} for name in NAMES}
    steps = set()
    for record in whole_run(file):
        if record.WhichOneof("record_type") == "metric" and record.metric.glob_name:
            steps.add((record.metric.glob_name, record.metric.step_metric))
        row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for name in NAMES & set(row):
            read[name][row["explainfix/step"]] = row[name]
    assert steps == {("explainfix/*", "explainfix/step")}
    assert read == told


@pytest.mark.filterwarnings("default")  # of the package itself
def test_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="pip install 'explainfix[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="MLflow's local store needs it")
    before = mlflow.get_tracking_uri()
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    mlflow.set_tracking_uri(uri)
    try:
        with pytest.raises(ValueError, match=r"call mlflow\.start_run"):
            to_mlflow()
        client = mlflow.MlflowClient(uri)
        experiment = client.create_experiment("tests", artifact_location=tmp_path.as_uri())
        with mlflow.start_run(experiment_id=experiment) as run:
            told = watched(to_mlflow())
        other = client.create_run(experiment).info.run_id
        many = {f"explainfix/drift/layer({i})": float(i) for i in range(1203)}
        to_mlflow(other)(many, 4)
        assert set(client.get_run(run.info.run_id).data.metrics) == NAMES
        for name, values in told.items():
            history = client.get_metric_history(run.info.run_id, name)
            assert {metric.step: metric.value for metric in history} == values
        arrived = client.get_run(other).data.metrics
        assert len(arrived) == 1203
        assert arrived["explainfix/drift/layer_1202_"] == 1202
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.parametrize(
    ("package", "log"),
    [("wandb", to_wandb), ("mlflow", to_mlflow), ("tensorboard", lambda: to_tensorboard("x"))],
)
def test_a_missing_package_is_answered_with_its_line(package, log, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'explainfix\[{package}\]'"):
        log()
