"""Runs that stand on their own: predicting without the training data, from any folder."""

import json
import shutil

import numpy as np
import pytest
import tifffile
from PIL import Image

from explainfix.cli import main

OWN = """
from torch import nn

def net(num_classes=1, in_channels=3):
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, num_classes, 3, padding=1),
    )
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder to work in, with a model of one's own and bright squares with their masks."""
    work = tmp_path / "work"
    (work / "photos" / "images").mkdir(parents=True)
    (work / "photos" / "masks").mkdir()
    (work / "my_net.py").write_text(OWN)
    random = np.random.default_rng(0)
    for number in range(10):
        levels = random.integers(0, 120, (40, 48), dtype=np.uint8)
        mask = np.zeros_like(levels)
        top, left = random.integers(0, 24, 2)
        mask[top : top + 12, left : left + 12] = 255
        Image.fromarray(np.where(mask > 0, 255 - levels, levels)).save(
            work / "photos" / "images" / f"{number}.png"
        )
        Image.fromarray(mask).save(work / "photos" / "masks" / f"{number}.png")
    monkeypatch.chdir(work)
    return work


def train(capsys, *more):
    common = ["--epochs", "2", "--batch-size", "4", "--accelerator", "cpu", "--json"]
    assert main(["train", *common, *more]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("how", [[], ["--mix"], ["--steer"], ["--zero", "0.3", "--prune"]])
def test_a_run_of_ones_own_model_predicts_elsewhere_without_its_data(
    work, capsys, monkeypatch, how
):
    options = ["--data-option", "size=32", "--data-option", "grey=true"]
    folder = train(
        capsys, "--model", "my_net.py:net", "--data", "folder:photos", *options,
        "--fix", "ghaar", *how,
    )["folder"]  # fmt: skip
    shutil.copytree(work / "photos" / "images", work.parent / "new" / "deep")
    shutil.rmtree(work / "photos")
    monkeypatch.chdir(work.parent)
    run = f"work/{folder}"
    assert main(["predict", run, "new", "-o", "out", "--probabilities"]) == 0
    assert "Wrote 30 files to out" in capsys.readouterr().out
    mask = np.asarray(Image.open("out/deep/3.mask.png"))
    chance = tifffile.imread("out/deep/3.probability.tif")
    assert mask.shape == chance.shape == (40, 48)  # of the image, not of the network's 32
    assert chance.dtype == np.float32
    assert ((chance > 0.5) == (mask == 255)).all()

    level = float(np.median(chance))
    assert main(["predict", run, "new/deep/3.png", "-o", "less", "--threshold", str(level)]) == 0
    assert ((chance > level) == (np.asarray(Image.open("less/3.mask.png")) == 255)).all()
    capsys.readouterr()
    assert main(["evaluate", run]) == 2
    assert "give --data" in capsys.readouterr().err


def test_prediction_is_what_evaluation_computes(work, capsys):
    """All that is in data.json and nothing else makes the same mask as the dataset itself."""
    folder = train(capsys, "--data", "folder:photos", "--data-option", "crop=32")["folder"]
    assert main(["evaluate", folder, "-o", "p.safetensors", "--json"]) == 0
    from safetensors.torch import load_file

    kept = load_file("p.safetensors")
    assert len(kept) == 2
    for name, levels in kept.items():
        image = f"photos/{name.removeprefix('mask/')}"
        assert main(["predict", folder, image, "-o", "out", "--probabilities", "--force"]) == 0
        chance = tifffile.imread(f"out/{image.rpartition('/')[2][:-4]}.probability.tif")
        assert np.abs(chance * 255 - levels[0].numpy()).max() <= 0.501


def test_mistakes_of_predict(work, capsys):
    folder = train(capsys, "--data", "folder:photos", "--data-option", "crop=32")["folder"]
    Image.new("L", (32, 32)).save("0.png")
    for arguments, message in (
        (["photos/images/0.png", "0.png"], "under the same name"),
        (["runs"], "no image in 'runs'"),
        (["0.png", "--threshold", "1.5"], "--threshold must be above 0 and below 1"),
        (["0.png", "--data-option", "size=3"], "needs --data"),
    ):
        assert main(["predict", folder, *arguments, "-o", "out"]) == 2
        assert message in capsys.readouterr().err
    (work / folder / "data.json").unlink()
    assert main(["predict", folder, "0.png", "-o", "out"]) == 2
    assert "train again with the same options" in capsys.readouterr().err
    train(capsys, "--data", "folder:photos", "--data-option", "crop=32")  # finished: writes it
    assert main(["predict", folder, "0.png", "-o", "out"]) == 0
