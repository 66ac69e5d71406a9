"""timm: of every family the smallest network, as timm.txt lists them.

`python -m foreign.sources.timm_networks`, in tests/, chooses them anew for another timm.
"""

import re
from pathlib import Path

import timm
import torch

from foreign.network import Network, images

LIST = Path(__file__).with_name("timm.txt")  # a name and an image size per line
LARGEST = 40_000_000
SIZES = (64, 96, 128, 160)
SIZE_WORDS = frozenset(
    [
        "atto",
        "femto",
        "pico",
        "nano",
        "tiny",
        "small",
        "medium",
        "base",
        "mini",
        "micro",
        "zepto",
        "wee",
        "little",
        "xxtiny",
        "xtiny",
        "xsmall",
        "xxs",
        "xs",
        "x",
        "xx",
        "t",
        "s",
        "m",
        "b",
        "l",
        "w",
        "d",
        "p",
        "plus",
        "lite",
        "large",
        "patch",
        "window",
    ]
)
GIANTS = ("large", "huge", "giant", "_xl", "so400m", "_1b", "_3b", "7b", "enormous", "128gf")
FEATURES = (  # also as backbones that give their feature maps
    "resnet18", "resnetv2_18", "mobilenetv3_small_050", "efficientnet_b0", "regnetx_002",
    "regnety_002", "densenet121", "dla46_c", "hrnet_w18_small", "vovnet39a", "cspresnet50",
    "xception41", "res2net50_14w_8s", "skresnet18", "convnext_atto", "ghostnet_050",
    "repvgg_a0", "mobileone_s0", "nf_resnet26", "selecsls42", "tresnet_m", "edgenext_xx_small",
    "efficientvit_b0", "fastvit_t8", "hgnetv2_b0", "inception_v3", "mobilenetv4_conv_small",
    "repvit_m0_9", "starnet_s1", "rexnet_100", "lcnet_050", "tf_efficientnetv2_b0",
)  # fmt: skip


def family(name):
    """A name without sizes and numbers: resnet18 and resnet26 are one, resnet26d is another."""
    parts = [re.sub(r"\d+", "", part) for part in name.split("_")]
    return "_".join(part for part in parts if part and part not in SIZE_WORDS)


def choose():
    """The smallest network of each family below the largest size, with an image it takes."""
    smallest = {}
    for module in timm.models.list_modules():
        for name in timm.list_models(module=module):
            if name.startswith("test_") or any(part in name for part in GIANTS):
                continue
            with torch.device("meta"):
                count = sum(p.numel() for p in timm.create_model(name).parameters())
            if count < smallest.get((module, family(name)), (LARGEST, ""))[0]:
                smallest[module, family(name)] = count, name
    return [
        (name, smallest_image(name)) for _, name in sorted(smallest.values(), key=lambda v: v[1])
    ]


def smallest_image(name):
    """The smallest size on which a network runs; that of its weights if none of ours will do."""
    with torch.device("meta"):
        model = timm.create_model(name).eval()
        for size in SIZES:
            try:
                model(torch.randn(1, 3, size, size))
            except Exception:
                continue
            return size
    return model.pretrained_cfg["input_size"][-1]


def networks():
    listed = [line.split() for line in LIST.read_text().splitlines()]
    whole = [
        Network(name, lambda n=name: timm.create_model(n), images(), (int(size), int(size) + 32))
        for name, size in listed
    ]
    backbones = [
        Network(
            f"{name}/features",
            lambda n=name: timm.create_model(n, features_only=True),
            images(),
            (96, 128),
        )
        for name in FEATURES
    ]
    return whole + backbones


if __name__ == "__main__":
    LIST.write_text("".join(f"{name} {size}\n" for name, size in choose()))
