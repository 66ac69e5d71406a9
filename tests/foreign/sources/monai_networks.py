"""MONAI: networks of two and three dimensions for medical images."""

import torch
from monai.networks import nets

from foreign.network import Network, images

LEVELS = {"channels": (16, 32, 48, 64), "strides": (2, 2, 2)}
SMALL_ATTENTION = {"hidden_size": 96, "mlp_dim": 192, "num_heads": 4}
DIFFUSION = {
    "channels": (16, 32, 32),
    "norm_num_groups": 8,
    "num_res_blocks": 1,
    "attention_levels": (False, False, True),
}


def io(dims, inputs=1, outputs=2):
    return {"spatial_dims": dims, "in_channels": inputs, "out_channels": outputs}


def sized(dims):
    """The image of networks that are built for one."""
    return (32,) * dims if dims == 3 else (64,) * dims


def for_dims(d):
    """Name → how to build it, for images of `d` dimensions."""
    kernels = {
        "kernel_size": [3] * 4,
        "strides": [1, 2, 2, 2],
        "upsample_kernel_size": [2] * 3,
        "filters": (16, 32, 48, 64),
    }
    shape = (1, *sized(d))
    return {
        "UNet": lambda: nets.UNet(**io(d), **LEVELS),
        "UNet-residual": lambda: nets.UNet(**io(d), **LEVELS, num_res_units=2),
        "UNet-batch": lambda: nets.UNet(
            **io(d), **LEVELS, num_res_units=1, norm="batch", act="relu"
        ),
        "BasicUNet": lambda: nets.BasicUNet(**io(d), features=(16, 16, 32, 48, 64, 16)),
        "BasicUNet-interpolated": lambda: nets.BasicUNet(
            **io(d), features=(16, 16, 32, 48, 64, 16), norm="batch", upsample="nontrainable"
        ),
        "BasicUNet-shuffled": lambda: nets.BasicUNet(
            **io(d), features=(16, 16, 32, 48, 64, 16), upsample="pixelshuffle"
        ),
        "BasicUNetPlusPlus": lambda: nets.BasicUNetPlusPlus(
            **io(d), features=(16, 16, 32, 48, 64, 16)
        ),
        "SegResNet": lambda: nets.SegResNet(**io(d), init_filters=16),
        "SegResNet-batch": lambda: nets.SegResNet(**io(d), init_filters=16, norm="batch"),
        "SegResNetDS": lambda: nets.SegResNetDS(**io(d), init_filters=16, dsdepth=2),
        "SegResNetDS2": lambda: nets.SegResNetDS2(**io(d), init_filters=16),
        "SegResNetVAE": lambda: nets.SegResNetVAE(sized(d), **io(d), init_filters=16),
        "DynUNet": lambda: nets.DynUNet(**io(d), **kernels),
        "DynUNet-residual": lambda: nets.DynUNet(**io(d), **kernels, res_block=True),
        "DynUNet-deep": lambda: nets.DynUNet(
            **io(d), **kernels, deep_supervision=True, norm_name="batch"
        ),
        "VNet": lambda: nets.VNet(**io(d), dropout_dim=d),
        "AttentionUnet": lambda: nets.AttentionUnet(**io(d), **LEVELS),
        "AHNet": lambda: nets.AHNet(**io(d), psp_block_num=2),
        "UNETR": lambda: nets.UNETR(1, 2, sized(d), spatial_dims=d, **SMALL_ATTENTION),
        "MedNeXt": lambda: nets.MedNeXt(**io(d), init_filters=16, kernel_size=3),
        "MedNeXt-grn": lambda: nets.MedNeXt(
            **io(d),
            init_filters=16,
            kernel_size=3,
            global_resp_norm=True,
            use_residual_connection=True,
            deep_supervision=True,
        ),
        "DenseNet": lambda: nets.DenseNet(**io(d), block_config=(3, 4, 4), growth_rate=16),
        "DenseNet-instance": lambda: nets.DenseNet(**io(d), block_config=(3, 4), norm="instance"),
        "ResNet10": lambda: nets.resnet10(spatial_dims=d, n_input_channels=1, num_classes=3),
        "ResNet18": lambda: nets.resnet18(spatial_dims=d, n_input_channels=1, num_classes=3),
        "SENet": lambda: nets.SENet(
            spatial_dims=d,
            in_channels=1,
            block="se_bottleneck",
            layers=(1, 1, 1, 1),
            groups=4,
            reduction=16,
            num_classes=3,
            inplanes=32,
        ),
        "SEResNet50": lambda: nets.SEResNet50(
            layers=(1, 1, 1, 1), spatial_dims=d, in_channels=1, num_classes=3
        ),
        "SEResNext50": lambda: nets.SEResNext50(
            layers=(1, 1, 1, 1), spatial_dims=d, in_channels=1, num_classes=3
        ),
        "EfficientNetBN": lambda: nets.EfficientNetBN(
            "efficientnet-b0", pretrained=False, spatial_dims=d, in_channels=1, num_classes=3
        ),
        "FlexibleUNet": lambda: nets.FlexibleUNet(1, 2, "efficientnet-b0", spatial_dims=d),
        "FlexibleUNet-resnet": lambda: nets.FlexibleUNet(1, 2, "resnet18", spatial_dims=d),
        "AutoEncoder": lambda: nets.AutoEncoder(
            **io(d, outputs=1), channels=(16, 32, 64), strides=(2, 2, 2)
        ),
        "AutoEncoder-between": lambda: nets.AutoEncoder(
            **io(d, outputs=1),
            channels=(16, 32),
            strides=(2, 2),
            inter_channels=[32, 32],
            num_res_units=2,
            norm="batch",
        ),
        "VarAutoEncoder": lambda: nets.VarAutoEncoder(
            d,
            shape,
            1,
            latent_size=8,
            channels=(16, 32),
            strides=(2, 2),
            use_mean_at_inference=True,
        ),
        "HighResNet": lambda: nets.HighResNet(**io(d)),
        "RegUNet": lambda: nets.RegUNet(d, 1, num_channel_initial=16, depth=3, out_channels=d),
        "RegUNet-concatenated": lambda: nets.RegUNet(
            d, 1, num_channel_initial=16, depth=3, out_channels=d, concat_skip=True, pooling=False
        ),
        "LocalNet": lambda: nets.LocalNet(d, 1, 16, extract_levels=(0, 1, 2), out_channels=d),
        "GlobalNet": lambda: nets.GlobalNet(list(sized(d)), d, 1, num_channel_initial=16, depth=3),
        "Discriminator": lambda: nets.Discriminator(
            shape, channels=(16, 32, 48), strides=(2, 2, 2)
        ),
        "Critic": lambda: nets.Critic(shape, channels=(16, 32, 48), strides=(2, 2, 2)),
        "Classifier": lambda: nets.Classifier(shape, 3, channels=(16, 32, 48), strides=(2, 2, 2)),
        "Regressor": lambda: nets.Regressor(shape, (2,), channels=(16, 32, 48), strides=(2, 2, 2)),
        "PatchDiscriminator": lambda: nets.PatchDiscriminator(d, 16, 1, num_layers_d=2),
        "MultiScalePatchDiscriminator": lambda: nets.MultiScalePatchDiscriminator(
            2, 2, d, 16, 1, minimum_size_im=16
        ),
        "VQVAE": lambda: nets.VQVAE(
            d,
            1,
            1,
            channels=(16, 32),
            num_res_layers=1,
            num_res_channels=(16, 32),
            downsample_parameters=((2, 4, 1, 1),) * 2,
            upsample_parameters=((2, 4, 1, 1, 0),) * 2,
            num_embeddings=16,
            embedding_dim=8,
            ddp_sync=False,
        ),
        "ViT": lambda: nets.ViT(
            1, sized(d), 8, num_layers=2, spatial_dims=d, classification=True, **SMALL_ATTENTION
        ),
        "ViTAutoEnc": lambda: nets.ViTAutoEnc(
            1, sized(d), 16, num_layers=2, spatial_dims=d, **SMALL_ATTENTION
        ),
    }


