"""Zeroing from both ends of the saliency, on a network of which we know what matters."""

import numpy as np
import torch
from torch import nn

from explainfix.lab.data.dataset import open_dataset
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import saliency_check as check
from explainfix.paper.experiments.saliency_check import SHARES
from explainfix.paper.setting import first_batches

FEW, HALF = SHARES.index(check.FEW), SHARES.index(check.HALF)


def test_the_order_is_turned_round():
    scores = {"a": torch.tensor([[1.0, 5.0]]), "b": torch.tensor([[3.0]])}
    assert check.reverse(scores)["a"].tolist() == [[4, 0]]
    assert check.reverse(scores)["b"].tolist() == [[2]]


def test_the_one_kernel_that_matters_goes_first_or_last():
    """200 kernels, one of which alone reaches the outputs: the mean brightness."""
    data = open_dataset("xray-like", count=64, size=32)
    model = nn.Sequential(nn.Conv2d(1, 200, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(200, 5)).eval()  # fmt: skip
    with torch.no_grad():
        model[3].weight.zero_()
        model[3].weight[:, 7] = 1
        model[0].weight[7] = 1
    scores = {"0": torch.zeros(200, 1)}
    scores["0"][7] = 1
    batches = first_batches(data, "test", 1, size=64)
    kept = check.score_zeroed(model, scores, batches, data, "least")
    gone = check.score_zeroed(model, scores, batches, data, "most")
    assert kept == [kept[0]] * len(SHARES)
    assert kept[0] != 0.5
    first = next(i for i, share in enumerate(SHARES) if int(share * 200) >= 1)
    assert gone[:first] == kept[:first]
    assert gone[first:] == [0.5] * (len(SHARES) - first)


def curves(most, least):
    """Three runs that differ a little."""
    jitter = np.array([[0.0], [0.004], [-0.004]])
    return {"most": np.array([most]) + jitter, "least": np.array([least]) + jitter}


def words(*networks):
    scores = {
        check.ScoreKey(str(network), run, end, SHARES[place]): score
        for network, both in enumerate(networks)
        for end, values in both.items()
        for (run, place), score in np.ndenumerate(values)
    }
    found = judge_claims(check.CLAIMS, scores) | {"least": check.judge_least(scores)}
    return {key: verdict.word for key, verdict in found.items()}


def test_verdicts_by_hand():
    flat, falls = np.full(len(SHARES), 0.8), np.full(len(SHARES), 0.8)
    falls[FEW:] = 0.5
    assert words(curves(falls, flat)) == {
        "most": "agrees",
        "least": "agrees",
        "separates": "agrees",
    }
    drops = flat.copy()
    drops[HALF:] = 0.7
    assert words(curves(falls, drops))["least"] == "disagrees"
    assert words(curves(falls, drops), curves(falls, flat))["least"] == "agrees"  # in some
    swapped = words(curves(flat, falls))
    assert (swapped["most"], swapped["separates"]) == ("disagrees", "disagrees")


def test_first_batches_are_of_the_first_images():
    data = open_dataset("xray-like", count=64, size=32)
    images, _ = first_batches(data, "val", 2, size=4)[1]
    assert torch.equal(images[0], data.prepare(data.split("val")[4]).image)
    every = first_batches(data, "val", None, size=64)
    assert sum(len(x) for x, _ in every) == len(data.split("val"))
