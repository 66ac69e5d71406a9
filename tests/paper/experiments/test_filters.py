"""The counts behind the figures of filters."""

import numpy as np
import pytest
import torch
from torch import nn

from explainfix.explanation.compare import spectral_distance
from explainfix.paper.contrast import samples
from explainfix.paper.experiments import filters
from explainfix.paper.networks import find_pretrained, load_in_order, missing_note
from explainfix.paper.spectral import above_even, guided_scores, mean_frequency


def test_the_mean_frequency_by_hand():
    # 3x3 totals in order: 0 1 1 2 2 2 3 3 4
    assert mean_frequency(np.full(9, 1 / 9), 3) == pytest.approx(2)
    only_last = np.eye(9)[8]
    assert mean_frequency(only_last, 3) == 4
    assert mean_frequency(np.eye(9)[[1, 5]].mean(0), 3) == pytest.approx(1.5)


def word(key, scores):
    [claim] = [claim for claim in filters.CLAIMS if claim.key == key]
    return claim.rule.judge(samples(scores)).word


def test_the_laws_hold():
    assert word("order", filters.measure_order()) == "agrees"
    assert word("order", {"falls": [1], "off": [0.0]}) == "disagrees"
    assert word("haar", {"off": [filters.measure_haar()]}) == "agrees"


def test_frequencies_without_the_constant_filter():
    # the others of 3x3 have totals 1 1 2 2 2 3 3 4, of mean 2.25
    assert above_even(np.full(9, 1 / 9), 3) == pytest.approx(0)
    assert above_even(np.eye(9)[[1, 5]].mean(0), 3) == pytest.approx(1.5 - 2.25)
    constant = np.array([0.9, *[0.1 / 8] * 8])
    assert above_even(constant, 3) == pytest.approx(0)  # a mean says nothing about frequency
    assert above_even(np.stack([constant, np.eye(9)[8]]), 3) == pytest.approx([0, 1.75])


def test_low_and_high_frequencies_are_told_apart():
    assert word("low", {"GHaar 3x3": [-0.5, -0.51], "Psine 3x3": [-0.1, -0.11]}) == "agrees"
    assert word("low", {"GHaar 3x3": [-0.5, -0.51], "Psine 3x3": [0.1, 0.11]}) == "disagrees"


def test_a_bump_is_not_flat():
    assert word("flat", {"3x3": [0.001, 0.0], "5x5": [0.0, 0.005]}) == "agrees"
    assert word("flat", {"3x3": [0.001, 0.0], "5x5": [0.0, 0.02]}) == "disagrees"


def test_degenerate_filters_have_a_lower_rank():
    ranks = filters.measure_ranks(range(3), count=30)
    assert word("degenerate", ranks) == "agrees"
    (full, poor), other = filters.STEERINGS
    swapped = {str(full): ranks[str(poor)], str(poor): ranks[str(full)]}
    assert word("degenerate", ranks | swapped) == "disagrees"
    assert set(ranks) == {str(full), str(poor), *map(str, other)}


def test_the_guide_is_recognised_and_noise_is_not_it():
    one = torch.tensor([3.0, 1.0])
    assert spectral_distance(one, 7 * one) == pytest.approx(0)
    assert spectral_distance(one, torch.tensor([1.0, 3.0])) == pytest.approx(0.5)
    assert word("guided", {"GuidedSteer": [0.01, 0.011], "its guide, resampled": [0.01, 0.01]}) == (
        "agrees"
    )
    assert word("guided", {"GuidedSteer": [0.1, 0.101]}) == "disagrees"
    found = guided_scores(nn.Sequential(nn.Conv2d(8, 64, 3)), range(2))
    assert {key.name for key in found} == {"GuidedSteer", "its guide, resampled"}
    assert max(found.values()) < 0.05


def test_weights_in_the_same_order_are_loaded_whatever_their_names(tmp_path, monkeypatch):
    theirs, ours = nn.Sequential(nn.Conv2d(1, 2, 3)), nn.ModuleDict({"stem": nn.Conv2d(1, 2, 3)})
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    load_in_order(ours, tmp_path / "w.pth")
    assert torch.equal(ours["stem"].weight, theirs[0].weight)
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    assert find_pretrained() == {}
    assert "AlexNet" in missing_note({})[0]