def noisy(*, dims, conditions=0):
    """An image with a time, and a picture to steer by if there is one."""

    def make(batch, size):
        image = torch.randn(batch, 1, *(size,) * dims)
        return (image, torch.randint(0, 1000, (batch,)), *([torch.randn_like(image)] * conditions))

    return make


def others():
    """Those of two dimensions, or three, only, and those that take more than an image."""
    return [
        Network("HoVerNet", lambda: nets.HoVerNet(), images(), (256, 256), single=True),
        Network("Quicknat", lambda: nets.Quicknat(4, num_filters=16), images(1)),
        Network("DAF3D", lambda: nets.DAF3D(1, 2), images(1, dims=3), (32, 48)),
        Network(
            "Generator",
            lambda: nets.Generator((8,), (16, 4, 4), (32, 16, 1), (2, 2, 1)),
            lambda batch, size: (torch.randn(batch, 8),),
        ),
        Network(
            "TorchVisionFCModel", lambda: nets.TorchVisionFCModel("resnet18"), images(), (224, 256)
        ),
        Network(
            "AutoencoderKL-2d", lambda: nets.AutoencoderKL(2, **DIFFUSION), images(1), (32, 48)
        ),
        Network(
            "AutoencoderKL-3d",
            lambda: nets.AutoencoderKL(3, **DIFFUSION),
            images(1, dims=3),
            (16, 24),
        ),
        *[
            Network(
                f"DiffusionModelUNet-{d}d",
                lambda d=d: nets.DiffusionModelUNet(d, 1, 1, **DIFFUSION),
                noisy(dims=d),
                (32, 48) if d == 2 else (16, 24),
            )
            for d in (2, 3)
        ],
        *[
            Network(
                f"VoxelMorphUNet-{d}d",
                lambda d=d: nets.VoxelMorphUNet(
                    d, 2, 16, channels=(16, 16, 32, 32, 32, 32), final_conv_channels=(16, 16)
                ),
                images(2, dims=d),
                (32, 16) if d == 3 else (64, 96),
            )
            for d in (2, 3)
        ],
        *[
            Network(
                f"SwinUNETR{'-v2' * second}-{d}d",
                lambda d=d, second=second: nets.SwinUNETR(
                    1, 2, feature_size=12, spatial_dims=d, use_v2=second
                ),
                images(1, dims=d),
                (64, 96 if d == 2 else 64),
                single=d == 3,
            )
            for d in (2, 3)
            for second in (False, True)
        ],
        Network(
            "VoxelMorph",
            lambda: nets.VoxelMorph(),
            lambda batch, size: (
                torch.randn(batch, 1, 32, 32, 32),
                torch.randn(batch, 1, 32, 32, 32),
            ),
        ),
    ]


def networks():
    return [
        Network(f"{name}-{dims}d", build, images(1, dims=dims), (32, 16) if dims == 3 else (64, 96))
        for dims in (2, 3)
        for name, build in for_dims(dims).items()
    ] + others()
