"""The commands train, evaluate and predict, as a user sees them."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from explainfix.cli import main, training
from explainfix.lab.run.config import RunConfig

SMALL = ["--data-option", "count=8", "--data-option", "size=32", "--accelerator", "cpu"]


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_evaluate_predict(tmp_path, capsys):
    assert main(["train", *SMALL, "--fix", "ghaar", "--epochs", "2", "--batch-size", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Training unetd on nuclei: filters fixed by ghaar, 2 epochs."
    assert [line[:9] for line in lines[1:3]] == ["epoch 1/2", "epoch 2/2"]
    assert "all 16 fixed layers are as they were fixed" in lines[3]
    run = lines[4].removeprefix("Wrote ")
    assert run.startswith("runs/unetd-nuclei-ghaar-")

    assert main(["evaluate", run, "-o", "predictions.safetensors", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["split"], scores["images"]) == ("test", 2)
    assert [score["name"] for score in scores["scores"]] == ["dice", "dice per image"]
    assert (tmp_path / "predictions.safetensors").stat().st_size > 2 * 32 * 32
    file = f"{run}/best.safetensors"
    assert main(["evaluate", file, "--data", "nuclei", "--split", "val", *SMALL[:4]]) == 0
    assert "nuclei val, 2 images" in capsys.readouterr().out

    Image.new("RGB", (40, 40)).save("a.png")
    assert main(["predict", run, "a.png", "-o", "out"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "a.mask.png", "a.overlay.png",
    ]  # fmt: skip
    assert main(["predict", run, "a.png", "-o", "out"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_config_file_and_flags_over_it(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(
        'accelerator = "cpu"\nepochs = 5\nbatch_size = 4\nchannels_last = true\n'
        "[data_options]\ncount = 8\nsize = 32\n"
    )
    flags = ["--epochs", "1", "--no-channels-last", "--json"]
    assert main(["train", "--config", "run.toml", *flags]) == 0
    run = tmp_path / json.loads(capsys.readouterr().out)["folder"]
    written = (run / "config.toml").read_text()
    assert "epochs = 1\n" in written
    assert "channels_last = false\n" in written
    # what is written beside the results does the same run, which is done already
    assert main(["train", "--config", str(run / "config.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(run.relative_to(tmp_path))


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch):
    def press(self, moment):
        if moment.row is not None:
            raise KeyboardInterrupt

    command = ["train", *SMALL, "--epochs", "2", "--batch-size", "4"]
    with monkeypatch.context() as patch:
        patch.setattr(training.Display, "__call__", press)
        with pytest.raises(SystemExit, match="130"):
            main(command)
    assert "The same command goes on from the last checkpoint" in capsys.readouterr().err
    assert main(command) == 0
    _, going_on, epoch, *_ = capsys.readouterr().out.splitlines()
    assert going_on.endswith("after 1 of 2 epochs.")
    assert epoch.startswith("epoch 2/2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--epohcs", "3"], "--epohcs"),
        (["train", "--epochs", "0"], "epochs must be at least 1"),
        (["train", "--batch-size", "4.5"], "a whole number is needed, not '4.5'"),
        (["train", "--augment", "flisp"], "did you mean 'flips'"),
        (["train", "--augment", "none", "flips"], "unknown augmentation 'none'"),
        (["evaluate", "unetd", "--batch-size", "1.5"], "a whole number is needed, not '1.5'"),
        (["train", "--fix", "gharr"], "did you mean 'ghaar'"),
        (["train", "--data", "nucleii"], "did you mean 'nuclei'"),
        (["train", "--data-option", "count"], "not of the form NAME=VALUE"),
        (["train", "--model", "unetdd", *SMALL], "did you mean 'unetd'"),
        (["train", "--devices", "999", "--accelerator", "cpu"], "CPU cores"),
        (["train", "--config", "nowhere.toml"], "nowhere.toml"),
        (["train", "--model", "missing.safetensors", *SMALL], "missing.safetensors"),
        (["evaluate", "unetd"], "give --data"),
        (
            ["evaluate", "unetd", "--data", "xray-like", "--data-option", "size=32"],
            "the model fails on images (1, 1",
        ),
        (["evaluate", "unetd", "--data", "nuclei", "--split", "tset"], "has no split 'tset'"),
        (["evaluate", "unetd", "--data", "nuclei", "-o", "p.npz"], "must end in .safetensors"),
        (["predict", "unetd", "no.png", "-o", "out", "--data", "nuclei"], "no.png"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(tmp_path, capsys, arguments, message):
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" or said.out.startswith("Training ")  # it is said before all is known
    assert len(said.out.splitlines()) <= 1
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def lines_of(capsys, *arguments, epochs):
    """What `train` says on the way to so many epochs, and the folder it names."""
    common = ["--batch-size", "4", "--model", "net.py:net", "--epochs", str(epochs)]
    assert main(["train", *SMALL, *common, *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return lines, Path(lines[-1].removeprefix("Wrote "))


@pytest.fixture
def net(in_a_new_folder):
    (in_a_new_folder / "net.py").write_text(
        "from torch import nn\n"
        "def net(num_classes, in_channels):\n"
        "    return nn.Conv2d(in_channels, num_classes, 3, padding=1)\n"
    )


def history(folder):
    with (folder / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_more_epochs_go_on_from_a_run(net, capsys):
    _, first = lines_of(capsys, epochs=1)
    before = {file: file.read_bytes() for file in first.iterdir()}
    lines, folder = lines_of(capsys, epochs=3)
    assert folder != first
    assert {file: file.read_bytes() for file in first.iterdir()} == before  # still a run of one
    assert lines[1] == f"Going on from '{first}' after 1 of 3 epochs."
    assert [line[:9] for line in lines[2:4]] == ["epoch 2/3", "epoch 3/3"]
    _, whole = lines_of(capsys, "--runs", "others", epochs=3)
    assert history(folder) == history(whole)
    for name in ("last", "best"):
        both = [(place / f"{name}.safetensors").read_bytes() for place in (folder, whole)]
        assert both[0] == both[1]
    fewer, short = lines_of(capsys, epochs=2)  # from that of one, not of three
    assert fewer[1] == f"Going on from '{first}' after 1 of 2 epochs."
    assert history(short) == history(whole)[:2]


def test_another_file_is_another_run_from_the_start(net, capsys, in_a_new_folder):
    lines_of(capsys, epochs=1)
    file = in_a_new_folder / "net.py"
    file.write_text(file.read_text().replace("3, padding=1", "5, padding=2"))
    lines, _ = lines_of(capsys, epochs=2)
    assert [line[:9] for line in lines[1:3]] == ["epoch 1/2", "epoch 2/2"]


def test_a_cycle_of_another_length_is_another_run_and_says_why(net, capsys):
    _, first = lines_of(capsys, "--schedule", "onecycle", epochs=1)
    lines, second = lines_of(capsys, "--schedule", "onecycle", epochs=2)
    assert second != first
    assert lines[1].startswith(f"'{first}' is the same with --epochs 1: one cycle's rate")
    assert len(history(second)) == 2


def test_patience_ends_a_run_the_same_after_a_kill(net, capsys):
    """A rate at which nothing changes: no evaluation after the first is better."""
    still = ["--lr", "1e-30", "--optimizer", "sgd", "--patience", "2"]
    lines, folder = lines_of(capsys, *still, epochs=9)
    assert len(history(folder)) == 3
    assert "Stopped early: no better score in 2 evaluations (--patience)." in lines
    (folder / "result.json").unlink()  # killed after the last checkpoint
    again, _ = lines_of(capsys, *still, epochs=9)
    assert [line for line in again if line.startswith("epoch")] == []
    assert len(history(folder)) == 3
    assert lines_of(capsys, *still, epochs=9)[0][1].startswith("Stopped early")  # finished: read
    more, _ = lines_of(capsys, *still[:-1], "3", epochs=9)  # more patience goes on
    assert [line[:9] for line in more if line.startswith("epoch")] == ["epoch 4/9"]
    less, _ = lines_of(capsys, *still[:-1], "1", epochs=9)  # these had too many epochs
    assert [line[:9] for line in less if line.startswith("epoch")] == ["epoch 1/9", "epoch 2/9"]


def test_the_loss_of_evaluation_is_that_of_training(net, capsys):
    """At a rate at which nothing changes, on the training images without augmentation."""
    still = ["--lr", "1e-30", "--optimizer", "sgd", "--augment", "none", "--evaluate-on", "train"]
    _, folder = lines_of(capsys, *still, epochs=1)
    [row] = history(folder)
    assert float(row["train loss"]) == pytest.approx(float(row["loss"]), rel=1e-5)
    lines, other = lines_of(capsys, *still[:5], "flips", "rotate90", epochs=1)
    assert other != folder
    assert "val loss " in lines[1]


def test_lists_as_people_type_them(net, capsys):
    together = ["--evaluate-on", "val", "test", "--augment", "flips", "noise"]
    apart = ["--evaluate-on", "val", "--evaluate-on", "test", "--augment", "flips"]
    _, one = lines_of(capsys, *together, epochs=1)
    _, other = lines_of(capsys, *apart, "--augment", "noise", epochs=1)
    assert one == other
    assert {"val dice", "test dice", "val loss", "test loss"} <= set(history(one)[0])


def test_help_shows_the_defaults(capsys):
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    usual = RunConfig()
    for flag, value in (
        ("--epochs", usual.epochs), ("--batch-size", usual.batch_size), ("--model", usual.model),
        ("--evaluate-on", "val"), ("--optimizer", usual.optimizer), ("--mix", "no"),
    ):  # fmt: skip
        after = text.split(f" {flag} ", 1)[1]
        assert re.search(r"\[default: ([^]]*)\]", after)[1] == str(value), flag


def test_the_first_line_comes_before_what_takes_long():
    """Lightning and all that trains is imported after the line that says what will be done."""
    code = (
        "import sys\n"
        "from explainfix.cli import main, training\n"
        "training._plan = lambda config: sys.exit('lightning_fabric' in sys.modules)\n"
        "main(['train'])\n"
        "sys.exit('no line was planned')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
