"""What a network costs: by hand, and against PyTorch's own count."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import explainfix as xf
from explainfix.lab.shrink.cost import compare_costs, peak_memory, size_of


def chain(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1)
    )


def test_memory_is_the_fullest_moment():
    """The activation and its ReLU, each of `width` pictures, and the input, which stays."""
    x = torch.zeros(2, 1, 8, 8)
    assert peak_memory(chain(4), x) == 4 * 2 * 64 * (1 + 4 + 4)


def test_a_tensor_that_was_let_go_does_not_count():
    class Forgetful(nn.Module):
        def forward(self, x):
            for _ in range(5):
                x = x + 1
            return x

    x = torch.zeros(1, 1, 8, 8)
    assert peak_memory(Forgetful(), x) == 4 * 64 * 3  # the input, an old sum, the new one


def test_views_and_writing_in_place_take_no_room():
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(inplace=True), nn.Flatten())
    assert peak_memory(model, torch.zeros(1, 1, 8, 8)) == 4 * 64 * 5


def test_multiply_adds_are_pytorchs():
    model, x = xf.create_model("unetd").eval(), torch.zeros(1, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert 2 * size_of(model, x)[0].multiply_adds == counter.get_total_flops()


@pytest.mark.parametrize("runtime", ["eager", "onnx"])
def test_a_wide_network_takes_longer_than_a_thin_one(runtime):
    x = torch.zeros(1, 1, 64, 64)
    costs = compare_costs(chain(64), chain(2), x, runtime=runtime, rounds=5)
    assert costs.latency.middle < 0.8
    assert costs.shares["latency"] == costs.latency.middle
    assert costs.shares["params"] == (2 * 19 + 1) / (64 * 19 + 1)
    assert costs.shares["macs"] == pytest.approx(2 / 64)
    assert costs.shares["memory"] < 0.1


def test_networks_come_back_as_they_were():
    wide, thin = chain(4).train(), chain(2)
    compare_costs(wide, thin, torch.zeros(1, 1, 8, 8), rounds=2)
    assert wide.training
    assert all(parameter.requires_grad for parameter in wide.parameters())
