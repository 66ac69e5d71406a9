"""The rules of spectra on networks whose spectra are known by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from explainfix import explain, fix_
from explainfix.filters.dct2 import dct_basis
from explainfix.paper.contrast import samples
from explainfix.paper.experiments import classification, spectra
from explainfix.paper.microscopy import train_steering
from explainfix.paper.scores import METHODS
from explainfix.paper.setting import Setting
from explainfix.paper.spectral import Case, judge_guided, stack_energies


def network(*numbers):
    """A layer for each number: all its kernels are that filter of the basis."""
    layers = []
    for number in numbers:
        layer = nn.Conv2d(1, 4, 3).double()
        layer.weight.data[:] = torch.from_numpy(dct_basis((3, 3))[number])
        layers.append(layer)
    return nn.Sequential(*layers)


def explained(model, *weights):
    scores = {str(i): torch.full((4, 1), float(w)) for i, w in enumerate(weights)}
    return explain(model, saliency=scores)


def test_the_lead_of_low_frequencies_by_hand():
    # Filter 0 is the constant: all of e(0) is in the lowest; 8 has the highest on both axes.
    assert spectra.low_leads([explained(network(0, 0), 1, 1)]) == pytest.approx([1], abs=1e-6)
    assert spectra.low_leads([explained(network(8, 8), 1, 1)]) == pytest.approx([-1], abs=1e-6)
    # Energies 4·9 and 4·1, whose square roots count: (6 - 2) / 8
    assert spectra.low_leads([explained(network(0, 8), 9, 1)]) == pytest.approx([0.5])


def test_the_lead_of_early_layers_by_hand():
    assert spectra.early_lead(explained(network(0, 3), 3, 1)) == pytest.approx(0.25)
    assert spectra.early_lead(explained(network(0, 3, 5), 1, 2, 1)) == pytest.approx(0, abs=1e-7)


def test_leads_of_several_networks():
    def word(leads):
        return spectra.LOW.judge(samples(leads)).word

    assert word({"a": [0.1, 0.12, 0.11], "b": [0.2], "c": []}) == "agrees"
    assert word({"a": [0.1, 0.12, 0.11], "b": [-0.2]}) == "disagrees"
    assert word({"a": [0.5, -0.3, 0.1], "b": [0.2]}) == "undecided"


def test_stages_that_tail_off():
    def model(*weights):
        stages = nn.Sequential(network(1, 1, 1), network(2, 2, 2))
        paths = [f"{stage}.{layer}" for stage in range(2) for layer in range(3)]
        scores = {p: torch.full((4, 1), w) for p, w in zip(paths, weights, strict=True)}
        return explain(stages, saliency=scores)

    falling, rising = (3.0, 2.0, 1.0), (1.0, 2.0, 3.0)
    assert spectra.judge_stages([model(*falling, *falling)]).word == "agrees"
    assert spectra.judge_stages([model(*falling, *rising)]).word == "undecided"
    assert spectra.judge_stages([model(*rising, *rising)]).ours == "0 of 2 stages"


def fixed(method, seed=0, guide=None):
    torch.manual_seed(seed)  # conftest puts the generator back
    model = nn.Sequential(nn.Conv2d(8, 64, 3), nn.Conv2d(64, 64, 3))
    if method != "learned":
        fix_(model, method, seed=seed, guide=guide)
    return model


def test_the_initialisations_of_a_network_of_normal_kernels(tmp_path):
    guide = fixed("learned")
    models = {m: fixed(m, guide=guide if m == "guidedsteer" else None) for m in METHODS}
    cases = [Case("n", m, 0, explain(model), None, 0) for m, model in models.items()]
    assert spectra.judge_flat(cases).word == "agrees"
    assert judge_guided(spectra.guided_distances(cases)).word == "agrees"
    assert spectra.judge_fixed(cases).word == "agrees"
    # Ones in DCT2's place is anything but flat; GHaar in GuidedSteer's is not like its guide.
    swapped = {"dct2": "ones", "guidedsteer": "ghaar"}
    wrong = [Case("n", m, 0, explain(models[swapped.get(m, m)]), None, 1) for m in METHODS]
    assert spectra.judge_flat(wrong).word == "disagrees"
    assert judge_guided(spectra.guided_distances(wrong)).word == "disagrees"
    assert spectra.judge_fixed(wrong).word == "disagrees"


def test_other_shapes_are_blank():
    model = nn.Sequential(*(nn.Conv2d(2, 2, size) for size in (7, 3, 5, 3, 5)))
    block = stack_energies(explain(model))
    assert block.shape == (9 + 25, 4)  # the 7x7 stem is alone and left out
    assert np.isnan(block[:9]).all(0).tolist() == [False, True, False, True]


def test_the_papers_networks(tmp_path):
    runs = spectra.train(Setting("paper", folder=tmp_path, dry=True))
    learned = [key.network for key in runs if key.network.endswith("from scratch")]
    assert [network.split(",")[0] for network in learned] == [
        "ResNet50", "DenseNet121", "EfficientNet-b0",
    ]  # fmt: skip
    tuned = [run.config for key, run in runs.items() if key.network.endswith("pretrained")]
    assert {config.fix for config in tuned} == {None, *METHODS[1:]}
    assert {config.model for config in tuned} == {"torchvision:densenet121"}


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_no_run_is_its_own(tmp_path, scale):
    """All are shared with steering and classification."""
    setting = Setting(scale, folder=tmp_path, dry=True)
    others = [train_steering(setting), classification.train(setting)]
    known = {run.folder for runs in others for run in runs.values()}
    assert {run.folder for run in spectra.train(setting).values()} <= known
