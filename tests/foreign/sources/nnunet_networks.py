"""dynamic-network-architectures: the U-Nets of nnU-Net, and its other networks."""

from dynamic_network_architectures.architectures import resnet, unet, vgg
from torch import nn

from foreign.network import Network, images

STAGES = 4
OTHERS = (
    ("ResNet18", 1, False), ("ResNet18", 2, False), ("ResNet18", 3, False), ("ResNet18", 2, True),
    ("ResNet50bn", 2, False), ("ResNet50bn", 2, True), ("ResNet18_CIFAR", 2, False),
    ("ResNet50bn_CIFAR", 2, False), ("VGG16", 1, False), ("VGG16", 2, False),
    ("VGG16_cifar", 2, False), ("VGG19_cifar", 1, False),
)  # fmt: skip
UNETS = ("PlainConvUNet", "ResidualEncoderUNet", "ResidualUNet")


def convolution(dims):
    return {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]


def norm(kind, dims):
    return {
        "instance": {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d},
        "batch": {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d},
    }[kind][dims]


def build_unet(name, dims, kind, deep):
    per_stage = "n_conv_per_stage" if name == "PlainConvUNet" else "n_blocks_per_stage"
    return getattr(unet, name)(
        input_channels=1, n_stages=STAGES, features_per_stage=(16, 32, 48, 64),
        conv_op=convolution(dims), kernel_sizes=3, strides=(1, 2, 2, 2), **{per_stage: 2},
        num_classes=3, n_conv_per_stage_decoder=1, conv_bias=True, norm_op=norm(kind, dims),
        norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=deep,
    )  # fmt: skip


def build_other(name, dims, gated):
    """ResNets and VGGs of one to three dimensions, with squeeze and excitation or without."""
    if name.startswith("VGG"):
        return getattr(vgg, name)(3, 1, dims)
    return getattr(resnet, name)(3, 1, dims, squeeze_excitation=gated)


def networks():
    unets = [
        Network(
            f"{name}-{dims}d-{kind}" + "-deep" * deep,
            lambda a=(name, dims, kind, deep): build_unet(*a),
            images(1, dims=dims),
            (32, 48) if dims < 3 else (16, 24),
        )
        for name in UNETS
        if hasattr(unet, name)
        for dims in (1, 2, 3)
        for kind in ("instance", "batch")
        for deep in (False, True)
    ]
    others = [
        Network(
            f"{name}-{dims}d" + "-se" * gated,
            lambda a=(name, dims, gated): build_other(*a),
            images(1, dims=dims),
            (64, 96) if dims < 3 else (32, 48),
        )
        for name, dims, gated in OTHERS
    ]
    return unets + others
