"""A run that is tuned first: its settings are filled in, noted, and found again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from explainfix.cli import main
from explainfix.lab.measure import tuned_run
from explainfix.lab.measure.timing import Ratio
from explainfix.lab.measure.tuned_run import TUNING, tune_run
from explainfix.lab.measure.tuning import Tuning
from explainfix.lab.measure.ways import Settings
from explainfix.lab.run.config import RunConfig, make_config, read_config

SMALL = ["--data-option", "count=8", "size=32", "--accelerator", "cpu", "--batch-size", "4"]
CONFIG = RunConfig(
    model="net.py:net", data_options={"count": 8, "size": 32}, accelerator="cpu", batch_size=4
)


@pytest.fixture(autouse=True)
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def net(num_classes, in_channels):\n"
        "    return nn.Conv2d(in_channels, num_classes, 3, padding=1)\n"
    )


@pytest.fixture
def tries(monkeypatch):
    """Answers of `tune`, one after the other, and what it was asked."""
    asked = []
    answers = [Settings(channels_last=True, precision="bf16-mixed"), Settings(frugal=True)]

    def answer(network, images, *, seconds, given):
        asked.append((tuple(images.shape), given))
        chosen = replace(answers[len(asked) - 1], **given)
        return Tuning(chosen, Ratio(0.5, 0.4, 0.6), ("Because.",), ("Mind.",), ())

    monkeypatch.setattr(tuned_run, "tune", answer)
    return asked


def test_train_is_tuned_noted_and_goes_on(tries, capsys):
    command = ["train", "--model", "net.py:net", *SMALL, "--tune"]
    assert main([*command, "--epochs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["Because.", "Mind."]
    folder = Path(lines[-1].removeprefix("Wrote "))
    done = make_config(read_config(folder / "config.toml"))
    assert (done.channels_last, done.precision, done.frugal) == (True, "bf16-mixed", False)
    noted = json.loads((folder / TUNING).read_text())
    assert noted["settings"]["precision"] == "bf16-mixed"
    assert noted["why"] == ["Because."]
    assert tries == [((4, 3, 32, 32), {})]
    # The same command, and more epochs, find what was chosen: nothing is tried again.
    assert main([*command, "--epochs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(folder)
    assert main([*command, "--epochs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"Settings as chosen for '{folder}': channels last, bf16-mixed."
    assert lines[2] == f"Going on from '{folder}' after 1 of 2 epochs."
    longer = Path(lines[-1].removeprefix("Wrote "))
    assert (longer / TUNING).read_text() == (folder / TUNING).read_text()
    assert len(tries) == 1
    # Another rate is another run, to be tuned by itself.
    assert main([*command, "--epochs", "1", "--lr", "0.1", "--json"]) == 0
    assert len(tries) == 2


def test_what_is_given_is_not_tried(tries, tmp_path):
    given = replace(CONFIG, precision="32-true")
    tuned = tune_run(given, ["precision", "model"], runs=tmp_path)
    assert tries[0][1] == {"precision": "32-true"}
    assert tuned.config == replace(given, channels_last=True)
    every = ["precision", "channels_last", "frugal"]
    with pytest.raises(ValueError, match="nothing to choose: channels_last, precision, frugal"):
        tune_run(CONFIG, every, runs=tmp_path)


def test_a_compiled_run_is_not_frugal(tries, tmp_path):
    tuned = tune_run(replace(CONFIG, compile=True), ["compile"], runs=tmp_path)
    assert tries[0][1] == {"frugal": False}
    assert (tuned.config.compile, tuned.config.frugal) == (True, False)


def test_a_choice_is_that_of_the_same_options(tries, tmp_path):
    first = tune_run(CONFIG, [], runs=tmp_path)
    (tmp_path / "net_net-nuclei-learned-1").mkdir()
    (tmp_path / "net_net-nuclei-learned-1" / TUNING).write_text(first.note[TUNING])
    assert tune_run(CONFIG, [], runs=tmp_path).config == first.config
    assert len(tries) == 1
    tune_run(CONFIG, ["precision"], runs=tmp_path)  # given, though as it is by default
    assert len(tries) == 2


def test_several_machines_are_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(ValueError, match="use explainfix tune --write"):
        tune_run(CONFIG, [], runs=tmp_path)


def test_a_network_that_does_not_fit_the_data_is_a_mistake(tmp_path, capsys):
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef net(num_classes, in_channels):\n    return nn.Conv2d(9, 1, 3)\n"
    )
    assert main(["train", "--model", "net.py:net", *SMALL, "--tune"]) == 2
    assert "the model fails on images (4, 3, 32, 32)" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_it_is_really_tried(tmp_path):
    tuned = tune_run(CONFIG, ["precision"], runs=tmp_path, seconds=0.01)
    assert json.loads(tuned.note[TUNING])["tried"][0]["seconds"] > 0
    assert tuned.config.precision == "32-true"
