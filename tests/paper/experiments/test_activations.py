"""Edges: the Haar transform, the gradient, and correlations against maps known by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from explainfix.paper.contrast import samples
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import activations


def test_the_transform_keeps_the_energy():
    """Orthonormal: coefficients of all levels and the last mean hold the energy of the image."""
    image = torch.randn(32, 16, dtype=torch.float64)
    maps = activations.haar_transform(image, 3)
    blocks = image.reshape(4, 8, 2, 8).sum((1, 3)) / 8  # the third level's approximation
    total = sum(part.square().sum() for part in maps.values()) + blocks.square().sum()
    assert float(total) == pytest.approx(float(image.square().sum()))
    assert [tuple(m.shape) for m in maps.values()] == [(3, 16, 8), (3, 8, 4), (3, 4, 2)]


def test_each_direction_sees_its_edges():
    step = torch.zeros(8, 8)
    step[:, 3:] = 1
    vertical, horizontal, diagonal = activations.haar_transform(step, 1)["level 1"]
    assert vertical[:, 1].tolist() == [-1] * 4
    assert not horizontal.any()
    assert not diagonal.any()
    assert activations.haar_transform(step.T, 1)["level 1"][1][1].tolist() == [-1] * 4


def test_the_gradient_of_a_ramp():
    ramp = 3 * torch.arange(6.0)[:, None] + 4 * torch.arange(7.0)
    found = activations.gradient_size(ramp)
    assert torch.allclose(found[1:-1, 1:-1], torch.tensor(5.0))
    assert found.shape == ramp.shape


def test_edges_lead_and_noise_does_not():
    image = torch.zeros(64, 64)
    image[20:44, 12:30] = 1
    edges = activations.gradient_size(image)
    random = torch.Generator().manual_seed(0)
    assert activations.lead(edges[None], edges, random) > 0.8
    noise = torch.randn(64, 64, 64, generator=random)
    assert abs(activations.lead(noise, edges, random)) < 0.02


def test_a_network_of_edge_filters_is_one_and_comes_back_without_hooks():
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1))
    sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    with torch.no_grad():
        model[0].weight[:, 0] = torch.stack([sobel, sobel.T])
        model[0].bias.zero_()
    images = [torch.zeros(1, 64, 64) for _ in range(3)]
    for place, image in enumerate(images):
        image[0, 10 + place : 40, 16:30] = 1
    found = activations.measure(model, images)
    assert found.shape == (3, 1, 2)
    assert found[..., 0].min() > 0.5
    assert not model[0]._forward_hooks


def test_verdicts():
    def words(*found):
        names = ("wavelets", "networks", "alike")
        scores = {name: samples(values) for name, values in zip(names, found, strict=True)}
        return {key: v.word for key, v in judge_claims(activations.CLAIMS, scores).items()}

    haar, edges = {activations.HAAR: [0.6, 0.5, 0.55]}, {"a": np.array([0.2, 0.22, 0.21])}
    found = words(haar, edges, {"a": -edges["a"]})
    assert found == {"wavelets": "agrees", "networks": "agrees", "alike": "disagrees"}
    found = words(haar, edges | {"b": np.array([0.5, -0.4, 0.1])}, edges)
    assert found["networks"] == "undecided"
    assert words(haar, {"a": [0.05, 0.051, 0.052]}, edges)["networks"] == "disagrees"  # weak
