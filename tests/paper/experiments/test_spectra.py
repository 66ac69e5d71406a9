"""The rules of spectra on networks whose spectra are known by hand."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from explainfix import explain, fix_
from explainfix.filters.dct2 import dct_basis
from explainfix.paper import spectral
from explainfix.paper.contrast import samples
from explainfix.paper.experiments import (
    classification,
    inference,
    saliency_check,
    spectra,
    training,
)
from explainfix.paper.microscopy import train_steering
from explainfix.paper.scores import METHODS
from explainfix.paper.setting import Setting
from explainfix.paper.spectral import Case, stack_energies


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


@pytest.mark.parametrize("weights", [(), (9, 1, 2)])
def test_a_packed_explanation_says_the_same_to_four_digits(weights):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, (3, 5)))
    fix_(model, "ghaar", layers=["1"])
    scores = {path: w * torch.rand(model[int(path)].weight.shape[:2])
              for path, w in zip("012", weights, strict=False)}  # fmt: skip
    why = explain(model, saliency=scores or None, title="a\nb")
    text = json.dumps(spectral.packed(why), allow_nan=False)
    again = spectral.unpacked(json.loads(text))
    assert again.as_dict().keys() == why.as_dict().keys()
    assert (again.title, again.weighted, list(again)) == (why.title, bool(weights), list(why))
    for path, layer in why.layers.items():
        assert again.layers[path].fixed_by == layer.fixed_by
        assert again.layers[path].low_share == pytest.approx(layer.low_share, rel=1e-4)
        assert torch.allclose(again[path].ed, why[path].ed.double(), rtol=1e-4)
        assert (again[path].e0 is None) == (why[path].e0 is None)
    for shape, total in why.totals.items():
        assert torch.allclose(again.totals[shape].ed, total.ed.double(), rtol=1e-4)


def test_the_lead_of_low_frequencies_by_hand():
    # Filter 0 is the constant: all of e(0) is in the lowest; 8 has the highest on both axes.
    assert spectral.low_leads([explained(network(0, 0), 1, 1)]) == pytest.approx([1], abs=1e-6)
    assert spectral.low_leads([explained(network(8, 8), 1, 1)]) == pytest.approx([-1], abs=1e-6)
    # Energies 4·9 and 4·1, whose square roots count: (6 - 2) / 8
    assert spectral.low_leads([explained(network(0, 8), 9, 1)]) == pytest.approx([0.5])


def test_the_lead_of_early_layers_by_hand():
    assert spectral.early_lead(explained(network(0, 3), 3, 1)) == pytest.approx(0.25)
    assert spectral.early_lead(explained(network(0, 3, 5), 1, 2, 1)) == pytest.approx(0, abs=1e-7)


def word(key, scores):
    [claim] = [claim for claim in spectra.CLAIMS if claim.key == key]
    return claim.rule.judge(scores).word


def test_leads_of_several_networks():
    assert word("low", samples({"a": [0.1, 0.12, 0.11], "b": [0.2, 0.21]})) == "agrees"
    assert word("low", samples({"a": [0.1, 0.12, 0.11], "b": [-0.2, -0.21]})) == "disagrees"
    assert word("low", samples({"a": [0.5, -0.3, 0.1], "b": [0.2, 0.21]})) == "undecided"
    assert word("low", samples({"a": [0.2]})) == "not tested"  # one network says little


def test_stages_that_tail_off():
    def model(*weights):
        stages = nn.Sequential(network(1, 1, 1), network(2, 2, 2))
        paths = [f"{stage}.{layer}" for stage in range(2) for layer in range(3)]
        scores = {p: torch.full((4, 1), w) for p, w in zip(paths, weights, strict=True)}
        return explain(stages, saliency=scores)

    falling, rising = (3.0, 2.0, 1.0), (1.0, 2.0, 3.0)
    models = [model(*falling, *falling), model(*falling, *rising), model(*rising, *rising)]
    assert spectral.falling_stages(models) == [0.5, 0.0, -0.5]


def test_the_authors_way_sums_the_layers_own_spectra():
    # e(0) of each layer is a root of its energy, √36 and √4, before they are added: (6 - 2) / 8
    assert spectral.summed_leads([explained(network(0, 8), 9, 1)]) == pytest.approx([0.5])
    # of equal filters the roots are added, not the energies
    assert spectral.summed_leads([explained(network(0, 0, 8), 9, 1, 4)]) == pytest.approx([1 / 3])
    assert spectral.low_leads([explained(network(0, 0, 8), 9, 1, 4)])[0] == pytest.approx(
        (40**0.5 - 4) / (40**0.5 + 4)
    )


def test_the_share_of_layers_that_matter():
    assert spectral.layer_share(explained(network(0, 0), 1, 1)) == pytest.approx(1)
    assert spectral.layer_share(explained(network(0, 0), 1, 0)) == pytest.approx(0.5)


def test_saliency_that_brings_initialisations_together():
    def case(method, number, *weights):
        model = network(number, number, 0)
        return Case("n", method, 0, explain(model), explained(model, *weights), None, None)

    together = [case(m, number, 0, 0, 1) for m, number in (("a", 1), ("b", 5), ("c", 8))]
    assert spectral.nearer_by_saliency(together) == {("n", 0): pytest.approx(2 / 3, abs=1e-6)}
    apart = [case(m, number, 1, 1, 0) for m, number in (("a", 1), ("b", 5), ("c", 8))]
    assert spectral.nearer_by_saliency(apart) == {("n", 0): pytest.approx(-1 / 3, abs=1e-6)}


def test_networks_trained_both_ways():
    names = ["A, from scratch", "B, from scratch", "B, pretrained", "C, pretrained"]
    assert spectra.trained_both_ways(names) == {
        "pretrained": "B, pretrained", "from scratch": "B, from scratch",
    }  # fmt: skip


def fixed(method, seed=0, guide=None):
    torch.manual_seed(seed)  # conftest puts the generator back
    model = nn.Sequential(nn.Conv2d(8, 64, 3), nn.Conv2d(64, 64, 3))
    if method != "learned":
        fix_(model, method, seed=seed, guide=guide)
    return model


def test_the_initialisations_of_a_network_of_normal_kernels(tmp_path):
    guide = fixed("learned")
    models = {m: fixed(m, guide=guide if m == "guidedsteer" else None) for m in METHODS}
    models["unchanged"] = guide

    def words(models, changed):
        cases = [
            Case("n", m, seed, explain(model), None, None, changed)
            for m, model in models.items()
            for seed in (0, 1)
        ]
        found = spectra.measure(cases)
        kinds = {"flat": "flat", "steered": "steered", "fixed": "changed layers"}
        moved = found["guided"]
        spread = {key: value + 0.001 * key.number for key, value in moved.items()}
        return {key: word(key, found[on]) for key, on in kinds.items()} | {
            "guided": word("guided", spread)
        }

    assert words(models, 0) == dict.fromkeys(("flat", "steered", "fixed", "guided"), "agrees")
    # Ones in DCT2's place is anything but flat; GHaar in GuidedSteer's is not like its guide.
    wrong = models | {"dct2": models["ones"], "guidedsteer": models["ghaar"]}
    found = words(wrong, 1)
    assert (found["flat"], found["guided"], found["fixed"]) == ("disagrees",) * 3


def test_other_shapes_are_blank():
    model = nn.Sequential(*(nn.Conv2d(2, 2, size) for size in (7, 3, 5, 3, 5)))
    block = stack_energies(explain(model))
    assert block.shape == (9 + 25, 4)  # the 7x7 stem is alone and left out
    assert np.isnan(block[:9]).all(0).tolist() == [False, True, False, True]


def test_the_papers_networks(tmp_path):
    runs = spectra.train(Setting("paper", folder=tmp_path, dry=True))
    learned = [key.network for key in runs if key.network.endswith("from scratch")]
    assert learned == [
        f"{network}, from scratch"
        for network in ("ResNet50", "DenseNet121", "EfficientNet-b0")
        for _ in range(6)
    ]
    tuned = [run.config for key, run in runs.items() if key.network == "DenseNet121, pretrained"]
    assert {config.fix for config in tuned} == {None, *METHODS[1:]}


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_no_run_is_its_own(tmp_path, scale):
    """All are shared with steering, classification and what zeroes learned networks."""
    setting = Setting(scale, folder=tmp_path, dry=True)
    sharing = (classification, inference, saliency_check, training)
    others = [train_steering(setting), *(experiment.train(setting) for experiment in sharing)]
    known = {run.folder for runs in others for run in runs.values()}
    assert {run.folder for run in spectra.train(setting).values()} <= known
