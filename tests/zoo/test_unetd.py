import pytest
import torch

import explainfix as xf
from explainfix.zoo.unetd import Merge, UNetD


def test_the_papers_counts():
    model = UNetD()
    layers = xf.spatial_layers(model)
    assert sum(p.numel() for p in model.parameters()) == 116_695
    assert sum(layer.weight.numel() for layer in layers.values()) == 12_744
    assert len(layers) == 16
    assert all(layer.kernel_size == (3, 3) and layer.bias is None for layer in layers.values())


@pytest.mark.parametrize("size", [(256, 256), (81, 100), (7, 5), (1, 1)])
def test_any_size_of_image_gives_a_mask_of_that_size(size):
    model = UNetD(num_classes=2, in_channels=1).eval()
    assert model(torch.randn(1, 1, *size)).shape == (1, 2, *size)


def test_merging_is_a_weighted_mean():
    merge = Merge(4, 4, 8).eval()
    merge.before = merge.after = torch.nn.Identity()
    deep, skip = torch.zeros(1, 4, 3, 3), torch.ones(1, 4, 9, 9)
    with torch.no_grad():
        merge.weights.copy_(torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(merge(deep, skip), torch.full_like(skip, 0.75))
