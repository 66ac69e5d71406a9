"""What the base promises, in one go, with no other package: python tools/newcomer.py FOLDER

For a fresh environment in which explainfix was installed without extras, see `make release-check`;
tests/test_base.py runs it with everything else hidden.
"""

import contextlib
import io
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import explainfix as xf
from explainfix.cli import main
from explainfix.extras import EXTRAS, installed

# What needs an extra, as it is typed, and the extra.
ELSEWHERE = {
    "explain torchvision:resnet18": "torchvision",
    "explain timm:resnet18": "timm",
    "explain smp:unet": "smp",
    "explain monai:UNet": "medical",
    "explain unetd -o heat.png": "lab",
    "explain unetd -o numbers.parquet": "lab",
    "explain unetd --data nuclei": "lab",
    "train --model unetd --data nuclei": "lab",
    "reproduce filters": "lab",
    "export unetd -o unetd.onnx": "onnx",
}


def own_network(num_classes: int = 2, in_channels: int = 3) -> nn.Module:
    """Any network will do: dense 3x3 layers here, with nothing learned between them."""
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, num_classes),
    )


def use_library(folder: Path) -> None:
    """fix_, mix_, steer_, merge_, saliency, explain to a page, prune_, save and load."""
    images = torch.randn(4, 3, 32, 32)
    batches = [(images, torch.tensor([0, 1, 0, 1]))]
    for method in xf.list_filters():
        model = xf.create_model("unetd")
        recipe = xf.fix_(model, method, guide="imagenet" if method == "guidedsteer" else None)
        assert recipe._repr_html_()
        xf.check_fixed(model)

    model = xf.create_model(f"{__file__}:own_network")
    xf.fix_(model, "ghaar")
    assert xf.mix_(model)
    scores = xf.saliency(model, batches)
    why = xf.explain(model, saliency=scores)
    why.to_html(folder / "why.html")
    assert why.advice()
    assert scores._repr_html_()
    assert why._repr_html_()
    for kind in ("json", "csv"):
        why.save(folder / f"why.{kind}")
        assert list(xf.Explanation.load(folder / f"why.{kind}")) == list(why)
    xf.merge_(model)
    report = xf.steer_(xf.create_model(f"{__file__}:own_network"), "dct2", energy=0.9)
    assert report._repr_html_()

    model = xf.create_model("unetd")
    xf.fix_(model, "ghaar")
    scores = xf.saliency(model, [images])
    xf.zero_(model, scores, 0.5)
    before = model.eval()(images)
    report = xf.prune_(model, images[:1])
    assert report.params_kept < 1
    assert report._repr_html_()
    assert torch.allclose(model(images), before, rtol=1e-3, atol=1e-3)
    xf.save(model, folder / "small.safetensors")
    again = xf.load(folder / "small.safetensors").eval()
    assert torch.equal(again(images), model(images))


def use_shell(folder: Path) -> None:
    """The commands of the base, then those that need an extra."""
    numbers = folder / "x.npz"
    np.savez(numbers, x=torch.rand(4, 3, 32, 32).numpy())
    net = f"{__file__}:own_network"
    commands = [
        "list",
        "list filters",
        "list datasets",
        "info unetd",
        "explain unetd",
        f"explain unetd -o page.html --data {numbers}",
        "explain unetd -o base.json",
        "explain unetd -o base.csv",
        "fix unetd --method ghaar -o fixed.safetensors",
        f"fix {net} --method psine --mix -o mixed.safetensors",
        "fix unetd --method dct2 -o other.safetensors",
        "compare fixed.safetensors other.safetensors",
        "compare fixed.safetensors other.safetensors -o difference.html",
        "compare fixed.safetensors other.safetensors -o difference.csv",
        "explain fixed.safetensors -o fixed.json",
        "check fixed.safetensors --baseline fixed.json --junit check.xml",
        f"prune unetd --data {numbers} --zero 0.5 -o pruned.safetensors --report pruned.html",
        "info pruned.safetensors",
        f"steer {net} --filters 2 -o steered.safetensors",
        f"merge {net}@steered.safetensors -o merged.safetensors",
        "reproduce --list",
    ]
    for command in commands:
        code, _, wrong = typed(command)
        assert code == 0, f"{command}: {wrong}"
    for command, extra in ELSEWHERE.items():
        if all(installed(package) for package, name in EXTRAS.items() if name == extra):
            continue
        code, _, wrong = typed(command)
        line = f"pip install 'explainfix[{extra}]'"
        assert code == 2, f"{command}: {code}"
        assert wrong.rstrip().endswith(line), f"{command}: {wrong}"
        assert len(wrong.splitlines()) == 1, f"{command}: {wrong}"
    if not installed("pandas"):
        said = ""
        try:
            xf.explain(xf.create_model("unetd")).table()
        except ImportError as error:
            said = str(error)
        assert said.endswith("pip install 'explainfix[lab]'"), said


def typed(command: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it says."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as wrong,
    ):
        code = main(command.split())
    return code, out.getvalue(), wrong.getvalue()


if __name__ == "__main__":
    began = time.perf_counter()
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    with contextlib.chdir(place):
        use_library(Path())
        use_shell(Path())
    print(f"all that the base promises works, {time.perf_counter() - began:.0f} s")
