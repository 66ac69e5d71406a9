"""A pass forward and backward, and a network that has all there is to save."""

import torch
from torch import nn


def passes(layer, x, **autocast):
    """The output and the gradients of the input and the bias."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", **autocast) if autocast else torch.enable_grad():
        y = layer(x)
    y.backward(torch.cos(torch.arange(y.numel())).reshape(y.shape).to(y.dtype))
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters() if p.requires_grad)]


def widening(activation):
    """A bottleneck as many networks have it: narrow, fixed, wide; and a network around it."""
    return nn.Sequential(
        nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4), activation(),
        nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), activation(),
        nn.Conv2d(4, 32, 1, bias=False), nn.BatchNorm2d(32), activation(),
        nn.Conv2d(32, 2, 1),
    )  # fmt: skip
