"""Pruned equals zeroed, on one of each family of networks."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import explainfix as xf

SPECS = (Path(__file__).parents[1] / "networks.txt").read_text().split()
SPECS.remove("torchvision:vit_b_32")  # its head starts as noughts: an untrained one is silent
SIZES = {
    "torchvision:inception_v3": 299, "torchvision:maxvit_t": 224, "torchvision:swin_t": 224,
    "torchvision:swin_v2_t": 224, "torchvision:vit_b_32": 224, "timm:botnet26t_256": 256,
    "timm:coatnet_nano_rw_224": 224, "timm:efficientformerv2_s0": 224,
    "timm:focalnet_tiny_srf": 224, "timm:halonet26t": 256, "timm:lambda_resnet26t": 256,
    "timm:levit_128s": 224, "timm:mobilevit_xxs": 256, "timm:mobilevitv2_050": 256,
    "timm:nextvit_small": 256,
}  # fmt: skip
# Every spatial output passes a LayerNorm, a computed weight, a gate, a sum with another branch or a
# split that is written down in the module: nothing of what is dead can go.
NOTHING_TO_REMOVE = {
    "torchvision:convnext_tiny", "torchvision:efficientnet_b0", "timm:convnext_atto",
    "timm:convnextv2_atto", "timm:eca_nfnet_l0", "timm:edgenext_xx_small", "timm:fastvit_t8",
    "timm:inception_next_atto", "timm:mambaout_femto", "timm:mixnet_s", "timm:nf_resnet26",
    "timm:repvgg_a0", "timm:skresnet18", "timm:tinynet_e", "torchvision:swin_t",
    "torchvision:swin_v2_t", "torchvision:vit_b_32", "timm:coatnet_nano_rw_224",
    "timm:dm_nfnet_f0", "timm:focalnet_tiny_srf", "timm:mobileone_s0",
}  # fmt: skip
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def damage(model, image):
    """Zero channels and kernels, then give BatchNorm shifts and the statistics of activations."""
    with torch.no_grad():
        for layer in xf.spatial_layers(model).values():
            outputs, inputs = layer.weight.shape[:2]
            if outputs > 8:
                layer.weight[torch.rand(outputs) < 0.3] = 0
            if inputs > 8:
                layer.weight[:, torch.rand(inputs) < 0.3] = 0
                layer.weight[torch.rand(outputs, inputs) < 0.5] = 0
        norms = [m for m in model.modules() if isinstance(m, NORMS) and m.running_mean is not None]
        for norm in norms:
            norm.momentum = None
            norm.reset_running_stats()
            if norm.affine:
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.normal_(0, 0.3)
        model.train()
        model(image)
        for norm in norms:
            moved = 0.05 * torch.randn_like(norm.running_mean)
            norm.running_mean += moved * (norm.running_var.sqrt() + 0.01)
        model.eval()


def first(output):
    if isinstance(output, dict):
        return output["out"]
    return output[0] if isinstance(output, (tuple, list)) else output


@pytest.mark.zoo
@pytest.mark.parametrize("spec", SPECS)
def test_pruned_equals_zeroed(spec):
    model = xf.create_model(spec).double()
    size = SIZES.get(spec, 96)
    shape = (3, 8, 64, 64) if spec.endswith("r3d_18") else (3, size, size)
    damage(model, torch.randn(2, *shape).double())
    zeroed = copy.deepcopy(model)
    settings = [
        (type(m), m.training, [p.requires_grad for p in m.parameters(recurse=False)])
        for m in model.modules()
    ]
    report = xf.prune_(model, torch.randn(1, *shape).double())
    assert settings == [
        (type(m), m.training, [p.requires_grad for p in m.parameters(recurse=False)])
        for m in model.modules()
    ]
    if spec not in NOTHING_TO_REMOVE:
        assert report.params_kept < 1
    larger = shape if spec in SIZES else (*shape[:-2], shape[-2] + 32, shape[-1])
    for probe in (shape, larger):
        images = torch.randn(2, *probe).double()
        with torch.no_grad():
            wanted, got = first(zeroed(images)), first(model(images))
        varies = (wanted[0] - wanted[1]).abs().max()
        assert varies > 1e-6 * wanted.abs().max(), "the network went silent: this proves nothing"
        assert (wanted - got).abs().max() <= 1e-6 * varies
    first(model(images[:1])).sum().backward()
