import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import explainfix as xf
from explainfix.lab.measure.ways import Settings, Way
from explainfix.layout import layout_of, to_channels_last
from explainfix.prune.cut import _cut

SIZES = st.lists(st.integers(1, 4), min_size=4, max_size=5)


@given(SIZES)
def test_by_strides_even_of_grey_pictures_and_kernels_of_one_tap(sizes):
    usual = torch.zeros(sizes)
    last = to_channels_last(usual)
    expected = {4: torch.channels_last, 5: torch.channels_last_3d}[len(sizes)]
    assert layout_of(usual) == torch.contiguous_format
    if last.stride() == usual.stride():  # one number a pixel, one pixel: it is one layout
        assert layout_of(last) == torch.contiguous_format
    else:
        assert layout_of(last) == expected


def test_what_has_no_pixels_is_left():
    x = torch.zeros(3, 4, 5)
    assert to_channels_last(x) is x
    assert layout_of(x) == torch.contiguous_format
    assert layout_of(torch.zeros(2, 3, 4, 5).permute(0, 3, 2, 1)) == torch.contiguous_format


def test_a_network_on_grey_pictures_computes_in_channels_last():
    seen = []
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1)
    )
    for layer in model:
        layer.register_forward_hook(lambda *given: seen.append(layout_of(given[2])))
    Way(model, torch.randn(2, 1, 16, 16), Settings(channels_last=True)).time_step()
    assert seen[:4] == [torch.channels_last] * 4


@pytest.mark.parametrize("shape", [(6, 1, 3, 3), (6, 4, 1, 1), (6, 4, 3, 3), (6, 4, 3, 3, 3)])
def test_a_cut_keeps_it(shape):
    kernels = nn.Parameter(to_channels_last(torch.randn(shape)))
    places = torch.tensor([0, 2, 5])
    cut = _cut(kernels, {0: places})
    assert torch.equal(cut, kernels[places])
    assert layout_of(cut) == layout_of(kernels) != torch.contiguous_format


def test_the_gradient_of_a_fixed_layer_has_the_layout_of_its_input():
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)
    xf.fix_(layer, "ghaar")
    for x in (torch.randn(2, 4, 8, 8), to_channels_last(torch.randn(2, 4, 8, 8))):
        layer(x.requires_grad_()).sum().backward()
        assert layout_of(x.grad) == layout_of(x)
