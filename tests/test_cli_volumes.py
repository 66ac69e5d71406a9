"""A network for volumes on the whole road: trained, evaluated, explained, pruned, predicting."""

import json

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

import explainfix as xf
from explainfix.cli import main

AFFINE = np.array([[-0.8, 0, 0, 40], [0, 0.8, 0, -30], [0, 0, 2.5, 7], [0, 0, 0, 1]])


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXPLAINFIX_CACHE", str(tmp_path / "cache"))
    return tmp_path


def draw(random, shape=(24, 22, 20)):
    """A bright and a brighter ball in noise, at differing levels, as (x, y, z)."""
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    mask = np.zeros(shape, np.uint8)
    for number in (1, 2):
        centre = random.uniform(5, np.array(shape) - 5)
        mask[np.linalg.norm(places - centre, axis=-1) < random.uniform(3, 5)] = number
    levels = random.normal(0, 60, shape) + 300.0 * mask - 1000
    return levels.astype(np.int16), mask


@pytest.fixture
def cases(tmp_path):
    random = np.random.default_rng(0)
    for part in ("images", "masks"):
        (tmp_path / "ct" / part).mkdir(parents=True)
    for k in range(10):
        for part, values in zip(("images", "masks"), draw(random), strict=True):
            image = nibabel.Nifti1Image(values, AFFINE)
            nibabel.save(image, tmp_path / f"ct/{part}/case{k}.nii.gz")
    (tmp_path / "ct/classes.txt").write_text("0 background\n1 organ\n2 lesion\n")
    return tmp_path / "ct"


def run_of(capsys):
    return capsys.readouterr().out.split("Wrote ")[1].split()[0]


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


def test_a_network_for_volumes(cases, tmp_path, capsys):
    data = ["--data", f"folder:{cases}", "--data-option", "crop=16"]
    training = ["--epochs", "1", "--batch-size", "2", "--accelerator", "cpu", "--fix", "ghaar"]
    loss = ["--loss", "dice_cross_entropy", "--data-option", "flips=both", "--channels-last"]
    assert main(["train", "--model", "monai:UNet", *data, *training, *loss]) == 0
    run = run_of(capsys)
    assert run.startswith("runs/monai_UNet-")
    network = xf.load(f"{run}/best.safetensors").eval()
    xf.check_fixed(network)
    assert all(layer.weight.dim() == 5 for layer in xf.spatial_layers(network).values())

    assert main(["evaluate", run, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert [score["name"] for score in scores] == [
        "dice", "dice per image", "dice organ", "dice lesion",
    ]  # fmt: skip

    few = [*data, "--batch-size", "1", "--max-batches", "1"]
    best = f"{run}/best.safetensors"
    assert main(["explain", best, *few, "-o", "why.html"]) == 0
    assert (tmp_path / "why.html").stat().st_size > 10_000

    cut = ["prune", best, *few, "--zero", "0.99", "--ghosts", "keep", "-o", "small.safetensors"]
    assert main(cut) == 0
    capsys.readouterr()
    small = xf.load("small.safetensors").eval()
    assert count(small) < 0.8 * count(network)
    # what the command did, step by step: zeroing changes outputs, cutting does not
    network, example = network.double(), torch.rand(2, 1, 32, 16, 16).double()
    layers = xf.spatial_layers(network)
    scores = {path: torch.rand(layer.weight.shape[:2]) for path, layer in layers.items()}
    xf.zero_(network, scores, 0.99)
    with torch.no_grad():
        before = network(example)
        report = xf.prune_(network, example, ghosts="keep")
        assert report.params_kept < 0.8
        torch.testing.assert_close(network(example), before, atol=1e-10, rtol=1e-10)

    # the folder with the data is not needed any more
    volume = nibabel.load(cases / "images/case3.nii.gz")
    nibabel.save(volume, tmp_path / "new.nii.gz")
    cases.rename(tmp_path / "elsewhere")
    assert main(["predict", run, "new.nii.gz", "-o", "out", "--probabilities"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "new.mask.nii.gz", "new.overlay.png", "new.probability.nii.gz",
    ]  # fmt: skip
    mask = nibabel.load(tmp_path / "out/new.mask.nii.gz")
    assert mask.shape == volume.shape == (24, 22, 20)
    np.testing.assert_allclose(mask.affine, AFFINE, atol=1e-6)
    chances = np.asarray(nibabel.load(tmp_path / "out/new.probability.nii.gz").dataobj)
    np.testing.assert_allclose(chances.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(mask.dataobj), chances.argmax(-1))


def test_masks_of_several_classes(tmp_path, capsys):
    """Values 1 and 2 are two classes: in outputs, losses, scores, saliency, masks and legend."""
    random = np.random.default_rng(0)
    for part in ("images", "masks"):
        (tmp_path / "cells" / part).mkdir(parents=True)
    for k in range(8):
        mask = np.kron(random.integers(0, 3, (4, 4)), np.ones((8, 8))).astype(np.uint8)
        levels = (60 * mask + random.integers(0, 60, mask.shape)).astype(np.uint8)
        Image.fromarray(levels).save(tmp_path / f"cells/images/{k}.png")
        Image.fromarray(mask).save(tmp_path / f"cells/masks/{k}.png")
    data = ["--data", "folder:cells", "--data-option", "grey=true"]
    training = ["--epochs", "1", "--batch-size", "4", "--accelerator", "cpu", "--fix", "ghaar"]
    assert main(["train", *data, *training, "--loss", "bce"]) == 2
    assert "'cross_entropy', 'dice', 'dice_cross_entropy'" in capsys.readouterr().err
    assert main(["train", *data, *training, "--evaluate-on", "test"]) == 0
    run = run_of(capsys)
    network = xf.load(f"{run}/best.safetensors")
    assert network.head.out_channels == 3
    header = (tmp_path / run / "metrics.csv").read_text().splitlines()[0]
    assert "test dice,test dice per image,test dice 1,test dice 2" in header
    assert main(["explain", f"{run}/best.safetensors", *data, "-o", "why.html"]) == 0
    assert main(["predict", run, "cells/images/0.png", "-o", "out"]) == 0
    with Image.open("out/0.mask.png") as mask, Image.open("out/0.overlay.png") as overlay:
        assert mask.size == (32, 32)
        assert set(np.unique(np.asarray(mask))) <= {0, 1, 2}
        assert overlay.height > 32  # the legend
