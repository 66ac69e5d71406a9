"""The rivals of landscape against their definitions, and its verdicts on numbers made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from explainfix import spatial_layers
from explainfix.paper import rivals
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import landscape
from explainfix.paper.experiments.landscape import FIXED, PLAIN, PRUNED, Measured
from explainfix.paper.networks import factory
from explainfix.paper.setting import Setting
from explainfix.zoo import create_model


def test_morlet_wavelets():
    waves = rivals.morlets(1.6)
    assert waves.shape == (16, 11, 11)
    assert waves.flatten(1).sum(1).abs().max() < 1e-5  # zero mean
    spectrum = np.abs(np.fft.fft2(np.asarray(waves[0] + 1j * waves[8]), s=(64, 64)))
    y, x = np.unravel_index(spectrum.argmax(), spectrum.shape)
    assert y == 0  # the first orientation is along x
    assert 2 * math.pi * x / 64 == pytest.approx(0.75 * math.pi / 2, abs=0.1)


def test_scattering_of_a_constant_is_its_mean_alone():
    features = rivals.Scattering(2)
    maps = features(torch.full((1, 2, 64, 64), 3.0))
    assert maps.shape == (1, 2 * features.outputs, 16, 16)
    assert features.outputs == 1 + 8 * 2 + 64
    inside = maps[0, :, 6:10, 6:10]
    assert inside[0].flatten().tolist() == pytest.approx([3.0] * 16, abs=1e-4)
    assert inside[1 : features.outputs].abs().max() < 1e-4


def test_scattering_does_not_mind_a_small_shift():
    image = torch.zeros(1, 1, 64, 64)
    image[0, 0, 20:40, 24:44] = 1
    features = rivals.Scattering(2)
    here, there = features(image), features(image.roll(1, -1))
    raw = (image - image.roll(1, -1)).norm() / image.norm()
    assert (here - there).norm() / here.norm() < 0.5 * raw


def test_gabor_kernels_are_gabor_functions_with_the_norms_of_the_weight():
    weight = torch.randn(4, 2, 7, 7)
    gabor = rivals.Gabor(weight.shape)
    kernels = gabor(weight)
    assert torch.allclose(kernels.flatten(2).norm(dim=2), weight.flatten(2).norm(dim=2), atol=1e-4)
    angle, wavelength, width, phase = (
        p[1, 1].item() for p in (gabor.angle, gabor.wavelength, gabor.width, gabor.phase)
    )

    def value(x, y):
        along = x * math.cos(angle) + y * math.sin(angle)
        envelope = math.exp(-(x * x + y * y) / (2 * width**2 + 1e-3))
        return envelope * math.cos(2 * math.pi * along / wavelength + phase)

    ratio = (kernels[1, 1, 2, 5] / kernels[1, 1, 3, 3]).item()  # x = 2, y = -1 against the centre
    assert ratio == pytest.approx(value(2, -1) / value(0, 0), rel=1e-3)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_magnitude_takes_the_smallest_weights_at_its_step(layout):
    network = nn.Sequential(nn.Conv2d(2, 10, 3), nn.Conv2d(10, 10, 1))
    before = torch.cat([layer.weight.detach().flatten() for layer in network])
    model = rivals.Magnitude(network, when=2).train().to(memory_format=layout)
    x = torch.randn(1, 2, 8, 8)
    model(x)
    assert all(bool(mask.all()) for name, mask in model.named_buffers() if "mask" in name)
    model.eval()(x)  # evaluation does not count
    model.train()(x)
    kept = torch.cat([layer.weight_mask.flatten() for layer in network]).bool()
    assert int(kept.sum()) == round(len(before) * (1 - rivals.PRUNED))
    assert before[kept].abs().min() >= before[~kept].abs().max()
    again = rivals.Magnitude(nn.Sequential(nn.Conv2d(2, 10, 3), nn.Conv2d(10, 10, 1)), when=2)
    again.load_state_dict(model.state_dict())  # a run that goes on
    assert torch.equal(again.train()(x), model(x))


@pytest.mark.parametrize("rival", landscape.RIVALS)
def test_explainfix_works_with_every_rival(rival):
    model = create_model(factory(f"{rival}_smoke"), num_classes=5, in_channels=1).eval()
    images = torch.rand(2, 1, 32, 32)
    expected = model(images).detach()
    rivals.settle_(model)
    assert torch.allclose(model(images), expected, atol=1e-5)
    assert all(isinstance(layer.weight, nn.Parameter) for layer in spatial_layers(model).values())
    said, fits = landscape.apply_explainfix(model, images)
    assert fits, said


def measured(auc, seconds, **changes):
    one = Measured(
        focus=[0.1, 0.11], auc=auc, seconds=seconds, kept=1000, parameters=10, learned=10,
        applied="", compatible=True,
    )  # fmt: skip
    return replace(one, **changes)


def words(found):
    verdicts = judge_claims(landscape.CLAIMS, landscape.as_scores(found))
    return {key: verdict.word for key, verdict in verdicts.items()}


def test_verdicts_by_hand():
    base = [0.7, 0.72, 0.71, 0.69]
    found = {name: measured(base, [1.0, 1.1, 1.05]) for name in landscape.TITLES}
    found["gabor"] = measured(base, [1.2, 1.31, 1.25])
    found["scattering"] = measured([0.6, 0.63, 0.6, 0.59], [1.0, 1.1, 1.05])
    found[FIXED] = replace(found[PLAIN], focus=[0.3, 0.32])
    found[PRUNED] = measured(base, [0.5, 0.52, 0.51], kept=700)
    assert set(words(found).values()) == {"agrees"}
    found[PRUNED] = measured([0.5, 0.53, 0.5, 0.5], [1.5, 1.62, 1.5], kept=1200, compatible=False)
    found[FIXED] = replace(found[PLAIN], focus=[0.05, 0.058])
    assert words(found) == {
        "interpretable": "disagrees", "faster": "disagrees", "memory": "disagrees",
        "no-loss": "disagrees", "scattering": "agrees", "gabor": "agrees",
        "compatible": "disagrees",
    }  # fmt: skip


def test_pruning_by_magnitude_comes_half_way(tmp_path):
    """The step at which weights go is written down: it must be the middle of the run."""
    for scale, images in (("smoke", 32), ("cpu", 3544), ("paper", 15_000)):
        setting = Setting(scale, folder=tmp_path, dry=True)
        config = landscape.train(setting)[landscape.Key("magnitude", 0)].config
        steps = -(-images // config.batch_size) * config.epochs
        when = getattr(rivals, f"magnitude_{scale}").args[1]
        assert when == pytest.approx(steps / 2, abs=1)


def test_ours_is_pruned_at_twice_the_rate(tmp_path):
    runs = landscape.train(Setting("cpu", folder=tmp_path, dry=True))
    usual, pruned = (runs[landscape.Key(name, 0)].config for name in (PLAIN, PRUNED))
    assert pruned.lr == 2 * usual.lr
    assert (pruned.prune, pruned.zero_by, pruned.fix) == (True, "gradient", "ghaar")


def test_efficientnet_has_the_authors_dropout_and_batchnorm():
    model = rivals.efficientnet_b0()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.01, 1e-3)}
    assert model.drop_rate == 0.2
    drops = [m.drop_prob for m in model.modules() if type(m).__name__ == "DropPath"]
    assert 0.1 < max(drops) <= 0.2
