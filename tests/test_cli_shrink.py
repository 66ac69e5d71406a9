"""explainfix shrink from the shell: what it writes, prints, and answers to mistakes."""

import json

import pytest

import explainfix as xf
from explainfix.cli import main
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.train import train

NETWORK = """
from torch import nn

def small(num_classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, num_classes, 1),
    )
"""
QUICK = ["--epochs", "1", "--batches", "2", "--despite-noise", "--params", "0.6"]
DATA = ["--data", "nuclei", "--data-option", "count=16", "size=32", "--batch-size", "4"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK)
    return tmp_path


def test_from_nothing_to_a_small_network_and_its_page(here, capsys):
    line = ["shrink", "net.py:small", *DATA, "--train-epochs", "1", *QUICK]
    assert main([*line, "-o", "small.safetensors", "--report", "shrink.html"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == [
        *("round", "cut", "by", "latency", "params", "macs", "memory", "score", "change", "(95%)")
    ]
    assert "original" in out.splitlines()[1]
    assert "of the parameters" in out
    small = xf.create_model("net.py:small", weights=here / "small.safetensors",
                            num_classes=1, in_channels=3)  # fmt: skip
    assert sum(p.numel() for p in small.parameters()) <= 0.6 * 373
    assert "<svg" in (here / "shrink.html").read_text()


def test_a_run_knows_its_data_and_json_is_for_machines(here, capsys):
    options = {"count": 16, "size": 32}
    run = train(RunConfig("net.py:small", data_options=options, epochs=1, batch_size=4))
    line = ["shrink", str(run.folder), *QUICK, "--distil", "0.5", "-o", "small.safetensors"]
    line += ["--json"]
    assert main(line) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reached"]
    assert found["rounds"][1]["costs"]["shares"]["params"] <= 0.6
    assert xf.create_model("net.py:small", weights=f"{found['folder']}/teacher.safetensors")


def test_a_target_that_cannot_be_reached_is_an_error_and_the_best_is_kept(here, capsys):
    line = ["shrink", "net.py:small", *DATA, "--train-epochs", "1", "--epochs", "1"]
    line += ["--batches", "2", "--params", "0.0001", "--rounds", "1"]
    assert main([*line, "-o", "small.safetensors"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "params 0.0001 was not reached, it came to 0." in message
    assert "'small.safetensors' is the best there is" in message
    assert (here / "small.safetensors").is_file()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["unetd", "--params", "0.5"], "say what it is trained on, --data NAME"),
        (["unetd", "--data", "nuclei"], "how far? Give max_loss"),
        (["unetd", *DATA, "--params", "0.5", "--latency", "0.5"], "one target, not latency and"),
        (["unetd", *DATA, "--params", "0.5", "--ranking", "taylr"], "unknown kind of saliency"),
        (
            ["unetd", *DATA, "--params", "0.5", "--distil", "2"],
            "distil must be above 0 and at most",
        ),
        (["unetd", *DATA, "--params", "0.5", "--epochs", "1.5"], "a whole number is needed"),
    ],
)
def test_mistakes_are_answered_in_a_line(here, capsys, line, message):
    assert main(["shrink", *line, "-o", "small.safetensors"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_output_is_checked_before_anything_is_trained(here, capsys):
    assert main(["shrink", "unetd", *DATA, "--params", "0.5", "-o", "small.pth"]) == 2
    assert "must end in .safetensors" in capsys.readouterr().err
