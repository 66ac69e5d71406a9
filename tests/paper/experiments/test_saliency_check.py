"""Zeroing from both ends of the saliency, on a network of which we know what matters."""

import numpy as np
import torch
from torch import nn

from explainfix import saliency
from explainfix.lab.data.dataset import open_dataset
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import saliency_check as check
from explainfix.paper.experiments.saliency_check import SHARES
from explainfix.paper.scores import score_on
from explainfix.paper.setting import first_batches

FEW, HALF = SHARES.index(check.FEW), SHARES.index(check.HALF)


def test_the_order_is_turned_round():
    scores = {"a": torch.tensor([[1.0, 5.0]]), "b": torch.tensor([[3.0]])}
    assert check.reverse(scores)["a"].tolist() == [[4, 0]]
    assert check.reverse(scores)["b"].tolist() == [[2]]


def test_the_first_layer_stays_but_for_the_last_end():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(8, 5))  # fmt: skip
    batches = [(torch.randn(2, 1, 12, 12), torch.ones(2, 5))]
    found = check.orders(model, batches, seed=0)
    assert tuple(found) == check.ENDS
    assert [set(order) for order in found.values()] == [{"1"}] * 4 + [{"0", "1"}]
    most, least = (found[end]["1"].flatten().argsort() for end in ("most", "least"))
    assert most.tolist() == least.flip(0).tolist()
    gradient = saliency(model, batches, kind="gradient")["1"]
    assert found["least gradient"]["1"].equal(gradient)


def test_the_score_of_a_network_that_sees_nothing():
    data = open_dataset("xray-like", count=64, size=32)
    blind = nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 5))
    nn.init.zeros_(blind[1].weight)
    assert score_on(blind, first_batches(data, "test", 1, size=64), data) == 0.5


def words(*networks):
    """Of networks: by end, the AUC at each share; three runs that differ a little."""
    jitter = (0.0, 0.004, -0.004)
    scores = {
        check.ScoreKey(str(number), run, end, share): float(score) + jitter[run]
        for number, ends in enumerate(networks)
        for end, values in ends.items()
        for share, score in zip(SHARES, values, strict=True)
        for run in range(3)
    }
    found = judge_claims(check.CLAIMS, {"AUC": scores})
    return {key: verdict.word for key, verdict in found.items()}


def test_verdicts_by_hand():
    flat = np.full(len(SHARES), 0.8)
    falls, half = flat.copy(), flat.copy()
    falls[FEW:], half[FEW:] = 0.5, 0.7
    papers = {"most": falls, "least": flat, "random": half, "least gradient": flat}
    assert set(words(papers).values()) == {"agrees"}
    drops = flat.copy()
    drops[HALF:] = 0.7
    assert words(papers | {"least": drops})["least"] == "disagrees"
    assert words(papers | {"least": drops}, papers)["least"] == "agrees"  # in some
    found = words({"most": half, "least": falls, "random": flat, "least gradient": falls - 0.1})
    assert found == dict.fromkeys(("most", "least", "separates", "gradient"), "disagrees")


def test_first_batches_are_of_the_first_images():
    data = open_dataset("xray-like", count=64, size=32)
    images, _ = first_batches(data, "val", 2, size=4)[1]
    assert torch.equal(images[0], data.prepare(data.split("val")[4]).image)
    every = first_batches(data, "val", None, size=64)
    assert sum(len(x) for x, _ in every) == len(data.split("val"))
