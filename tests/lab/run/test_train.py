"""Training: killed, stopped, spread over processes, and on bad input."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

import explainfix as xf
from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.data.loader import Share, training_steps
from explainfix.lab.run import checkpoint as checkpoints
from explainfix.lab.run.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.devices import is_compiler_there, learning_rate
from explainfix.lab.run.evaluation import evaluate
from explainfix.lab.run.folder import build_model, open_data, read_run
from explainfix.lab.run.losses import distance
from explainfix.lab.run.process import keep_large_blocks
from explainfix.lab.run.train import train
from explainfix.watch import Timeline

NETWORKS = """
import atexit
import multiprocessing
import os
import torch
from torch import nn

def plain(num_classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, num_classes, 1)
    )

def dropping(num_classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2),
        nn.Conv2d(4, num_classes, 1),
    )

class Log(nn.Module):
    def forward(self, x):
        return (x - 100).log()

def ending_badly(num_classes, in_channels):
    if multiprocessing.parent_process():
        atexit.register(os.abort)
    return plain(num_classes, in_channels)

def broken(num_classes, in_channels):
    return nn.Sequential(nn.Conv2d(in_channels, 4, 1), Log(), nn.Conv2d(4, num_classes, 1))

def small(num_classes, in_channels):
    return nn.Sequential(nn.Conv2d(in_channels, num_classes, 3))
"""


@pytest.fixture
def networks(tmp_path):
    file = tmp_path / "networks.py"
    file.write_text(NETWORKS)
    return file


@pytest.fixture
def config(networks):
    return RunConfig(
        model=f"{networks}:dropping",
        data_options={"count": 12, "size": 32},
        fix="ghaar",
        epochs=2,
        batch_size=4,
        checkpoint_seconds=0.0,
        accelerator="cpu",
    )


def without_times(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]


def same_weights(one, other):
    first, second = load_file(one), load_file(other)
    return all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_a_run_is_a_folder(config, tmp_path):
    before = torch.get_rng_state()
    moments = []
    run = train(config, runs=tmp_path / "runs", report=moments.append)
    assert torch.equal(before, torch.get_rng_state())
    assert {file.name for file in run.folder.iterdir()} == {
        "best.safetensors", "checkpoint.safetensors", "config.toml", "data.json",
        "last.safetensors", "lock", "metrics.csv", "result.json", "spectra.json",
    }  # fmt: skip
    assert [moment.step for moment in moments] == [1, 2, 3, 3, 1, 2, 3, 3]
    assert run.table()["loss"].is_monotonic_decreasing
    assert run.result["best"] == max(row["val dice"] for row in run.history)
    assert run.result["fixed_layers"] == 1
    xf.check_fixed(run.model("last"))
    again = train(config, runs=tmp_path / "runs", report=lambda moment: pytest.fail("done twice"))
    assert again == run


def test_fixed_kernels_have_no_optimizer_state(config, tmp_path):
    run = train(config, runs=tmp_path)
    names = load_file(run.folder / "checkpoint.safetensors")
    states = {name.split("/")[1] for name in names if name.startswith("optimizer/")}
    assert states == {"0.bias", "1.weight", "1.bias", "4.weight", "4.bias"}


def test_averages_of_batchnorm_are_those_of_the_weights_that_are_scored(config, tmp_path):
    plain = train(config, runs=tmp_path)
    again = train(replace(config, recalibrate=2), runs=tmp_path)
    assert [row["loss"] for row in again.history] == [row["loss"] for row in plain.history]
    one, other = (load_file(run.folder / "last.safetensors") for run in (plain, again))
    changed = {name for name in one if not torch.equal(one[name], other[name])}
    assert changed == {"1.running_mean", "1.running_var"}
    data = open_dataset("nuclei", **config.data_options)
    score = evaluate(again.model("last"), data, "val", resamples=1)["dice"]
    assert score.value == pytest.approx(again.history[-1]["val dice"])


KENNEL = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from explainfix.lab.run.config import make_config, read_config
from explainfix.lab.run.folder import read_run
from explainfix.lab.run.train import train

config, folder = make_config(read_config(sys.argv[1])), Path(sys.argv[2])

def start(runs):
    child = os.fork()
    if child == 0:
        train(config, runs=runs)
        os._exit(0)
    return child

began = time.monotonic()
assert os.waitpid(start(folder / "whole"), 0)[1] == 0
length = time.monotonic() - began
random.seed(7)
kills = 0
while kills < 50:
    child = start(folder / "killed")
    # later and later: a machine that has become slow must still come to the end
    time.sleep(random.uniform(0.1, 0.6) * length * (1 + kills / 10))
    if os.waitpid(child, os.WNOHANG) != (0, 0):
        break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kills += 1
print(kills)
"""


