"""diffusers: the networks of diffusion models, small."""

import diffusers
import torch

from foreign.network import Network, images

WIDTHS = (16, 32)
GROUPS = 8
ENCODER = {
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "block_out_channels": WIDTHS,
    "norm_num_groups": GROUPS,
}
CONDITION = {
    "block_out_channels": WIDTHS,
    "norm_num_groups": GROUPS,
    "cross_attention_dim": 16,
    "attention_head_dim": 8,
    "layers_per_block": 1,
}


def noisy(channels, *, dims=2, text=0, picture=0):
    """An image with a time, words to steer by, and a picture, as far as they are wanted."""

    def make(batch, size):
        inputs = [torch.randn(batch, channels, *(size,) * dims), torch.randint(0, 1000, (batch,))]
        if text:
            inputs.append(torch.randn(batch, 5, text))
        if picture:
            inputs.append(torch.randn(batch, picture, 8 * size, 8 * size))
        return tuple(inputs)

    return make


def video(channels=3, frames=5):
    return lambda batch, size: (torch.randn(batch, channels, frames, size, size),)


def unet2d(**options):
    return lambda: diffusers.UNet2DModel(
        block_out_channels=WIDTHS,
        norm_num_groups=GROUPS,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        **options,
    )


def conditioned(**options):
    return lambda: diffusers.UNet2DConditionModel(
        **{
            **CONDITION,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
            **options,
        }
    )


def unet1d(**options):
    return lambda: diffusers.UNet1DModel(
        **{
            "block_out_channels": (32, 32, 64),
            "sample_size": 64,
            "extra_in_channels": 64,
            **options,
        }
    )


def plain(kind, **options):
    return lambda: getattr(diffusers, kind)(**options)


