"""The commands train, evaluate and predict, as a user sees them."""

import json

import pytest
from PIL import Image

from explainfix.cli import main, training

SMALL = ["--data-option", "count=8", "--data-option", "size=32", "--accelerator", "cpu"]


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_evaluate_predict(tmp_path, capsys):
    assert main(["train", *SMALL, "--fix", "ghaar", "--epochs", "2", "--batch-size", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:9] for line in lines[:2]] == ["epoch 1/2", "epoch 2/2"]
    assert "all 16 fixed layers are as they were fixed" in lines[2]
    run = lines[3].removeprefix("Wrote ")
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
    assert next(iter(capsys.readouterr().out.splitlines())).startswith("epoch 2/2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--epohcs", "3"], "--epohcs"),
        (["train", "--epochs", "0"], "epochs must be at least 1"),
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
    assert said.out == ""
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
