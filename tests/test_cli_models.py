"""Every command opens every model: by name, of one's own, from a file, from a run."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import explainfix as xf
from explainfix.cli import main

UNET = """
import torch
from torch import nn


class UNet(nn.Module):
    def __init__(self, num_classes=1, in_channels=3):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(in_channels, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(8, num_classes, 1)

    def forward(self, x):
        skip = self.down(x).relu()
        low = self.deep(nn.functional.max_pool2d(skip, 2))
        return self.head(self.out(torch.cat([skip, self.up(low)], 1)))


def unet(num_classes=1, in_channels=3):
    return UNet(num_classes, in_channels)


def broken():
    width = 7
    raise RuntimeError(f"the width {width} is odd")


def needs(depth):
    return nn.Conv2d(3, depth, 3)


def _private():
    return UNet()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a network of one's own, trained weights for one channel and a few images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(UNET)
    model = xf.create_model("my_net.py:unet", in_channels=1, num_classes=2)
    torch.save({"state_dict": {f"model.{n}": v for n, v in model.state_dict().items()}}, "w.ckpt")
    images = np.random.default_rng(0).normal(size=(2, 1, 32, 32)).astype("float32")
    np.savez("data.npz", x=images)
    return tmp_path


def succeed(*words):
    assert main([str(word) for word in words]) == 0, words


def test_a_model_of_ones_own_to_the_end_of_the_road(folder, capsys):
    counts = "--in-channels", 1, "--num-classes", 2
    succeed("fix", "my_net.py:unet@w.ckpt", *counts, "--method", "ghaar", "-o", "f.safetensors")
    fixed = "my_net.py:unet@f.safetensors"  # it knows its channels and classes
    succeed("info", fixed)
    assert "4 spatial layers, 4 fixed" in " ".join(capsys.readouterr().out.split())
    succeed("explain", fixed, "--data", "data.npz", "-o", "page.html")
    succeed("steer", fixed, "-o", "s.safetensors", "--filters", 4, "--layers", "deep.0")
    steered = "my_net.py:unet@s.safetensors"
    succeed("prune", steered, "--data", "data.npz", "--zero", 0.6, "-o", "p.safetensors")
    pruned = "my_net.py:unet@p.safetensors"
    succeed("compare", fixed, pruned)
    succeed("export", pruned, "--size", 32, "-o", "p.onnx")
    succeed("merge", steered, "-o", "m.safetensors")
    succeed("fix", "my_net.py:unet@m.safetensors", "--method", "dct2", "-o", "d.safetensors")
    succeed(
        "fix", "my_net.py:unet", "--method", "guidedsteer", "--guide", fixed, "-o", "g.safetensors"
    )
    capsys.readouterr()

    model = xf.create_model("my_net.py:unet", weights="p.safetensors")
    assert model.head.out_channels == 2
    assert model(torch.zeros(1, 1, 32, 32)).shape == (1, 2, 32, 32)
    for file in ("f", "s", "p"):
        xf.check_fixed(xf.create_model("my_net.py:unet", weights=f"{file}.safetensors"))


def test_a_named_model_with_a_saved_file(folder, capsys):
    succeed("fix", "unetd", "--num-classes", 4, "--method", "ghaar", "-o", "f.safetensors")
    capsys.readouterr()
    succeed("info", "unetd@f.safetensors", "--json")
    assert len(json.loads(capsys.readouterr().out)["spatial_layers"]) == 16
    succeed("compare", "f.safetensors", "unetd@f.safetensors", "--json")
    assert json.loads(capsys.readouterr().out)["still_fixed"] is True
    assert main(["info", "torchvision:resnet18@f.safetensors"]) == 2
    assert "does not fit the model" in capsys.readouterr().err


def test_a_folder_of_the_same_name_is_no_run(folder, capsys):
    (folder / "unetd").mkdir()
    succeed("info", "unetd")
    (folder / "things").mkdir()
    assert main(["info", "things"]) == 2
    assert "'things' is a folder, but not a run's" in capsys.readouterr().err


def test_precision_is_that_of_the_file(folder):
    model = xf.create_model("my_net.py:unet").half()
    xf.save(model, "half.safetensors")
    opened = xf.create_model("my_net.py:unet", weights="half.safetensors")
    assert opened.head.weight.dtype == torch.float16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("info f.safetensors", "say what builds it, 'my_net.py:unet@f.safetensors'"),
        ("info my_net.py", "Give 'my_net.py:UNet' or 'my_net.py:unet' or 'my_net.py:broken'"),
        ("info my_net.py@w.ckpt", "Give 'my_net.py:UNet@w.ckpt' or 'my_net.py:unet@w.ckpt'"),
        ("info none.py", "no file 'none.py'"),
        ("info w.ckpt", "holds weights alone: say of which model, 'NAME@w.ckpt'"),
        ("info my_net.py:unett", "'unett': did you mean 'unet'"),
        ("info my_net.py:needs", "needs 'depth': give it a default"),
        ("info my_net.py:broken", "'my_net.py:broken' raised RuntimeError: the width 7 is odd "
         "(my_net.py, line 27: raise RuntimeError("),
        ("info syntax.py:make", "SyntaxError"),
        ("info syntax.py:make", "(syntax.py, line 2: return ="),
        ("info my_net.py:unet@f.safetensors --weights w.ckpt", "names its weights already"),
        ("info my_net.py:unet@w.ckpt", "'down.0.weight' is (8, 1, 3, 3), the model's (8, 3, 3, 3)"),
        ("info my_net.py:unet@w.ckpt", "names that fit: 20 of 20 under 'state_dict.model.'"),
        ("fix unetd --method ghaar -o x.pth", "'x.pth' must end in .safetensors"),
        ("prune unetd --zero 0.5 --data none.npz -o x.pt", "'x.pt' must end in .safetensors"),
        ("steer unetd -o x.ckpt", "'x.ckpt' must end in .safetensors"),
        ("merge unetd -o x", "'x' must end in .safetensors"),
    ],
)  # fmt: skip
def test_mistakes(arguments, message, folder, capsys):
    (folder / "syntax.py").write_text("def make():\n    return =\n")
    xf.save(xf.create_model("my_net.py:unet"), "f.safetensors")
    assert main(arguments.split()) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(folder.glob("x*"))


