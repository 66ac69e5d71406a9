"""Methods on one of each family of networks: a part of the suite that `make quick` skips.

What a method does to a kernel is tested elsewhere, by its shape. Here it is what networks do to
`fix_`, so that each has every fifth method, and each method is on every fifth network.
"""

import pytest
import torch

import explainfix as xf
from explainfix.recipe import can_regenerate, regenerate
from networks import SPECS


@pytest.mark.zoo
@pytest.mark.parametrize(("number", "spec"), list(enumerate(SPECS)), ids=SPECS)
def test_a_method_fixes_it(number, spec):
    model = xf.create_model(spec)
    layers = xf.spatial_layers(model)
    trainable = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    others = {
        name: parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if name.removesuffix(".weight") not in layers
    }
    for method in xf.list_filters()[number % 5 :: 5]:
        recipe = xf.fix_(model, method, seed=1)
        assert recipe.digests.keys() == layers.keys()
        xf.check_fixed(model)
        for path, layer in layers.items():
            assert layer.weight.isfinite().all(), path
            assert not layer.weight.requires_grad, path
        for path, kernels in xf.recipes(model).items():
            if can_regenerate(kernels):
                assert torch.equal(regenerate(kernels), layers[path].weight), path
    now = dict(model.named_parameters())
    for name, value in others.items():
        assert torch.equal(now[name], value), name
        assert now[name].requires_grad == trainable[name], name
