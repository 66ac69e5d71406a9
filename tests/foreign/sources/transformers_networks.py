"""transformers: vision and speech networks from small configurations of our own."""

import torch
import transformers as t

from foreign.network import Network, images
from foreign.sources.transformers_small import ENCODER, ONES, RESNET, SPEECH, SWIN, WIDTHS
from foreign.sources.transformers_special import detectors, others


def wave(batch, size):
    return (torch.randn(batch, 40 * size),)


# Name → its configuration's options. The network is the class <name> + the task.
CLASSIFIERS = {
    "ResNet": RESNET,
    "ResNet-basic": {**RESNET, "layer_type": "basic"},
    "RegNet": {**RESNET, "groups_width": 8},
    "RegNet-x": {**RESNET, "groups_width": 8, "layer_type": "x"},
    "Bit": {
        "embedding_size": 16,
        "hidden_sizes": [32, 64, 96, 128],
        "depths": ONES,
        "num_groups": 8,
    },
    "Bit-bottleneck": {
        "embedding_size": 16,
        "hidden_sizes": [32, 64, 96, 128],
        "depths": ONES,
        "num_groups": 8,
        "layer_type": "bottleneck",
    },
    "MobileNetV1": {"depth_multiplier": 0.25, "image_size": 64},
    "MobileNetV2": {"depth_multiplier": 0.5, "image_size": 64},
    "EfficientNet": {
        "image_size": 64,
        "width_coefficient": 0.5,
        "depth_coefficient": 0.5,
        "hidden_dim": 640,
    },
    "ConvNext": {"hidden_sizes": WIDTHS, "depths": ONES},
    "ConvNextV2": {"hidden_sizes": WIDTHS, "depths": ONES},
    "PoolFormer": {"hidden_sizes": WIDTHS, "depths": ONES},
    "Levit": {
        "image_size": 64,
        "hidden_sizes": [32, 48, 64],
        "depths": [1, 1, 1],
        "num_attention_heads": [2, 3, 4],
        "key_dim": [8, 8, 8],
    },
    "Cvt": {"embed_dim": [16, 32, 48], "depth": [1, 2, 3], "num_heads": [1, 2, 3]},
    "MobileViT": {
        "hidden_sizes": [24, 32, 40],
        "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64],
        "image_size": 64,
    },
    "MobileViTV2": {"width_multiplier": 0.5, "image_size": 64},
    "Segformer": {
        "hidden_sizes": WIDTHS,
        "depths": ONES,
        "num_attention_heads": [1, 2, 3, 4],
        "decoder_hidden_size": 32,
    },
    "Pvt": {
        "image_size": 64,
        "hidden_sizes": WIDTHS,
        "depths": ONES,
        "num_attention_heads": [1, 2, 3, 4],
    },
    "PvtV2": {
        "image_size": 64,
        "hidden_sizes": WIDTHS,
        "depths": ONES,
        "num_attention_heads": [1, 2, 3, 4],
    },
    "PvtV2-linear": {
        "image_size": 64,
        "hidden_sizes": WIDTHS,
        "depths": ONES,
        "num_attention_heads": [1, 2, 3, 4],
        "linear_attention": True,
    },
    "SwiftFormer": {"image_size": 64, "depths": ONES, "embed_dims": WIDTHS},
    "FocalNet": {"image_size": 64, "embed_dim": 16, "depths": ONES},
    "TextNet": {},
    "HGNetV2": {},
    "PPLCNet": {},
    "Swin": SWIN,
    "Swinv2": SWIN,
    "DonutSwin": SWIN,
    "ViT": ENCODER,
    "DeiT": ENCODER,
    "Beit": ENCODER,
    "Data2VecVision": ENCODER,
    "ViTMSN": ENCODER,
    "Dinov2": ENCODER,
    "Dinov2WithRegisters": ENCODER,
    "IJepa": ENCODER,
    "Hiera": {"image_size": [64, 64], "embed_dim": 16, "depths": ONES, "num_heads": [1, 2, 4, 8]},
}
SEGMENTERS = {
    "Segformer": CLASSIFIERS["Segformer"],
    "MobileNetV2": {"depth_multiplier": 0.5, "image_size": 64, "output_stride": 16},
    "MobileViT": CLASSIFIERS["MobileViT"],
    "MobileViTV2": CLASSIFIERS["MobileViTV2"],
    "Beit": {**ENCODER, "num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "pool_scales": [1, 2]},
    "Data2VecVision": {
        **ENCODER,
        "num_hidden_layers": 4,
        "out_indices": [1, 2, 3, 4],
        "pool_scales": [1, 2],
    },
}
BACKBONES = {
    name: CLASSIFIERS[name]
    for name in (
        "ResNet",
        "Bit",
        "ConvNext",
        "ConvNextV2",
        "HGNetV2",
        "PvtV2",
        "Swin",
        "TextNet",
        "Dinov2",
    )
}
SPEAKERS = {
    "Wav2Vec2": SPEECH,
    "Wav2Vec2-stable": {**SPEECH, "do_stable_layer_norm": True, "feat_extract_norm": "layer"},
    "Hubert": SPEECH,
    "WavLM": SPEECH,
    "UniSpeech": SPEECH,
    "UniSpeechSat": SPEECH,
    "Data2VecAudio": {**SPEECH, "conv_pos_kernel_size": 5, "num_conv_pos_embeddings": 3},
    "SEW": {**SPEECH, "squeeze_factor": 2},
    "SEWD": {**SPEECH, "squeeze_factor": 2},
    "Wav2Vec2Conformer": SPEECH,
}


def made(kind, task, options):
    """A network of a configuration with these options, and every weight from its own start."""
    kind = kind.partition("-")[0]
    prefix = {"ViTMSN": "ViTMSN", "DonutSwin": "DonutSwin"}.get(kind, kind)
    config = getattr(t, f"{prefix}Config")(**options)
    return getattr(t, prefix + task)(config)


def by_task(kinds, task, inputs, sizes=(64, 96)):
    return [
        Network(f"{name}{task}", lambda n=name, o=options: made(n, task, dict(o)), inputs, sizes)
        for name, options in kinds.items()
        if hasattr(t, name.partition("-")[0] + task)
    ]


def networks():
    return [
        *by_task(CLASSIFIERS, "ForImageClassification", images()),
        *by_task(SEGMENTERS, "ForSemanticSegmentation", images()),
        *by_task(BACKBONES, "Backbone", images()),
        *by_task(SPEAKERS, "ForSequenceClassification", wave),
        *by_task({name: SPEAKERS[name] for name in ("Wav2Vec2", "Hubert", "SEW")}, "ForCTC", wave),
        *by_task({"Wav2Vec2": SPEECH, "WavLM": SPEECH}, "ForXVector", wave, (128, 192)),
        *detectors(),
        *others(),
    ]
