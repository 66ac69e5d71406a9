"""torchvision: classification, segmentation, detection, video and optical flow."""

import torch
from torchvision import models
from torchvision.models.video import mvit

from foreign.network import Called, Network, images

GIANTS = (
    "vit_h",
    "vit_l",
    "_128gf",
    "_32gf",
    "_16gf",
    "_8gf",
    "101",
    "152",
    "_b5",
    "_b6",
    "_b7",
    "v2_l",
    "v2_m",
    "swin_b",
    "swin_v2_b",
    "swin3d_b",
    "swin3d_s",
    "convnext_large",
    "convnext_base",
    "wide_",
    "quantized",
    "mvit",
    "densenet161",
    "densenet201",
)
FIXED = {"vit_b_16": 224, "vit_b_32": 224, "maxvit_t": 224, "inception_v3": 299}


def build(name):
    options = {"weights": None}
    spread = models.get_model_builder(name).__module__
    if "detection" in spread or "segmentation" in spread:
        options["weights_backbone"] = None
    if "detection" in spread and "ssd" not in name:
        options |= {"min_size": 64, "max_size": 96}
    if "rcnn" in name:
        options |= {"box_score_thresh": 0.0, "box_detections_per_img": 5}
    elif "detection" in spread:
        options |= {"score_thresh": 0.0, "detections_per_img": 5}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False  # its draws from a truncated normal take minutes
    model = models.get_model(name, **options)
    return Called(model, ("image1", "image2"), num_flow_updates=3) if "raft" in name else model


def clip(frames):
    return lambda batch, size: (torch.randn(batch, 3, frames, size, size),)


def build_mvit(*, second):
    """An MViT of three blocks: those with names are built for 16 frames of 224 pixels alone."""
    blocks = [
        mvit.MSBlockConfig(1, 24, 24, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 4, 4]),
        mvit.MSBlockConfig(2, 24, 48, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
        mvit.MSBlockConfig(2, 48, 48, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
    ]
    return mvit.MViT(
        (64, 64),
        4,
        blocks,
        residual_pool=second,
        residual_with_cls_embed=not second,
        rel_pos_embed=second,
        proj_after_attn=second,
    )


def pair(batch, size):
    return torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size)


def photographs(batch, size):
    """Detectors take a list of images, each of a size of its own."""
    return ([torch.rand(3, size + 8 * number, size) for number in range(batch)],)


def network(name):
    kind = models.get_model_builder(name).__module__.split(".")[2]
    if kind == "video":
        if name == "s3d":
            return Network(name, lambda: build(name), clip(14), (224, 224), single=True)
        return Network(name, lambda: build(name), clip(4), (32, 64))
    if kind == "optical_flow":
        return Network(name, lambda: build(name), pair, (128, 136))
    if kind == "detection":
        return Network(name, lambda: build(name), photographs, (64, 96))
    size = FIXED.get(name, 64)
    return Network(name, lambda: build(name), images(), (size, size if name in FIXED else 96))


def networks():
    names = [name for name in models.list_models() if not any(part in name for part in GIANTS)]
    return [
        *map(network, names),
        Network("mvit_v1-small", lambda: build_mvit(second=False), clip(4), (64, 64)),
        Network("mvit_v2-small", lambda: build_mvit(second=True), clip(4), (64, 64)),
    ]
