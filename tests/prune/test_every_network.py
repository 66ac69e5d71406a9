"""Pruned equals zeroed, on one of each family of networks; a table of them goes into the docs."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.layers import Convolution
from networks import (
    NORMS,
    SIZES,
    SPECS,
    first,
    image_shape,
    shift_norms,
    without_chance,
    zero_some,
)

UNETS = Path(__file__).with_name("unets.py")
NETWORKS = [
    *(spec for spec in SPECS if spec != "torchvision:vit_b_32"),  # silent: its head starts as zero
    f"{UNETS}:transposed",
    f"{UNETS}:interpolated",
]
# Where nothing can go, and why: what is dead in a spatial layer is alive, or needed, behind it.
LAYER_NORM = "a LayerNorm takes its mean over all channels"
STANDARDISED = "weights are standardised over all inputs, whose number therefore counts"
GATE = "constant channels pass gates that vary with the image"
SUM = "every channel is a sum with a branch that is not zeroed"
NOTHING_TO_REMOVE = {
    "torchvision:convnext_tiny": LAYER_NORM, "timm:convnext_atto": LAYER_NORM,
    "timm:convnextv2_atto": LAYER_NORM, "timm:edgenext_xx_small": LAYER_NORM,
    "torchvision:swin_t": LAYER_NORM, "torchvision:swin_v2_t": LAYER_NORM,
    "torchvision:efficientnet_b0": GATE, "timm:tinynet_e": GATE,
    "timm:dm_nfnet_f0": STANDARDISED, "timm:eca_nfnet_l0": STANDARDISED,
    "timm:nf_resnet26": STANDARDISED, "timm:mobileone_s0": SUM, "timm:repvgg_a0": SUM,
    "timm:fastvit_t8": SUM,
}  # fmt: skip


def settings(model):
    """Everything about a model that has nothing to do with its number of channels."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks")
    return [
        (
            path,
            type(module),
            module.training,
            [len(getattr(module, kind)) for kind in hooks],
            [
                (name, tensor.requires_grad, tensor.dtype, tensor.device)
                for name, tensor in (
                    *module.named_parameters(recurse=False),
                    *module.named_buffers(recurse=False),
                )
            ],
            {
                name: type(value)
                for name, value in vars(module).items()
                if isinstance(value, (bool, int, float, str, tuple, list))
                and name != "explainfix_changes"  # what lets a pruned network be saved
            },
        )
        for path, module in model.named_modules()
    ]


def formats(model):
    """Whether kernels are channels last, where that can be told."""
    return {
        name: tensor.is_contiguous(memory_format=torch.channels_last)
        for name, tensor in model.named_parameters()
        if tensor.dim() == 4 and min(tensor.shape[1:]) > 1  # of one channel both are true
    }


def check_counts(model):
    """The numbers that PyTorch's modules keep are plain and agree with their tensors."""
    for module in model.modules():
        if isinstance(module, Convolution):
            sizes = (module.in_channels, module.out_channels)
            shape = module.weight.shape
            own = (shape[0], shape[1] * module.groups)
            assert sizes == (own if module.transposed else own[::-1])
            assert all(type(n) is int for n in (*sizes, module.groups))
        elif isinstance(module, nn.Linear):
            assert (module.out_features, module.in_features) == tuple(module.weight.shape)
        elif isinstance(module, NORMS) and module.running_mean is not None:
            assert module.num_features == len(module.running_mean)


@pytest.mark.zoo
@pytest.mark.parametrize("spec", NETWORKS, ids=lambda spec: spec.rpartition("/")[2])
def test_pruned_equals_zeroed(spec):
    model = without_chance(xf.create_model(spec)).double()
    if all(parameter.dim() != 5 for parameter in model.parameters()):
        model = model.to(memory_format=torch.channels_last)
    list(model.parameters())[-1].requires_grad_(False)
    shape = image_shape(spec, 64)
    zero_some(model)
    shift_norms(model, (torch.randn(2, *shape).double(),))
    hook = model.register_forward_hook(lambda *_: None)
    zeroed = copy.deepcopy(model)
    before, laid_out = settings(model), formats(model)
    report = xf.prune_(model, torch.randn(1, *shape).double())
    assert settings(model) == before
    assert formats(model).items() <= laid_out.items()
    check_counts(model)
    hook.remove()
    removed = report.parameters_before - report.parameters_after
    assert (removed == 0) == (spec in NOTHING_TO_REMOVE)
    larger = shape if spec in SIZES else (*shape[:-2], shape[-2] + 32, shape[-1])
    for probe in dict.fromkeys((shape, larger)):
        images = torch.randn(2, *probe).double()
        with torch.no_grad():
            wanted, got = first(zeroed(images)), first(model(images))
        varies = (wanted[0] - wanted[1]).abs().max()
        assert varies > 1e-6 * wanted.abs().max(), "the network went silent: this proves nothing"
        assert (wanted - got).abs().max() <= 1e-6 * varies
    if report.exact_in_training:
        with torch.no_grad():
            wanted, got = first(zeroed.train()(images)), first(model.train()(images))
        assert (wanted - got).abs().max() <= 1e-6 * (wanted[0] - wanted[1]).abs().max()
    else:
        assert "This is for evaluation" in str(report)
    first(model.eval()(images[:1])).sum().backward()
