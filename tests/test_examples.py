"""Every example runs as it is typed, in seconds with --tiny, and prints what it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISED = {
    "plain_loop": [
        "fixed filters are as they were fixed",
        "Low frequencies are favoured",
        "loaded: True",
    ],
    "timm_finetuning": [
        r"guidedsteer, seed 0, .*guide='imagenet'",
        r"parameters learn",
        "answers the same: True",
    ],
    "monai_segmentation": [
        r"28 layers steered by ghaar",
        r"Dice (\d\.\d{3}) zeroed, \1 pruned",
        r"parameters .* [1-9]\d\.\d%",
    ],
    "yolo_pruning": [
        r"parameters .* [4-6]\d\.\d%",
        r"detections moved by (0e\+00|\de-0[5-9]) of their size",
    ],
}
LONG = {"timm_finetuning", "monai_segmentation"}  # to import, more than to run


def marked(name):
    return pytest.param(name, marks=pytest.mark.zoo) if name in LONG else name


@pytest.mark.parametrize("name", [marked(name) for name in PROMISED])
def test_prints_what_it_promises(name, tmp_path):
    command = [sys.executable, EXAMPLES / f"{name}.py", "--tiny"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for pattern in PROMISED[name]:
        assert re.search(pattern, done.stdout), (pattern, done.stdout)
    assert not list(tmp_path.iterdir())


def test_all_examples_are_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"demo"} == set(PROMISED)  # make demo