def networks():
    lines = lambda batch, size: (torch.randn(batch, 2, 8 * size), torch.randint(0, 9, (batch,)))  # noqa: E731
    return [
        Network("UNet2DModel", unet2d(), noisy(3), (32, 48)),
        Network(
            "UNet2DModel-resnet",
            unet2d(downsample_type="resnet", upsample_type="resnet"),
            noisy(3),
            (32, 48),
        ),
        Network(
            "UNet2DModel-scale-shift",
            unet2d(resnet_time_scale_shift="scale_shift"),
            noisy(3),
            (32, 48),
        ),
        Network("UNet2DModel-fourier", unet2d(time_embedding_type="fourier"), noisy(3), (32, 48)),
        Network(
            "UNet2DModel-simple",
            plain(
                "UNet2DModel",
                block_out_channels=WIDTHS,
                norm_num_groups=GROUPS,
                down_block_types=("DownBlock2D",) * 2,
                up_block_types=("UpBlock2D",) * 2,
                add_attention=False,
            ),
            noisy(3),
            (32, 48),
        ),
        Network(
            "UNet2DModel-skip",
            plain(
                "UNet2DModel",
                block_out_channels=(32, 64),
                norm_num_groups=GROUPS,
                down_block_types=("SkipDownBlock2D", "AttnSkipDownBlock2D"),
                time_embedding_type="fourier",
                up_block_types=("AttnSkipUpBlock2D", "SkipUpBlock2D"),
            ),
            noisy(3),
            (32, 48),
        ),
        Network("UNet2DConditionModel", conditioned(), noisy(4, text=16), (16, 24)),
        Network(
            "UNet2DConditionModel-linear",
            conditioned(use_linear_projection=True),
            noisy(4, text=16),
            (16, 24),
        ),
        Network(
            "UNet2DConditionModel-scale-shift",
            conditioned(resnet_time_scale_shift="scale_shift"),
            noisy(4, text=16),
            (16, 24),
        ),
        Network(
            "UNet2DConditionModel-simple",
            conditioned(
                down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
                up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
                mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            ),
            noisy(4, text=16),
            (16, 24),
        ),
        Network("UNet1DModel", unet1d(), lines, (32, 48)),
        Network(
            "UNet3DConditionModel",
            plain(
                "UNet3DConditionModel",
                **CONDITION,
                down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
            ),
            lambda b, s: (
                torch.randn(b, 4, 3, s, s),
                torch.randint(0, 9, (b,)),
                torch.randn(b, 5, 16),
            ),
            (16, 24),
        ),
        Network(
            "ControlNetModel",
            plain(
                "ControlNetModel",
                **CONDITION,
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                conditioning_embedding_out_channels=(16, 32, 32, 32),
            ),
            noisy(4, text=16, picture=3),
            (8, 16),
        ),
        *[
            Network(
                f"T2IAdapter-{kind}",
                plain("T2IAdapter", channels=[16, 32, 32, 32], adapter_type=kind),
                images(),
                (128, 192) if "xl" in kind else (64, 128),
            )
            for kind in ("full_adapter", "full_adapter_xl", "light_adapter")
        ],
        Network(
            "T2IAdapter-grey",
            plain("T2IAdapter", in_channels=1, channels=[16, 32, 32, 32]),
            images(1),
            (64, 128),
        ),
        Network("VQModel", plain("VQModel", **ENCODER), images(), (32, 48)),
        Network(
            "VQModel-spatial",
            plain(
                "VQModel",
                **{**ENCODER, "block_out_channels": (32, 64), "norm_num_groups": 32},
                norm_type="spatial",
            ),
            images(),
            (32, 48),
        ),
        Network("AutoencoderKL", plain("AutoencoderKL", **ENCODER), images(), (32, 48)),
        Network(
            "AutoencoderKL-plain",
            plain(
                "AutoencoderKL",
                **ENCODER,
                mid_block_add_attention=False,
                use_quant_conv=False,
                use_post_quant_conv=False,
            ),
            images(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLFlux2",
            plain("AutoencoderKLFlux2", **{**ENCODER, "latent_channels": 8}),
            images(),
            (32, 48),
        ),
        Network(
            "AsymmetricAutoencoderKL",
            plain(
                "AsymmetricAutoencoderKL",
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                down_block_out_channels=WIDTHS,
                up_block_out_channels=WIDTHS,
                norm_num_groups=GROUPS,
            ),
            images(),
            (32, 48),
        ),
        Network("AutoencoderTiny", plain("AutoencoderTiny"), images()),
        Network(
            "AutoencoderDC",
            plain(
                "AutoencoderDC",
                latent_channels=8,
                attention_head_dim=8,
                encoder_block_types=("ResBlock", "EfficientViTBlock"),
                decoder_block_types=("ResBlock", "EfficientViTBlock"),
                encoder_block_out_channels=(16, 32),
                decoder_block_out_channels=(16, 32),
                encoder_layers_per_block=(1, 1),
                decoder_layers_per_block=(1, 1),
                encoder_qkv_multiscales=((), (5,)),
                decoder_qkv_multiscales=((), (5,)),
            ),
            images(),
        ),
        Network(
            "AutoencoderOobleck",
            plain(
                "AutoencoderOobleck",
                encoder_hidden_size=16,
                downsampling_ratios=[2, 4],
                channel_multiples=[1, 2],
                decoder_channels=16,
                decoder_input_channels=8,
            ),
            lambda b, s: (torch.randn(b, 2, 16 * s),),
        ),
        Network(
            "AutoencoderKLTemporalDecoder",
            plain(
                "AutoencoderKLTemporalDecoder",
                block_out_channels=(32, 64),
                down_block_types=("DownEncoderBlock2D",) * 2,
            ),
            images(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLCogVideoX",
            plain(
                "AutoencoderKLCogVideoX",
                block_out_channels=(16, 32, 32, 32),
                norm_num_groups=GROUPS,
                layers_per_block=1,
            ),
            video(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLWan",
            plain("AutoencoderKLWan", base_dim=8, decoder_base_dim=8, z_dim=16, num_res_blocks=1),
            video(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLQwenImage",
            plain("AutoencoderKLQwenImage", base_dim=8, num_res_blocks=1),
            video(frames=1),
            (32, 48),
        ),
        Network(
            "AutoencoderKLHunyuanVideo",
            plain(
                "AutoencoderKLHunyuanVideo",
                block_out_channels=(16, 16, 32, 32),
                norm_num_groups=GROUPS,
                layers_per_block=1,
            ),
            video(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLLTXVideo",
            plain(
                "AutoencoderKLLTXVideo",
                latent_channels=16,
                block_out_channels=(16, 16, 32, 32),
                decoder_block_out_channels=(16, 16, 32, 32),
                layers_per_block=(1,) * 5,
                decoder_layers_per_block=(1,) * 5,
            ),
            video(frames=9),
            (64, 96),
        ),
        Network(
            "AutoencoderKLMagvit",
            plain(
                "AutoencoderKLMagvit",
                block_out_channels=(16, 16, 32, 32),
                norm_num_groups=GROUPS,
                layers_per_block=1,
            ),
            video(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLHunyuanImage",
            plain(
                "AutoencoderKLHunyuanImage",
                in_channels=3,
                out_channels=3,
                latent_channels=8,
                block_out_channels=(32, 64),
                layers_per_block=1,
                spatial_compression_ratio=2,
                sample_size=32,
            ),
            images(),
            (32, 48),
        ),
        Network(
            "AutoencoderKLKVAE",
            plain(
                "AutoencoderKLKVAE",
                channels=32,
                ch_mult=(1, 2),
                num_enc_blocks=1,
                num_dec_blocks=1,
                z_channels=4,
            ),
            images(),
            (32, 48),
        ),
        Network(
            "DiTTransformer2DModel",
            plain(
                "DiTTransformer2DModel", num_attention_heads=2, attention_head_dim=16, num_layers=2
            ),
            lambda b, s: (
                torch.randn(b, 4, s, s),
                torch.randint(0, 9, (b,)),
                torch.randint(0, 9, (b,)),
            ),
            (32, 32),
        ),
    ]
