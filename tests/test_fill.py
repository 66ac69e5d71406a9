import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import explainfix as xf
from explainfix.filters.exact import Draw


def by_the_book(weight, draw, fan_in):
    """A number drawn for every weight, whether it is needed or not."""
    kernels = weight.double().flatten(2)
    bound = 1 / math.sqrt(fan_in)
    uniform = torch.from_numpy(draw.uniform(*kernels.shape, low=-bound, high=bound))
    first, second = (torch.from_numpy(draw.uniform(*kernels.shape)) for _ in range(2))
    normal = (-2 * (1 - first).log()).sqrt() * (2 * math.pi * second).cos()
    around = kernels.mean(2, keepdim=True) + kernels.std(2, keepdim=True, correction=0) * normal
    zero = torch.isclose(kernels, torch.zeros_like(kernels))
    empty = zero.all(2, keepdim=True)
    filled = torch.where(zero, torch.where(empty, uniform, around), kernels)
    return filled.reshape(weight.shape).to(weight.dtype)


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_only_what_is_needed_is_drawn_and_it_is_the_same(share, layout, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 8, 3), nn.Conv2d(8, 8, 5, groups=4)).to(dtype)
    model.to(memory_format=layout)
    with torch.no_grad():
        for layer in model:
            layer.weight[torch.rand(layer.weight.shape[:2]) < 0.5] = 0
            layer.weight[torch.rand(layer.weight.shape) < share] = 0
    before = [layer.weight.detach().clone() for layer in model]
    filled = xf.fill_zero_(model, seed=5)
    for i, (layer, weight) in enumerate(zip(model, before, strict=True)):
        expected = by_the_book(weight, Draw(5, f"fill:{i}"), weight[0].numel())
        torch.testing.assert_close(layer.weight.detach(), expected)
        assert filled[str(i)] == (weight == 0).sum()
        assert layer.weight.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(6, 8, 3, groups=2),
        nn.ConvTranspose2d(6, 8, 3),
        nn.Conv1d(4, 8, 5),
        nn.Conv3d(2, 9, 3),
    ],
    ids=["grouped", "transposed", "1-D", "3-D"],
)
def test_kernels_of_zeros_are_uniform_with_bound_one_over_root_fan_in(layer):
    model = nn.Sequential(layer)
    fan_in = 27 if isinstance(layer, nn.Conv2d) else 54 if layer.weight.dim() != 3 else 20
    with torch.no_grad():
        layer.weight.zero_()
    xf.fill_zero_(model)
    bound = 1 / math.sqrt(fan_in)
    assert 0.9 * bound < layer.weight.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_weights_close_to_zero_count_as_zero():
    model = nn.Sequential(nn.Conv2d(1, 3, 2, bias=False))
    tiny, kept = 1e-8, 1.1e-8
    with torch.no_grad():
        model[0].weight.copy_(
            torch.tensor([[tiny, -tiny, 0, 1e-9], [tiny, 1, 2, 3], [kept, 1, 2, 3]]).view(
                3, 1, 2, 2
            )
        )
    assert xf.fill_zero_(model) == {"0": 5}
    filled = model[0].weight.flatten(1)
    assert (filled[0].abs() > 1e-4).all()
    assert filled[1, 0].abs() > 1e-4
    assert filled[1, 1:].tolist() == [1, 2, 3]
    assert filled[2].tolist() == torch.tensor([kept, 1, 2, 3]).tolist()


def test_it_refuses_before_it_changes_anything():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), weight_norm(nn.Conv2d(4, 4, 3)))
    nn.init.zeros_(model[0].weight)
    with pytest.raises(ValueError, match="the weight of '1' is computed"):
        xf.fill_zero_(model)
    assert not model[0].weight.any()
