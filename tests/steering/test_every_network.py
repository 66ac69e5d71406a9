"""The laws of steering on one of each family of networks: a part that `make quick` skips."""

import copy

import pytest
import torch

import explainfix as xf
from explainfix.mixing.steered import can_split, is_dense, steered_layers
from networks import SPECS, first, image_shape, without_chance


@torch.no_grad()
def run(model, x):
    return first(model(x))


def dense(model):
    return [layer for layer in xf.spatial_layers(model).values() if is_dense(layer)]


@pytest.mark.zoo
@pytest.mark.parametrize("spec", SPECS)
def test_steered_by_a_whole_basis_mixed_and_merged_it_computes_the_same(spec):
    model = without_chance(xf.create_model(spec)).eval()
    x = torch.randn(1, *image_shape(spec, 64))
    if any(map(can_split, dense(model))):
        for dtype, bound in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
            steered, images = copy.deepcopy(model).to(dtype), x.to(dtype)
            before = run(steered, images)
            bound *= float(before.norm())
            xf.steer_(steered)
            assert steered_layers(steered)
            assert float((run(steered, images) - before).norm()) <= bound, dtype
            xf.merge_(steered)
            assert float((run(steered, images) - before).norm()) <= bound, dtype
    if dense(model):
        xf.fix_(model, "unchanged")
        before = run(model, x)
        xf.mix_(model, example_inputs=x)
        assert torch.equal(run(model, x), before)
