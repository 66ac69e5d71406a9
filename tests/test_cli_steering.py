"""The commands steer and merge, and what fix, info and train say and do about mixing."""

import json

import pytest
import torch

import explainfix as xf
from explainfix.cli import main
from explainfix.mixing.steered import steered_layers

RESNET = "torchvision:resnet18"


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_info_counts_what_would_be_left_to_learn(capsys):
    assert main(["info", RESNET]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "With all of them fixed, 694,632 (5.9%) would be left to learn." in told
    assert "16 layers with 74% of the weights: fix with --mix, or use explainfix steer" in told
    assert main(["info", "torchvision:resnet50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unmixed"] == []


def test_fix_says_where_nothing_mixes_and_mixes(capsys):
    assert main(["fix", RESNET, "--method", "ghaar", "-o", "a.safetensors"]) == 0
    told = capsys.readouterr().out
    assert "Left to learn: 694,632 of 11,689,512 parameters (5.9%)" in told
    assert "fix with --mix" in told
    assert main(["fix", RESNET, "--method", "ghaar", "--mix", "-o", "b.safetensors"]) == 0
    told = capsys.readouterr().out
    assert "16 of them mixed by a learned 1x1" in told
    assert "fix with --mix" not in told
    model = xf.load("b.safetensors")
    xf.check_fixed(model)
    assert len(steered_layers(model)) == 16


def test_steer_then_merge(capsys):
    assert main(["steer", RESNET, "--filters", "4", "-o", "a.safetensors"]) == 0
    told = capsys.readouterr().out
    assert "17 layers steered by dct2: 45.5% of their weights" in told
    assert "Wrote a.safetensors" in told
    assert main(["merge", "a.safetensors", "-o", "b.safetensors"]) == 0
    assert "Merged 17 layers" in capsys.readouterr().out
    steered, merged = (xf.load(file).eval() for file in ("a.safetensors", "b.safetensors"))
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(steered(x), merged(x), rtol=1e-4, atol=1e-4)
    assert not steered_layers(merged)


def test_steer_weighted_by_data_as_json(capsys):
    data = ["--data", "xray-like", "--data-option", "size=32", "--data-option", "count=64"]
    arguments = [
        "steer",
        RESNET,
        "--in-channels",
        "1",
        "--num-classes",
        "5",
        "--energy",
        "0.5",
        *data,
        "--json",
    ]
    assert main([*arguments, "-o", "a.safetensors"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["layers"]) == 17
    assert told["params_kept"] < 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["steer", RESNET, "--filters", "10", "-o", "a.safetensors"], "3x3 kernels have no more"),
        (["steer", RESNET, "--energy", "2", "-o", "a.safetensors"], "at most 1, not 2.0"),
        (["steer", RESNET, "-o", "a.pth"], "must end in .safetensors"),
        (["steer", RESNET, "--method", "dct", "-o", "a.safetensors"], "did you mean 'dct2'"),
        (["steer", RESNET, "--guide", "imagenet", "-o", "a.safetensors"], "option 'guide'"),
        (["merge", RESNET, "-o", "a.safetensors"], "nothing to merge"),
        (["train", "--mix"], "mix needs fix"),
        (["train", "--fix", "pca"], "unknown filter method 'pca'"),
        (["train", "--fix", "ghaar", "--mix", "--steer"], "mix or steer, not both"),
        (["train", "--fix", "ghaar", "--steer-filters", "2"], "need steer"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys, tmp_path):
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1
    assert not list(tmp_path.glob("*.safetensors"))


PLAIN = """
from torch import nn

def plain(num_classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, num_classes, 3, padding=1),
    )
"""


@pytest.mark.parametrize("form", [["--mix"], ["--steer", "--steer-filters", "2"]])
def test_a_run_in_either_form(form, capsys, tmp_path):
    (tmp_path / "net.py").write_text(PLAIN)
    small = ["--data-option", "count=8", "--data-option", "size=32", "--accelerator", "cpu"]
    arguments = ["train", "--model", "net.py:plain", *small, "--fix", "ghaar", *form]
    assert main([*arguments, "--epochs", "1", "--json"]) == 0
    assert main([*arguments, "--epochs", "2"]) == 0
    assert "all 3 fixed layers are as they were fixed" in capsys.readouterr().out
    assert len(list((tmp_path / "runs").glob("*/best.safetensors"))) == 2  # the second went on
