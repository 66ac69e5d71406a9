"""Runs that stand on their own: predicting without the training data, from any folder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from explainfix.cli import main
from explainfix.lab.data.preparation import IMAGENET

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
    for command in (
        ["export", run, "--size", "32", "-o", "net.onnx"],
        ["info", f"{run}@last"],
        ["compare", run, f"{run}@last", "--require-fixed"],
        ["check", run],
    ):
        assert main(command) == 0
    capsys.readouterr()
    assert main(["evaluate", run]) == 2
    assert "give --data" in capsys.readouterr().err


def test_prediction_is_what_evaluation_computes(work, capsys):
    """All that is in data.json and nothing else makes the same mask as the dataset itself."""
    folder = train(capsys, "--data", "folder:photos", "--data-option", "crop=32")["folder"]
    assert main(["evaluate", folder, "-o", "p.safetensors", "--json"]) == 0
    kept = load_file("p.safetensors")
    assert len(kept) == 2
    for name, levels in kept.items():
        image = f"photos/{name.removeprefix('mask/')}"
        assert main(["predict", folder, image, "-o", "out", "--probabilities", "--force"]) == 0
        chance = tifffile.imread(f"out/{image.rpartition('/')[2][:-4]}.probability.tif")
        assert np.abs(chance * 255 - levels[0].numpy()).max() <= 0.501


def test_evaluate_with_statistics_averaged_anew(work, capsys):
    folder = train(capsys, "--data", "folder:photos", "--data-option", "crop=32")["folder"]
    before = Path(folder, "best.safetensors").read_bytes()
    found = []
    for more in ([], ["--recalibrate", "3"]):
        assert main(["evaluate", folder, "--split", "val", "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["scores"][0]["value"])
    assert found[0] != found[1]
    assert Path(folder, "best.safetensors").read_bytes() == before
    assert main(["evaluate", folder, "--recalibrate", "-1"]) == 2
    assert "--recalibrate must be at least 0" in capsys.readouterr().err


def test_mistakes_of_predict(work, capsys):
    folder = train(capsys, "--data", "folder:photos", "--data-option", "crop=32")["folder"]
    Image.new("L", (32, 32)).save("0.png")
    for arguments, message in (
        (["photos/images/0.png", "0.png"], "under the same name"),
        (["runs"], "no image in 'runs'"),
        (["0.png", "--threshold", "1.5"], "--threshold must be above 0 and below 1"),
        (["--data-option", "size=3", "0.png"], "needs --data"),
    ):
        assert main(["predict", folder, *arguments, "-o", "out"]) == 2
        assert message in capsys.readouterr().err
    (work / folder / "data.json").unlink()
    assert main(["predict", folder, "0.png", "-o", "out"]) == 2
    assert "train again with the same options" in capsys.readouterr().err
    train(capsys, "--data", "folder:photos", "--data-option", "crop=32")  # finished: writes it
    assert main(["predict", folder, "0.png", "-o", "out"]) == 0


def test_the_trained_normalisation_is_used_on_other_images(work, capsys):
    """Mean and deviation are those of training, also where other images have others."""
    shutil.copytree("photos", "darker")
    for file in (work / "darker/images").iterdir():
        levels = np.asarray(Image.open(file))
        Image.fromarray(levels // 4).save(file)
    options = ["--data-option", "crop=32", "normalise=dataset", "grey=true"]
    folder = train(capsys, "--model", "my_net.py:net", "--data", "folder:photos", *options)[
        "folder"
    ]
    kept = json.loads((work / folder / "data.json").read_text())["preparation"]
    images = [np.asarray(Image.open(f)) / 255 for f in (work / "photos/images").iterdir()]
    assert kept["mean"][0] == pytest.approx(np.mean(images), abs=0.05)
    assert main(["evaluate", folder, "--data", "folder:darker", "-o", "p.safetensors"]) == 0
    [name, *_] = kept_masks = load_file("p.safetensors")
    image = f"darker/{name.removeprefix('mask/')}"
    assert main(["predict", folder, image, "-o", "out", "--probabilities"]) == 0
    chance = tifffile.imread(f"out/{image.rpartition('/')[2][:-4]}.probability.tif")
    assert np.abs(chance * 255 - kept_masks[name][0].numpy()).max() <= 0.501


def test_a_range_that_is_hardly_used_is_a_line_on_screen(work, capsys):
    for file in list((work / "photos/images").iterdir()):
        levels = np.asarray(Image.open(file)).astype(np.uint16) * 16
        tifffile.imwrite(file.with_suffix(".tif"), levels)
        file.unlink()
    arguments = ["--data", "folder:photos", "--data-option", "crop=32", "--epochs", "1"]
    small = ["--model", "my_net.py:net", "--batch-size", "4", "--accelerator", "cpu"]
    assert main(["train", *arguments, *small]) == 0
    said = capsys.readouterr().out
    assert "of the range of their levels" in said
    assert "normalise=percentiles" in said
    assert main(["train", *arguments, *small, "--data-option", "normalise=percentiles"]) == 0
    assert "of the range of their levels" not in capsys.readouterr().out


def test_pretrained_weights_get_the_images_they_expect(work, capsys, monkeypatch):
    monkeypatch.setattr(
        "explainfix.lab.run.folder.open_network", lambda *_, **__: nn.Conv2d(3, 1, 1)
    )
    common = ["--data", "folder:photos", "--weights", "pretrained", "--data-option", "crop=32"]
    folder = train(capsys, *common)["folder"]
    kept = json.loads((work / folder / "data.json").read_text())["preparation"]
    assert tuple(map(tuple, (kept["mean"], kept["deviation"]))) == IMAGENET
    other = train(capsys, *common, "normalise=range")["folder"]
    assert json.loads((work / other / "data.json").read_text())["preparation"]["mean"] == []


@pytest.mark.parametrize(
    "command",
    [
        ["train"],
        ["explain", "unetd"],
        ["prune", "unetd", "--zero", "0.5", "-o", "p.safetensors"],
        ["evaluate", "unetd"],
    ],
)
def test_a_folder_is_taken_for_one(work, capsys, command):
    assert main([*command, "--data", "photos"]) == 2
    assert "give 'folder:photos' for images of your own" in capsys.readouterr().err


def test_one_channel_for_a_model_of_three(work, capsys):
    grey = ["--data", "xray-like", "--data-option", "count=4", "size=32"]
    assert main(["explain", "unetd", *grey]) == 2
    said = capsys.readouterr().err
    assert "takes 3 channels and the images have 1: --in-channels 1 builds a model" in said
    assert main(["explain", "unetd", *grey, "--in-channels", "1", "--num-classes", "5"]) == 2
    assert "channels" not in capsys.readouterr().err.partition("does not run")[0]
    assert main(["evaluate", "unetd", *grey]) == 2
    assert "takes 3 channels and the images have 1: build it for 1" in capsys.readouterr().err


def test_drift_shows_how_the_spectra_of_a_run_moved(work, capsys):
    folder = train(capsys, "--model", "my_net.py:net", "--data", "folder:photos")["folder"]
    assert main(["drift", folder, "-o", "moved.html"]) == 0
    said = capsys.readouterr().out
    assert "moved most" in said
    assert "epoch 2" in said
    assert "Wrote moved.html." in said
    assert 'id="moment"' in (work / "moved.html").read_text()
    assert main(["drift", folder, "-o", "moved.csv"]) == 0
    assert (work / "moved.csv").read_text().startswith("epoch,step,layer,drift,low_share,ed_0")
    assert main(["drift", folder, "-o", "moved.json"]) == 0
    capsys.readouterr()
    assert main(["drift", "moved.json", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [seen["epoch"] for seen in record["snapshots"]] == [0, 1, 2]
    assert main(["drift", "photos"]) == 2
    assert "'photos' holds no spectra.json" in capsys.readouterr().err
    assert main(["drift", f"{folder}/data.json"]) == 2
    assert "this is no timeline of a training" in capsys.readouterr().err
    assert main(["drift", "nowhere.json"]) == 2
    assert "nowhere.json" in capsys.readouterr().err