def test_killed_at_any_moment_a_run_ends_as_if_nothing_had_happened(config, tmp_path):
    longer = replace(config, epochs=6, data_options={"count": 24, "size": 32})
    (tmp_path / "run.toml").write_text(longer.to_toml())
    done = subprocess.run(
        [sys.executable, "-c", KENNEL, tmp_path / "run.toml", tmp_path],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 2 <= int(done.stdout) < 50
    [whole], [killed] = (list((tmp_path / name).iterdir()) for name in ("whole", "killed"))
    for name in ("last.safetensors", "best.safetensors"):
        assert same_weights(whole / name, killed / name)
    assert without_times(read_run(killed)) == without_times(read_run(whole))
    assert sorted(f.name for f in killed.iterdir()) == sorted(f.name for f in whole.iterdir())
    assert (killed / "spectra.json").read_text() == (whole / "spectra.json").read_text()


@pytest.mark.parametrize("stop", [(0, 2), (1, 1)])
def test_stopped_by_the_user(config, tmp_path, stop):
    def interrupt(moment):
        if (moment.epoch, moment.step) == stop:
            raise KeyboardInterrupt

    whole = train(config, runs=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, runs=tmp_path / "stopped", report=interrupt)
    seen = []
    run = train(config, runs=tmp_path / "stopped", report=seen.append)
    # the last checkpoint is of the step before: its report came before it was written
    assert (seen[0].epoch, seen[0].step) == stop
    assert without_times(run) == without_times(whole)
    assert same_weights(run.folder / "last.safetensors", whole.folder / "last.safetensors")


def test_two_processes_learn_as_one_with_the_double_batch(config, networks, tmp_path):
    plain = replace(config, model=f"{networks}:plain", fix="ghaar", frugal=True, lr=0.02)
    one = train(plain, runs=tmp_path)
    environment = dict(os.environ)
    two = train(replace(plain, batch_size=2, devices=2), runs=tmp_path)
    assert dict(os.environ) == environment
    parts = train(replace(plain, batch_size=2, accumulate=2), runs=tmp_path)
    for other in (two, parts):
        for name in ("loss", "val dice", "val dice per image"):
            wanted = [row[name] for row in one.history]
            assert [row[name] for row in other.history] == pytest.approx(wanted, rel=1e-4)
    assert one.history[0]["loss"] > one.history[1]["loss"]


def test_who_dies_of_leaving_has_done_the_run(config, networks, tmp_path):
    """Threads that are left over may abort a process that ends; the run is whole by then."""
    dying = replace(config, model=f"{networks}:ending_badly", fix=None, epochs=1, devices=2)
    assert len(train(dying, runs=tmp_path).history) == 1


def test_a_share_of_the_loss_is_the_distance_to_the_teacher(config, networks, tmp_path):
    """The first step's loss by hand; the teacher, which has BatchNorm and dropout, is at rest."""
    teacher = train(replace(config, fix=None), runs=tmp_path)
    plain = replace(config, model=f"{networks}:plain", fix=None, epochs=1, batch_size=12)
    spec = f"{networks}:dropping@{teacher.folder / 'best.safetensors'}"
    alone = train(plain, runs=tmp_path)
    taught = train(replace(plain, teacher=spec, distil=0.25), runs=tmp_path)
    assert taught.folder != alone.folder
    data = open_data(alone.config)
    [[(images, masks)]] = training_steps(data, "train", Share(12), seed=0, epoch=0)
    with torch.no_grad():
        logits = build_model(alone.config, data)(images)
        far = distance(logits, teacher.model().eval()(images), masks, data.task).item()
    [row], [other] = taught.history, alone.history
    assert row["loss"] == pytest.approx(0.75 * other["loss"] + 0.25 * far, rel=1e-5)
    assert row["val loss"] != other["val loss"]  # it learned something else,
    [again] = train(replace(plain, model=str(taught.folder), lr=1e-12), runs=tmp_path).history
    assert row["val loss"] == pytest.approx(again["val loss"], rel=1e-4)  # and is judged by labels


def test_who_is_as_the_teacher_learns_nothing_more(config, networks, tmp_path):
    first = train(replace(config, model=f"{networks}:plain", fix=None), runs=tmp_path)
    spec, as_it_is = str(first.folder), {"fix": None, "optimizer": "sgd", "epochs": 1}
    same = replace(config, model=spec, teacher=spec, distil=1.0, **as_it_is)
    run = train(same, runs=tmp_path)
    assert run.history[0]["loss"] == 0
    assert same_weights(run.folder / "last.safetensors", first.folder / "best.safetensors")


def test_a_teacher_that_cannot_teach(config, tmp_path):
    def fails(message, teacher):
        with pytest.raises(ValueError, match=message):
            train(replace(config, teacher=str(teacher), distil=0.5), runs=tmp_path / "none")
        assert not list((tmp_path / "none").iterdir())

    fails("the teacher 'unetd' has random weights: give one that is trained", "unetd")
    file = tmp_path / "teacher.safetensors"
    for classes, added, message in (
        (2, 1.0, r"': the model gives outputs \(4, 2, 32, 32\), segmentation on this data needs"),
        (1, torch.inf, "': its outputs are not finite"),
    ):
        model = xf.create_model("unetd", num_classes=classes)
        with torch.no_grad():
            model.head.weight.add_(added)
        xf.save(model, file, overwrite=True)
        fails(f"^the teacher '.*teacher.safetensors{message}", file)


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16-mixed"},
        {"channels_last": True, "clip": 0.5, "schedule": "onecycle"},
        {"optimizer": "sgd", "workers": 1, "evaluate_on": ("test", "val"), "evaluate_every": 2},
        {
            "data": "xray-like",
            "model": "torchvision:resnet18",
            "fix": None,
            "epochs": 1,
            "data_options": {"count": 80, "size": 32},
            "batch_size": 40,
        },
    ],
)
def test_options(config, tmp_path, changes):
    run = train(replace(config, **changes), runs=tmp_path)
    assert torch.tensor([row["loss"] for row in run.history]).isfinite().all()
    assert run.result["best"] is not None


