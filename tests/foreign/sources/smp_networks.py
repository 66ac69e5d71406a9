"""segmentation_models_pytorch: every decoder with encoders of several kinds."""

import segmentation_models_pytorch as smp

from foreign.network import Network, images

ENCODERS = (
    "resnet18", "mobilenet_v2", "efficientnet-b0", "timm-efficientnet-b0", "densenet121",
    "vgg11_bn", "mit_b0", "mobileone_s0", "timm-skresnet18", "se_resnext50_32x4d", "dpn68",
    "xception", "inceptionv4", "timm-tf_efficientnet_lite0", "tu-convnext_atto",
    "tu-regnety_002", "tu-mobilenetv3_small_050",
)  # fmt: skip
ODD = {  # encoders and decoders that refuse each other: no dilation, or no early features
    "densenet121": ("deeplabv3", "deeplabv3plus", "pan"),
    "xception": ("deeplabv3", "deeplabv3plus", "pan"),
    "inceptionv4": ("deeplabv3", "deeplabv3plus", "pan"),
    "vgg11_bn": ("deeplabv3", "deeplabv3plus", "pan"),
    "mit_b0": ("unetplusplus", "linknet", "deeplabv3", "deeplabv3plus", "pan"),
    "tu-convnext_atto": ("unetplusplus", "linknet", "manet", "deeplabv3", "pan"),
}
DPT = "tu-vit_tiny_patch16_224"


def build(decoder, encoder):
    options = {"dynamic_img_size": True} if decoder == "dpt" else {}
    return smp.create_model(decoder, encoder, encoder_weights=None, classes=3, **options)


def networks():
    """Of each decoder with the first encoders all, with the others every third."""
    decoders = [name for name in smp.MODEL_ARCHITECTURES_MAPPING if name != "dpt"]
    pairs = [
        (decoder, encoder)
        for row, decoder in enumerate(decoders)
        for column, encoder in enumerate(ENCODERS)
        if decoder not in ODD.get(encoder, ()) and (column < 4 or (row + column) % 3 == 0)
    ]
    return [
        Network(
            f"{decoder}/{encoder}",
            lambda d=decoder, e=encoder: build(d, e),
            images(),
            (128, 160) if decoder == "pan" else (64, 96),
        )
        for decoder, encoder in [*pairs, ("dpt", DPT)]
    ]
