"""pytorchcv: of every family the smallest network, from its list."""

import re

import torch
from pytorchcv import model_provider
from torch import nn

from foreign.network import Network, images

DATA = (  # the same networks for other data
    *("_svhn", "_cifar100", "_cub", "_coco", "_ade20k"),
    *(f"15x5_{language}" for language in ("fr", "de", "it", "es", "ca", "pl", "ru")),
)
GIANTS = (
    "jasperdr",
    "propainter",
    "nasnet_6a",
    "pnasnet",
    "polynet",
    "irevnet",
    "_1bit",
    "_32bit",
    "ntsnet",
    "voca8",
    "nvpatt",
    "visemenet",
    "raft",
    "prnet",
    "lwopenpose3d",
    "ibppose",
    "a270",
    "pfpcnet",
)
KEPT = (
    "simplepose_resnet18_coco",
    "simplepose_mobile_mobilenet_w1_coco",
    "centernet_resnet18_coco",
    "lwopenpose2d_mobilenet_cmupan_coco",
    "alphapose_fastseresnet101b_coco",
)
SPEECH = ("jasper", "quartznet")
PLACES = ("_voc", "_cityscapes", "_celebamaskhq")  # whose networks are told the image size
SIZES = {  # where a network insists on one
    **dict.fromkeys(("inceptionv3", "inceptionv4", "inceptionresnetv2", "xception"), 299),
    **dict.fromkeys(("alexnet", "alexnetb", "zfnet", "zfnetb", "vgg11", "bn_vgg11"), 224),
    **dict.fromkeys(("bn_vgg11b", "dpn68", "dpn68b", "msdnet22", "nasnet_4a1056"), 224),
    **dict.fromkeys(("scnet50", "scneta50", "sinet_cityscapes", "lffd20x5s320v2_widerface"), 128),
    "inceptionresnetv1": 160,
}


def family(name):
    """A name without numbers: resnet10 and resnet18 are one, resnet20_cifar10 is another."""
    return re.sub(r"\d+", "", name)


def sound(batch, size):
    """A spectrogram, and its length."""
    return torch.randn(batch, 64, size), torch.full((batch,), size)


def network(name):
    size = 32 if "cifar" in name else SIZES.get(name, 64)
    options = {}
    if name.startswith(SPEECH):
        options["from_audio"] = False
    elif name.endswith(PLACES):
        options["in_size"] = (size, size)

    def build():
        model = model_provider.get_model(name, pretrained=False, **options)
        for module in model.modules():  # made for 224 pixels
            if isinstance(getattr(module, "final_pool", None), nn.AvgPool2d):
                module.final_pool = nn.AdaptiveAvgPool2d(1)
        return model

    if name.startswith(SPEECH):
        return Network(name, build, sound, (64, 96))
    if name == "superpointnet":
        return Network(name, build, images(1), (64, 96))
    return Network(name, build, images(), (size, size if name in SIZES else size + 32))


def networks():
    """The first of each family in the package's list, which begins with the smallest."""
    first = {}
    for name in model_provider._models:
        if any(part in name for part in (*DATA, *GIANTS)) and name not in KEPT:
            continue
        first.setdefault(family(name), name)
    return [network(name) for name in first.values()]