def test_one_label_an_image_and_labels_that_cannot_be_scored(config, tmp_path):
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(12):
            Image.new("L", (32, 32), level + number).save(
                tmp_path / "data" / name / f"{number}.png"
            )
    resnet = replace(config, model="torchvision:resnet18", fix=None, epochs=1)
    run = train(replace(resnet, data=f"folder:{tmp_path / 'data'}", data_options={}), runs=tmp_path)
    assert run.config.loss == "cross_entropy"
    assert 0 <= run.result["best"] <= 1
    few = replace(resnet, data="xray-like", data_options={"count": 32, "size": 32}, batch_size=16)
    run = train(few, runs=tmp_path)
    shown = {name.removeprefix("val auc ") for name in run.history[0] if "val auc " in name}
    assert run.result["left_out"]["val"]
    assert shown.isdisjoint(run.result["left_out"]["val"])


def test_labels_that_cannot_be_scored_are_remembered_after_a_kill(config, tmp_path):
    few = replace(config, model="torchvision:resnet18", fix=None, data="xray-like",
                  data_options={"count": 32, "size": 32}, batch_size=16, epochs=1)  # fmt: skip
    whole = train(few, runs=tmp_path / "whole")
    run = train(few, runs=tmp_path / "killed")
    (run.folder / "result.json").unlink()  # killed after the last checkpoint
    again = train(few, runs=tmp_path / "killed")
    assert again.result["left_out"] == whole.result["left_out"] != {}


