"""transformers: detectors, depth, speech and all that is built in a way of its own."""

import torch
import transformers as t

from foreign.network import Called, Network, images
from foreign.sources.transformers_small import ENCODER, ONES, RESNET, SWIN, WIDTHS

RESNET_BACKBONE = {**RESNET, "out_features": ["stage2", "stage3", "stage4"]}
DETR = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 10,
}


def detector(name, **options):
    """DETRs over a small ResNet of the same package."""

    def build():
        config = {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": t.ResNetConfig(**RESNET_BACKBONE),
            **DETR,
            **options,
        }
        return getattr(t, f"{name}ForObjectDetection")(getattr(t, f"{name}Config")(**config))

    return Network(f"{name}ForObjectDetection", build, images(), (64, 96))


def rt_detr(name):
    def build():
        config = getattr(t, f"{name}Config")(
            backbone_config=t.RTDetrResNetConfig(**RESNET_BACKBONE),
            encoder_in_channels=[32, 48, 64],
            encoder_hidden_dim=32,
            d_model=32,
            decoder_in_channels=[32, 32, 32],
            encoder_layers=1,
            decoder_layers=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            feat_strides=[8, 16, 32],
            num_queries=10,
            anchor_image_size=None,
        )
        return getattr(t, f"{name}ForObjectDetection")(config)

    return Network(f"{name}ForObjectDetection", build, images(), (64, 96))


def whisper():
    config = t.WhisperConfig(
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=20,
        max_source_positions=32,
        vocab_size=50,
        pad_token_id=0,
        decoder_start_token_id=1,
    )
    return t.WhisperModel(config)


def speech_to_text():
    config = t.Speech2TextConfig(
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocab_size=50,
        conv_channels=32,
        input_feat_per_channel=20,
        max_source_positions=64,
    )
    model = t.Speech2TextModel(config)
    return Called(model, ("input_features", "decoder_input_ids"))


