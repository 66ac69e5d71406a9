import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torchvision.ops import DeformConv2d

import explainfix as xf
from explainfix.layers import (
    attributes_as_found,
    kernels_by_output,
    require_writable_kernels,
    select_layers,
    spatial_layers,
)


def test_every_kind_of_convolution_counts(every_convolution):
    expected = [name for name in every_convolution if name not in ("pointwise", "norm")]
    assert list(spatial_layers(every_convolution)) == expected


def test_subclasses_count_and_plain_1x1_of_any_dimension_do_not():
    class Own(nn.Conv2d):
        pass

    model = nn.Sequential(Own(1, 1, 3), nn.Conv1d(1, 1, 1), nn.Conv3d(1, 1, 1), nn.Linear(2, 2))
    assert list(spatial_layers(model)) == ["0"]


class Bent(nn.Module):
    """A network with a deformable convolution, which is no convolution of PyTorch's by class."""

    def __init__(self):
        super().__init__()
        self.offset = nn.Conv2d(3, 18, 3, padding=1)
        self.bent = DeformConv2d(3, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        return self.head(self.bent(x, self.offset(x)).relu())


def test_deformable_convolutions_count_everywhere(tmp_path):
    model, x = Bent(), torch.randn(2, 3, 9, 9)
    assert list(spatial_layers(model)) == ["offset", "bent"]
    for method in xf.list_filters():
        xf.fix_(model, method, scale="fan_in")
    xf.fix_(model, "ghaar")
    scores = xf.saliency(model, [x])
    assert scores.silent == ()
    assert list(xf.explain(model, saliency=scores)) == ["offset", "bent"]
    xf.save(model, tmp_path / "bent.safetensors")
    loaded = xf.load(tmp_path / "bent.safetensors", Bent())
    xf.check_fixed(loaded)
    assert torch.equal(loaded(x), model(x))
    assert not loaded.bent.weight.requires_grad
    fresh = Bent()
    xf.fix_(fresh, "ones")
    fresh.load_state_dict(model.state_dict())
    assert xf.recipes(fresh) == xf.recipes(model)


def test_what_only_resembles_a_convolution_does_not_count():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel_size, self.in_channels, self.out_channels, self.groups = (3, 3), 4, 4, 1
            self.weight = nn.Parameter(torch.ones(4))

    model = nn.Sequential(Pool(), nn.Linear(3, 3), nn.MaxPool2d(3), nn.Embedding(3, 3))
    assert not spatial_layers(model)


def test_shared_modules_and_tied_weights_appear_once():
    shared = nn.Conv2d(3, 3, 3)
    tied = nn.Conv2d(3, 3, 3)
    tied.weight = shared.weight
    assert list(spatial_layers(nn.Sequential(shared, shared, tied))) == ["0"]


def test_a_model_may_be_one_convolution():
    assert list(spatial_layers(nn.Conv2d(1, 1, 3))) == [""]


def test_patterns_keep_the_order_of_the_model(every_convolution):
    assert list(select_layers(every_convolution, ["up*", "line"])) == [
        "line", "up_line", "up", "up_volume",
    ]  # fmt: skip


def test_an_unknown_layer_is_named_with_near_misses(every_convolution):
    with pytest.raises(ValueError, match="'depthwize': did you mean 'depthwise'"):
        select_layers(every_convolution, "depthwize")


def test_an_empty_choice_is_a_mistake(every_convolution):
    with pytest.raises(ValueError, match="no layer was named"):
        select_layers(every_convolution, [])


def test_a_model_without_spatial_layers_is_refused():
    with pytest.raises(ValueError, match="Sequential has no spatial layer"):
        select_layers(nn.Sequential(nn.Linear(3, 3), nn.Conv2d(3, 3, 1)))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (weight_norm(nn.Conv2d(3, 3, 3)), "remove_parametrizations"),
        (nn.LazyConv2d(3, 3), "run the model once"),
        (nn.Conv2d(3, 3, 3, device="meta"), "meta device"),
        (nn.Conv2d(3, 3, 3, dtype=torch.complex64), "complex64"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_kernels_that_cannot_be_written_are_refused_by_name(layer, message):
    layers = spatial_layers(nn.Sequential(layer))
    with pytest.raises(ValueError, match=rf"'0'.*{message}"):
        require_writable_kernels(layers)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(6, 4, (3, 5), groups=2, bias=False),
        nn.Conv1d(8, 8, 5, groups=8, bias=False),
        nn.ConvTranspose2d(6, 4, 4, stride=2, groups=2, bias=False),
        nn.ConvTranspose2d(6, 4, 3, stride=2, bias=False),
        nn.ConvTranspose2d(6, 4, (3, 2), stride=(1, 3), bias=False),
        nn.ConvTranspose1d(6, 4, 5, stride=3, groups=2, bias=False),
        nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False),
    ],
    ids=str,
)
def test_kernels_by_output_are_what_the_outputs_sum(layer):
    """Away from the border, an input of ones gives each kind of output the sum of its kernels."""
    period = layer.stride if layer.transposed else [1] * len(layer.kernel_size)
    outputs = layer(torch.ones(1, layer.in_channels, *[18] * len(period))).detach()[0]
    middle = outputs[(slice(None), *[slice(6, 6 + step) for step in period])].flatten(1)
    kernels = kernels_by_output(layer, layer.weight.detach().numpy())
    sums = torch.from_numpy(kernels.reshape(layer.out_channels, middle.shape[1], -1).sum(2))
    torch.testing.assert_close(sums.sort(dim=1).values, middle.sort(dim=1).values)


def test_attributes_are_put_back_with_all_that_they_hold():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    model.sizes = {"first": 1}
    weight, mean = model[0].weight, model[1].running_mean

    def change():
        model.sizes["second"] = 2
        model.seen = True
        model[0].weight = nn.Parameter(torch.zeros(1, 2, 3, 3))
        model[1].running_mean = None
        model[1].register_forward_hook(print)
        model.append(nn.ReLU())

    with attributes_as_found(model):
        change()
    assert model.sizes == {"first": 1}
    assert not hasattr(model, "seen")
    assert model[0].weight is weight
    assert model[1].running_mean is mean
    assert not model[1]._forward_hooks
    assert len(model) == 2
    with attributes_as_found(model, on_error_only=True):
        change()
    assert len(model) == 3