def test_another_run_under_the_same_name_is_refused(config, tmp_path):
    folder = train(config, runs=tmp_path).folder
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("accumulate = 1", "accumulate = 9"))
    with pytest.raises(ValueError, match="another run, whose accumulate is 9, not 1: move it"):
        train(config, runs=tmp_path)


def test_events_for_tensorboard(config, tmp_path):
    run = train(replace(config, tensorboard=True), runs=tmp_path)
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(run.folder / "events"))
    read.Reload()
    for name, value in run.history[-1].items():
        if name != "epoch":
            last = read.Scalars(name.replace(" ", "/", 1))[-1]
            assert (last.step, last.value) == (2, pytest.approx(value, rel=1e-6))
    drift = read.Scalars("explainfix/drift/0")
    assert [(event.step, event.value) for event in drift] == [(1, 0), (2, 0)]  # it is fixed


def test_a_run_records_how_its_spectra_moved(config, tmp_path):
    run = train(replace(config, fix=None), runs=tmp_path)
    line = Timeline.load(run.folder / "spectra.json")
    assert [seen.epoch for seen in line.snapshots] == [0, 1, 2]
    ends = xf.explain(run.model("last"))
    assert torch.equal(line.spectrum("0").ed, ends["0"].ed)
    assert line.drift("0")[-1] > 0
    longer = train(replace(config, fix=None, epochs=3), runs=tmp_path)  # goes on from that
    again = Timeline.load(longer.folder / "spectra.json")
    assert again.as_dict()["snapshots"][:3] == line.as_dict()["snapshots"]
    assert [seen.epoch for seen in again.snapshots] == [0, 1, 2, 3]


def test_a_run_that_recorded_none_begins_with_its_true_start(config, tmp_path):
    short = train(replace(config, fix=None, epochs=1), runs=tmp_path)
    start = Timeline.load(short.folder / "spectra.json").as_dict()["snapshots"][0]
    (short.folder / "spectra.json").unlink()
    longer = train(replace(config, fix=None), runs=tmp_path)
    line = Timeline.load(longer.folder / "spectra.json")
    assert line.as_dict()["snapshots"][0] == start
    assert [seen.epoch for seen in line.snapshots] == [0, 2]


def test_a_network_without_spatial_layers_trains_as_well(config, networks, tmp_path):
    with networks.open("a") as file:
        file.write(
            "\ndef pointwise(num_classes, in_channels):\n"
            "    return nn.Sequential(nn.Conv2d(in_channels, num_classes, 1))\n"
        )
    run = train(replace(config, model=f"{networks}:pointwise", fix=None), runs=tmp_path / "runs")
    assert not (run.folder / "spectra.json").exists()


@pytest.mark.skipif(not is_compiler_there("cpu"), reason="no C++ compiler")
def test_compiled_runs_go_on_and_are_the_networks_own(config, networks, tmp_path):
    config = replace(config, model=f"{networks}:plain")  # dropout draws other numbers compiled
    plain = train(config, runs=tmp_path)
    compiled = train(replace(config, compile=True), runs=tmp_path)
    assert compiled.folder != plain.folder
    one, other = (load_file(run.folder / "last.safetensors") for run in (plain, compiled))
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-3, atol=1e-5)
    xf.check_fixed(compiled.model("last"))
    longer = train(replace(config, compile=True, epochs=3), runs=tmp_path)
    assert longer.history[:2] == compiled.history


