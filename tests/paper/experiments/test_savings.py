"""Counts, shares of time and verdicts of savings."""

import numpy as np
import pytest
import torch

from explainfix.paper.contrast import samples
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import savings
from explainfix.paper.networks import count_parameters
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import NETWORKS, Network
from explainfix.paper.zeroing import shares_saved

COUNTS = {
    "resnet": (23_512_133, 11_300_000),
    "densenet": (6_952_645, 2_139_000),
    "efficientnet": (4_013_377, 194_000),
}
TITLES = {family: network.title for family, network in NETWORKS["paper"].items()}


def rounds(**shares):
    """Three rounds, whose 95% t interval reaches 0.012 to each side."""
    return {f: s + np.array([-0.005, 0.0, 0.005]) for f, s in shares.items()}


def words(counts, saved):
    named = {TITLES[family]: shares for family, shares in saved.items()}
    scores = {"parameters": samples(counts), "time saved": samples(named)}
    return {key: v.word for key, v in judge_claims(savings.CLAIMS, scores).items()}


def test_rules():
    found = words(COUNTS, rounds(resnet=0.17, densenet=0.1, efficientnet=0.03))
    assert found == dict.fromkeys(("parameters", "faster", "saved"), "agrees")
    found = words(COUNTS, rounds(resnet=0.57, densenet=0.1, efficientnet=0.03))
    assert (found["faster"], found["saved"]) == ("agrees", "disagrees")  # more is not the same
    tiny = {"parameters": samples(COUNTS), "time saved": samples({"tiny ResNet": [0.1, 0.2]})}
    assert judge_claims(savings.CLAIMS, tiny)["saved"].word == "not tested"
    assert words(COUNTS, rounds(resnet=-0.1))["faster"] == "disagrees"
    assert words(COUNTS, rounds(resnet=0.005))["faster"] == "undecided"
    assert (
        words(COUNTS | {"resnet": (23_512_133, 9_000_000)}, rounds(resnet=0.5))["parameters"]
        == "disagrees"
    )


def test_spatial_parameters_of_resnet50_by_hand():
    # bottlenecks of 3, 4, 6 and 3 blocks, each with one 3x3 of its width, and the 7x7 stem in grey
    widths = [(64, 3), (128, 4), (256, 6), (512, 3)]
    spatial = 64 * 49 + sum(9 * width**2 * blocks for width, blocks in widths)
    total, found = count_parameters(NETWORKS["paper"]["resnet"].model, num_classes=5, in_channels=1)
    assert found == spatial
    # torchvision's 25,557,032, with a grey stem and five classes instead of a thousand
    assert total == 25_557_032 - 64 * 49 * 2 - 995 * 2049


def test_share_saved():
    assert shares_saved([1.5, 3.0, 1.5], [2.0, 4.0, 2.0]) == pytest.approx([0.25] * 3)


def test_pruned_contestants_are_smaller_and_fixed():
    batches = [(torch.rand(2, 1, 32, 32), torch.tensor([[0.0, 1, torch.nan]] * 2))]
    found = savings.contestants(Network("tiny", "timm:test_resnet"), 0.9, batches)
    size = {k: sum(p.numel() for p in m.parameters()) for k, m in found.items()}
    assert size["fixed, pruned"] < size["fixed"] == size["learned"]
    assert savings.ours(found) == "fixed, pruned"
    learns = {
        k: sum(p.numel() for p in m.parameters() if p.requires_grad) for k, m in found.items()
    }
    assert learns["fixed"] < learns["learned"] == size["learned"]


def test_the_paper_prunes_two_of_three_and_times_twenty_epochs(tmp_path):
    runs = savings.train(Setting("paper", folder=tmp_path, dry=True))
    pruned = {r.config.model: r.config.zero for r in runs.values() if r.config.prune}
    assert pruned == {"torchvision:resnet50": 0.99, "torchvision:densenet121": 0.90}
    assert len(runs) == 3 * 2 + 2
    assert {run.config.epochs for run in runs.values()} == {20}
