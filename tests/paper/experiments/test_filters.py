"""The counts behind the figures of filters."""

import numpy as np
import pytest
import torch
from torch import nn

from explainfix.explanation.compare import spectral_distance
from explainfix.paper.experiments import filters
from explainfix.paper.networks import find_pretrained, load_in_order, missing_note
from explainfix.paper.spectral import judge_guided, mean_frequency


def test_the_mean_frequency_by_hand():
    # 3x3 totals in order: 0 1 1 2 2 2 3 3 4
    assert mean_frequency(np.full(9, 1 / 9), 3) == pytest.approx(2)
    only_last = np.eye(9)[8]
    assert mean_frequency(only_last, 3) == 4
    assert mean_frequency(np.eye(9)[[1, 5]].mean(0), 3) == pytest.approx(1.5)


def test_the_laws_hold():
    assert filters.judge_order().word == "agrees"
    assert filters.judge_haar().word == "agrees"


def shares_of(**spectra):
    """Two seeds of each 3x3 spectrum; 5x5 has its energy in the lowest filter."""
    found = {}
    for method, values in spectra.items():
        found[method, 3] = np.array([values, values]) / np.sum(values)
        found[method, 5] = np.eye(25)[[0, 0]]
    return found


def test_low_and_high_frequencies_are_told_apart():
    low, high = np.arange(9, 0, -1.0), np.arange(1, 10.0)
    assert filters.judge_low(shares_of(ghaar=low, psine=low)).word == "agrees"
    found = filters.judge_low(shares_of(ghaar=low, psine=high))
    assert found.word == "disagrees"
    assert "GHaar 5x5 -4.00" in found.ours


def test_a_bump_is_not_flat():
    flat = {("dct2", 3): np.full((2, 9), 1 / 9), ("dct2", 5): np.full((2, 25), 1 / 25)}
    assert filters.judge_flat(flat).word == "agrees"
    flat["dct2", 5][1, 7] *= 1.02
    assert filters.judge_flat(flat).word == "disagrees"


def test_the_guide_is_recognised_and_noise_is_not_it():
    one = torch.tensor([3.0, 1.0])
    assert spectral_distance(one, 7 * one) == pytest.approx(0)
    assert spectral_distance(one, torch.tensor([1.0, 3.0])) == pytest.approx(0.5)
    assert judge_guided([0.01, 0.02]).word == "agrees"
    assert judge_guided([0.01, 0.02, 0.3]).word == "undecided"
    assert judge_guided([0.1, 0.2]).word == "disagrees"


def test_weights_in_the_same_order_are_loaded_whatever_their_names(tmp_path, monkeypatch):
    theirs, ours = nn.Sequential(nn.Conv2d(1, 2, 3)), nn.ModuleDict({"stem": nn.Conv2d(1, 2, 3)})
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    load_in_order(ours, tmp_path / "w.pth")
    assert torch.equal(ours["stem"].weight, theirs[0].weight)
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    assert find_pretrained() == {}
    assert "AlexNet" in missing_note({})[0]
