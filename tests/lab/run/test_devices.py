"""Optimizers that do a step in one kernel: the same step as PyTorch's loop."""

import copy

import pytest
import torch
from torch import nn

from explainfix.lab.run import devices
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.devices import in_one_kernel, is_compiler_there, make_optimizer, open_fabric


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_steps_are_those_of_the_loop(name):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 1)).double()
    network[0].weight.requires_grad_(False)
    config = RunConfig(model="unetd", data="nuclei", optimizer=name, lr=0.01, weight_decay=0.1)
    optimizer = make_optimizer(config, network)
    assert optimizer.defaults["fused"]
    plain = copy.deepcopy(network)
    learned = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    options = {"momentum": 0.9} if name == "sgd" else {}
    loop = type(optimizer)(learned, 0.01, weight_decay=0.1, foreach=False, **options)
    for _ in range(5):
        x = torch.randn(2, 1, 8, 8, dtype=torch.double)
        for each, step in ((network, optimizer), (plain, loop)):
            step.zero_grad()
            each(x).square().mean().backward()
            step.step()
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_elsewhere_pytorch_chooses():
    assert in_one_kernel([nn.Parameter(torch.empty(1, device="meta"))]) is None
    assert in_one_kernel([nn.Parameter(torch.empty(1, dtype=torch.cfloat))]) is None


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert not is_compiler_there("cpu")
    with pytest.raises(ValueError, match=r"compile needs g\+\+ or clang\+\+, which is not here"):
        open_fabric(RunConfig(compile=True, accelerator="cpu"))
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert not is_compiler_there("cuda")
