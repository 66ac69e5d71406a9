"""One network of each family, and what tests need to run any of them."""

from pathlib import Path

import torch
from torch import nn

import explainfix as xf

SPECS = Path(__file__).with_name("networks.txt").read_text().split()
SIZES = {  # of the image, where a network insists on one
    "torchvision:inception_v3": 299, "torchvision:maxvit_t": 224, "torchvision:swin_t": 224,
    "torchvision:swin_v2_t": 224, "torchvision:vit_b_32": 224, "timm:botnet26t_256": 256,
    "timm:coatnet_nano_rw_224": 224, "timm:efficientformerv2_s0": 224,
    "timm:focalnet_tiny_srf": 224, "timm:halonet26t": 256, "timm:lambda_resnet26t": 256,
    "timm:levit_128s": 224, "timm:mobilevit_xxs": 256, "timm:mobilevitv2_050": 256,
    "timm:nextvit_small": 256,
}  # fmt: skip
LEAST = {"timm:inception_resnet_v2": 96}  # where a smaller one vanishes


def image_shape(spec, size):
    """The shape of an image, `size` pixels wide if the network lets us choose."""
    size = SIZES.get(spec, max(size, LEAST.get(spec, 0)))
    return (3, 8, 64, 64) if spec.endswith("r3d_18") else (3, size, size)


def first(output):
    """The main output of whatever a network returns."""
    if isinstance(output, dict):
        return output["out"]
    return output[0] if isinstance(output, (tuple, list)) else output


def without_chance(model):
    """Dropout of any kind draws as many numbers as there are channels: switch it off."""
    for module in model.modules():
        for name in ("p", "drop_prob", "drop_rate", "dropout", "attn_dropout", "stochastic_depth"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@torch.no_grad()
def zero_some(model):
    """Zero 30% of output channels, 30% of input channels, and half of the kernels left."""
    for layer in xf.spatial_layers(model).values():
        outputs, inputs = layer.weight.shape[:2]
        if outputs > 8:
            layer.weight[torch.rand(outputs) < 0.3] = 0
        if inputs > 8:
            layer.weight[:, torch.rand(inputs) < 0.3] = 0
            layer.weight[torch.rand(outputs, inputs) < 0.5] = 0


@torch.no_grad()
def shift_norms(model, inputs, *, whole=True):
    """Give BatchNorm shifts, the statistics of activations, and means that moved since.

    The statistics are those of training: of the whole model, or of its norms alone.
    """
    norms = [m for m in model.modules() if isinstance(m, NORMS) and m.running_mean is not None]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0, 0.3)
    for module in [model] if whole else norms:
        module.train()
    model(*inputs)
    for norm in norms:
        moved = 0.05 * torch.randn_like(norm.running_mean)
        norm.running_mean += moved * (norm.running_var.sqrt() + 0.01)
    model.eval()