def test_a_file_is_not_run_to_list_its_factories(folder, capsys):
    (folder / "loud.py").write_text("print('run')\ndef make():\n    pass\n")
    assert main(["info", "loud.py"]) == 2
    printed = capsys.readouterr()
    assert "'loud.py:make'" in printed.err
    assert printed.out == ""


def test_a_path_with_an_at_sign(folder, capsys):
    (folder / "a@b").mkdir()
    (folder / "my_net.py").rename(folder / "a@b" / "my_net.py")
    succeed("info", "a@b/my_net.py:unet@w.ckpt", "--in-channels", 1, "--num-classes", 2)


def test_errors_have_no_escape_codes(folder):
    (folder / "colour.py").write_text("def make():\n    raise ValueError('\\x1b[31mred\\x1b[0m')\n")
    words = [sys.executable, "-m", "explainfix", "info", "colour.py:make"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "TERM": "xterm-256color"})
    assert done.returncode == 2
    assert b"ValueError: red (colour.py, line 2: raise" in done.stderr
    assert b"\x1b" not in done.stderr + done.stdout


def test_no_zero_megabytes(folder, capsys):
    (folder / "tiny.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Conv2d(1, 2, 3))\n"
    )
    succeed("fix", "tiny.py:make", "--method", "ghaar", "-o", "t.safetensors")
    said = capsys.readouterr().out
    assert " bytes." in said or " kB." in said
    assert "MB" not in said
