"""What is kept for the backward pass, and for how long."""

import torch
from torch import nn

import explainfix as xf
from explainfix.backward.recompute import make_frugal_
from explainfix.backward.saved import _nodes


def test_what_is_kept_is_freed_by_the_backward_pass():
    model = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3))
    xf.fix_(model, "ghaar")
    make_frugal_(model)
    output = model(torch.randn(2, 8, 16, 16))
    held = [
        ref
        for node in _nodes(output)
        for refs in node.metadata.values()
        for ref in refs.get("result", ())
    ]  # the mask of the ReLU
    assert all(ref() is not None for ref in held)
    output.sum().backward()
    assert len(held) == 1
    assert held[0]() is None