def test_nan_stops_a_run_and_names_the_layer(config, networks, tmp_path):
    broken = replace(config, model=f"{networks}:broken", fix=None)
    message = r"loss is nan in epoch 1, step 1, because of layer '1' \(Log\): its inputs were"
    with pytest.raises(ValueError, match=message):
        train(broken, runs=tmp_path)
    exploding = replace(config, model=f"{networks}:plain", fix=None, lr=1e30, epochs=4)
    with pytest.raises(ValueError, match=r"because of layer '[02]'"):
        train(exploding, runs=tmp_path)


def test_a_full_disk_leaves_the_last_checkpoint(config, tmp_path, monkeypatch):
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        train(config, runs=tmp_path)
    assert caught.value.filename.endswith("checkpoint.safetensors")
    monkeypatch.undo()
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]
    seen = []
    train(config, runs=tmp_path, report=seen.append)
    assert (seen[0].epoch, seen[0].step) == (0, 3)


def test_bad_input(config, networks, tmp_path):
    def fails(message, error=ValueError, runs=tmp_path / "none", **changes):
        with pytest.raises(error, match=message):
            train(replace(config, **changes), runs=runs)

    fails("there are .* CPU cores", devices=1000)
    fails("has no split 'vall'", evaluate_on=("vall",))
    fails("'cuont': did you mean 'count'", data_options={"cuont": 3})
    fails("16-mixed.* needs a GPU", precision="16-mixed")
    fails("give frugal or compile, not both", compile=True, frugal=True)
    assert not (tmp_path / "none").exists()
    fails("was it made for other data", model=f"{networks}:small")
    assert not list((tmp_path / "none").iterdir())
    (tmp_path / "file").write_text("")
    fails("Not a directory", error=OSError, runs=tmp_path / "file")


def test_a_run_is_done_by_one_process_at_a_time(config, tmp_path):
    def start_again(moment):
        with pytest.raises(ValueError, match="being run by another process"):
            train(config, runs=tmp_path)

    train(replace(config, epochs=1), runs=tmp_path / "other")  # any other run may go on
    train(config, runs=tmp_path, report=start_again)


def test_checkpoint_of_another_model(tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    small, large = nn.Linear(2, 2), nn.Linear(2, 3)
    write_checkpoint(file, small, torch.optim.Adam(small.parameters()), Checkpoint())
    with pytest.raises(ValueError, match="does not fit the model: 'weight' is"):
        read_checkpoint(file, large, torch.optim.Adam(large.parameters()))
    file.write_bytes(b"no")
    with pytest.raises(ValueError, match="damaged or no checkpoint"):
        read_checkpoint(file, small, torch.optim.Adam(small.parameters()))


def test_checkpoint_round_trip_is_exact(tmp_path):
    def learn(model, optimizer, steps):
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.ones(3, 2) + step).square().sum().backward()
            optimizer.step()

    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (one, two)]
    learn(one, optimizers[0], 3)
    progress = Checkpoint(epoch=2, loss=0.1 + 0.2, history=[{"epoch": 1, "loss": 1 / 3}])
    write_checkpoint(tmp_path / "c.safetensors", one, optimizers[0], progress)
    assert read_checkpoint(tmp_path / "c.safetensors", two, optimizers[1]) == progress
    learn(one, optimizers[0], 3)
    learn(two, optimizers[1], 3)
    assert torch.equal(one.weight, two.weight)


def test_one_cycle_is_torchs():
    config = RunConfig(lr=0.008, schedule="onecycle")
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.008, total_steps=101, pct_start=31 / 101, cycle_momentum=False
    )  # whose first part ends one step before that share of the steps
    for step in range(101):
        wanted = optimizer.param_groups[0]["lr"]
        assert learning_rate(config, step / 100) == pytest.approx(wanted, rel=1e-6)
        optimizer.step()
        if step < 100:
            cycle.step()
    assert learning_rate(RunConfig(lr=0.5), 0.7) == 0.5


def test_large_blocks_can_be_kept_on_linux():
    assert keep_large_blocks() is (sys.platform == "linux")


def test_result_is_json(config, tmp_path):
    run = train(replace(config, epochs=1), runs=tmp_path)
    assert json.loads((run.folder / "result.json").read_text()) == run.result