def others():
    """Depth, super-resolution, key points and all that is built in a way of its own."""
    tokens = lambda batch: torch.randint(2, 49, (batch, 4))  # noqa: E731
    return [
        Network(
            "DPTForDepthEstimation",
            lambda: t.DPTForDepthEstimation(
                t.DPTConfig(
                    **{**ENCODER, "num_hidden_layers": 4},
                    backbone_out_indices=[0, 1, 2, 3],
                    neck_hidden_sizes=WIDTHS,
                    fusion_hidden_size=32,
                )
            ),
            images(),
            (64, 64),
        ),
        Network(
            "DPTForSemanticSegmentation",
            lambda: t.DPTForSemanticSegmentation(
                t.DPTConfig(
                    **{**ENCODER, "num_hidden_layers": 4},
                    backbone_out_indices=[0, 1, 2, 3],
                    neck_hidden_sizes=WIDTHS,
                    fusion_hidden_size=32,
                )
            ),
            images(),
            (64, 64),
        ),
        Network(
            "GLPNForDepthEstimation",
            lambda: t.GLPNForDepthEstimation(
                t.GLPNConfig(
                    hidden_sizes=WIDTHS,
                    depths=ONES,
                    num_attention_heads=[1, 2, 3, 4],
                    decoder_hidden_size=16,
                )
            ),
            images(),
        ),
        Network(
            "DepthAnythingForDepthEstimation",
            lambda: t.DepthAnythingForDepthEstimation(
                t.DepthAnythingConfig(
                    backbone_config=t.Dinov2Config(
                        **{**ENCODER, "num_hidden_layers": 4},
                        out_indices=[1, 2, 3, 4],
                        apply_layernorm=True,
                        reshape_hidden_states=False,
                    ),
                    patch_size=8,
                    reassemble_hidden_size=32,
                    neck_hidden_sizes=WIDTHS,
                    fusion_hidden_size=16,
                    head_hidden_size=16,
                )
            ),
            images(),
        ),
        Network(
            "ZoeDepthForDepthEstimation",
            lambda: t.ZoeDepthForDepthEstimation(
                t.ZoeDepthConfig(
                    backbone_config=t.BeitConfig(
                        **{**ENCODER, "num_hidden_layers": 4},
                        out_indices=[1, 2, 3, 4],
                        reshape_hidden_states=False,
                    ),
                    patch_size=8,
                    neck_hidden_sizes=WIDTHS,
                    fusion_hidden_size=16,
                    bottleneck_features=16,
                    bin_configurations=[
                        {"n_bins": 16, "min_depth": 0.001, "max_depth": 10.0, "name": "n"}
                    ],
                    num_relative_features=16,
                )
            ),
            images(),
            (64, 64),
        ),
        Network(
            "UperNetForSemanticSegmentation-convnext",
            lambda: t.UperNetForSemanticSegmentation(
                t.UperNetConfig(
                    backbone_config=t.ConvNextConfig(
                        hidden_sizes=WIDTHS,
                        depths=ONES,
                        out_features=["stage1", "stage2", "stage3", "stage4"],
                    ),
                    hidden_size=32,
                    auxiliary_in_channels=48,
                    auxiliary_channels=16,
                )
            ),
            images(),
        ),
        Network(
            "UperNetForSemanticSegmentation-resnet",
            lambda: t.UperNetForSemanticSegmentation(
                t.UperNetConfig(
                    backbone_config=t.ResNetConfig(
                        **{**RESNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
                    ),
                    hidden_size=32,
                    auxiliary_in_channels=48,
                    auxiliary_channels=16,
                )
            ),
            images(),
        ),
        Network(
            "MaskFormerForInstanceSegmentation",
            lambda: t.MaskFormerForInstanceSegmentation(
                t.MaskFormerConfig(
                    backbone_config=t.SwinConfig(
                        **SWIN, out_features=["stage1", "stage2", "stage3", "stage4"]
                    ),
                    decoder_config=t.DetrConfig(
                        **DETR,
                        use_timm_backbone=False,
                        use_pretrained_backbone=False,
                        backbone=None,
                        backbone_config=t.ResNetConfig(**RESNET_BACKBONE),
                    ),
                    fpn_feature_size=32,
                    mask_feature_size=32,
                )
            ),
            images(),
        ),
        Network(
            "Mask2FormerForUniversalSegmentation",
            lambda: t.Mask2FormerForUniversalSegmentation(
                t.Mask2FormerConfig(
                    backbone_config=t.SwinConfig(
                        **SWIN, out_features=["stage1", "stage2", "stage3", "stage4"]
                    ),
                    feature_size=32,
                    mask_feature_size=32,
                    hidden_dim=32,
                    encoder_feedforward_dim=64,
                    dim_feedforward=64,
                    encoder_layers=1,
                    decoder_layers=2,
                    num_attention_heads=4,
                    num_queries=10,
                )
            ),
            images(),
            (128, 192),
        ),
        Network(
            "DetrForSegmentation",
            lambda: t.DetrForSegmentation(
                t.DetrConfig(
                    **DETR,
                    use_timm_backbone=False,
                    use_pretrained_backbone=False,
                    backbone=None,
                    backbone_config=t.ResNetConfig(
                        **{**RESNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
                    ),
                )
            ),
            images(),
        ),
        Network(
            "YolosForObjectDetection",
            lambda: t.YolosForObjectDetection(
                t.YolosConfig(**{**ENCODER, "image_size": [64, 64]}, num_detection_tokens=5)
            ),
            images(),
        ),
        Network(
            "SuperPointForKeypointDetection",
            lambda: t.SuperPointForKeypointDetection(
                t.SuperPointConfig(
                    encoder_hidden_sizes=[16, 16, 32, 32],
                    decoder_hidden_size=32,
                    keypoint_decoder_dim=65,
                    descriptor_decoder_dim=32,
                )
            ),
            images(),
            (64, 96),
        ),
        Network(
            "Swin2SRForImageSuperResolution",
            lambda: t.Swin2SRForImageSuperResolution(
                t.Swin2SRConfig(
                    image_size=32, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
                )
            ),
            images(),
            (32, 48),
        ),
        Network(
            "VitMatteForImageMatting",
            lambda: t.VitMatteForImageMatting(
                t.VitMatteConfig(
                    backbone_config=t.VitDetConfig(
                        hidden_size=32,
                        num_hidden_layers=2,
                        num_attention_heads=4,
                        image_size=64,
                        patch_size=16,
                        num_channels=4,
                        out_features=["stage2"],
                    ),
                    hidden_size=32,
                    convstream_hidden_sizes=[16, 16, 32],
                    fusion_hidden_sizes=[32, 16, 16, 16],
                )
            ),
            images(4),
            (64, 64),
        ),
        Network(
            "CLIPVisionModel",
            lambda: t.CLIPVisionModel(t.CLIPVisionConfig(**ENCODER)),
            images(),
            (64, 64),
        ),
        Network(
            "SiglipVisionModel",
            lambda: t.SiglipVisionModel(t.SiglipVisionConfig(**ENCODER)),
            images(),
            (64, 64),
        ),
        Network(
            "SamVisionEncoder",
            lambda: t.SamVisionModel(
                t.SamVisionConfig(
                    hidden_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    image_size=64,
                    patch_size=8,
                    output_channels=16,
                    window_size=4,
                    global_attn_indexes=[1],
                    mlp_dim=64,
                )
            ),
            images(),
            (64, 64),
        ),
        Network(
            "VideoMAEForVideoClassification",
            lambda: t.VideoMAEForVideoClassification(t.VideoMAEConfig(**ENCODER, num_frames=4)),
            lambda b, s: (torch.randn(b, 4, 3, s, s),),
            (64, 64),
        ),
        Network(
            "VivitForVideoClassification",
            lambda: t.VivitForVideoClassification(
                t.VivitConfig(
                    hidden_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    intermediate_size=64,
                    image_size=64,
                    num_frames=4,
                    tubelet_size=[2, 8, 8],
                )
            ),
            lambda b, s: (torch.randn(b, 4, 3, s, s),),
            (64, 64),
        ),
        Network(
            "WhisperModel",
            lambda: Called(whisper(), ("input_features", "decoder_input_ids")),
            lambda b, s: (torch.randn(b, 20, 64), tokens(b)),
            (64, 64),
        ),
        Network(
            "Speech2TextModel",
            speech_to_text,
            lambda b, s: (torch.randn(b, s, 20), tokens(b)),
            (64, 96),
        ),
        Network(
            "EncodecModel",
            lambda: t.EncodecModel(
                t.EncodecConfig(
                    num_filters=8,
                    hidden_size=32,
                    codebook_dim=32,
                    codebook_size=16,
                    upsampling_ratios=[4, 2],
                    target_bandwidths=[48.0],
                )
            ),
            lambda b, s: (torch.randn(b, 1, 16 * s),),
            (64, 96),
        ),
        Network(
            "DacModel",
            lambda: t.DacModel(
                t.DacConfig(
                    encoder_hidden_size=8,
                    downsampling_ratios=[2, 4],
                    decoder_hidden_size=32,
                    upsampling_ratios=[4, 2],
                    n_codebooks=2,
                    codebook_size=16,
                    codebook_dim=4,
                )
            ),
            lambda b, s: (torch.randn(b, 1, 16 * s),),
            (64, 96),
        ),
        Network(
            "VitsHifiGan",
            lambda: t.SpeechT5HifiGan(
                t.SpeechT5HifiGanConfig(model_in_dim=20, upsample_initial_channel=32)
            ),
            lambda b, s: (torch.randn(b, s, 20),),
            (16, 24),
        ),
        Network(
            "UnivNetModel",
            lambda: t.UnivNetModel(
                t.UnivNetConfig(
                    model_in_channels=16,
                    model_hidden_channels=16,
                    num_mel_bins=20,
                    kernel_predictor_hidden_channels=16,
                )
            ),
            lambda b, s: (torch.randn(b, s, 20), torch.randn(b, s, 16)),
            (16, 24),
        ),
    ]


def detectors():
    return [
        detector("Detr"),
        detector("ConditionalDetr"),
        detector("TableTransformer"),
        detector("DeformableDetr", num_feature_levels=3),
        detector("DabDetr"),
        rt_detr("RTDetr"),
        rt_detr("RTDetrV2"),
    ]
