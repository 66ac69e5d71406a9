"""The table of what is zeroed and what is pruned, on a network whose cut is known by hand."""

import pytest
import torch
from torch import nn

from explainfix.lab.data.dataset import open_dataset
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import zeroed_vs_pruned as experiment
from explainfix.paper.experiments.zeroed_vs_pruned import PAPER, Key


def test_a_chain_loses_what_its_dead_channels_had():
    """Four kernels in, four out: with three zeroed of each output three channels go."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 1, 1, bias=False))
    with torch.no_grad():
        for channel in range(4):
            model[0].weight[channel] = 1.0 + channel
        model[2].weight.fill_(1.0)
    batch = torch.rand(2, 1, 6, 6) + 0.1, torch.ones(2, 1, 4, 4)
    # 4 kernels of 9 and 4 weights of 1: each channel has 10 of 40 parameters.
    assert experiment.measure(model, [batch], [0.5, 0.75]) == pytest.approx([0.5, 0.75])
    assert sum(p.numel() for p in model.parameters()) == 40


def words(found):
    scores = {
        "gone": {
            Key(name, share, seed): gone
            for (name, share), all_ in found.items()
            for seed, gone in enumerate(all_)
        },
        "training": {Key("tiny", 0.5, 0): 1e-14},
    }
    verdicts = judge_claims(experiment.CLAIMS, scores)
    assert verdicts.pop("identical").word == "agrees"
    return {key: verdict.word for key, verdict in verdicts.items()}


def test_zeroed_and_pruned_networks_train_alike():
    data = open_dataset("xray-like", count=64, size=32)
    assert experiment.train_both(data, 0) < experiment.ALIKE
    assert experiment.judge_alike({Key("tiny", 0.5, 0): 1e-6}).word == "disagrees"


def test_images_without_a_finding_say_what_matters_too(monkeypatch):
    """Most x-rays have none, and a batch of four may well be of those alone."""
    data = open_dataset("xray-like", count=32, size=32)
    first = experiment.first_batches(data, 0, count=experiment.STEPS)
    healthy = [(x, torch.zeros_like(y)) for x, y in first]
    monkeypatch.setattr(experiment, "first_batches", lambda *_, **__: healthy)
    assert experiment.train_both(data, 0) < experiment.ALIKE


def test_the_papers_own_numbers_agree():
    near = {row: [gone - 0.01, gone + 0.01, gone] for row, gone in PAPER.items()}
    assert set(words(near).values()) == {"agrees"}


def test_one_row_far_off_is_enough_to_disagree():
    found = {row: [gone - 0.01, gone + 0.01, gone] for row, gone in PAPER.items()}
    found["resnet50", 0.99] = [0.60, 0.61, 0.62]
    assert words(found) == {"densenet121": "agrees", "resnet50": "disagrees", "less": "agrees"}
    found["resnet50", 0.999] = [0.59, 0.62, 0.63]
    assert words(found)["less"] == "disagrees"  # falls in one seed
    found["densenet121", 0.8] = [0.2, 0.9, 0.5]
    assert words(found)["densenet121"] == "undecided"
