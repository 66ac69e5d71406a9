"""Ultralytics: the YOLOs and RT-DETRs of its configuration files, at the smallest scale."""

from pathlib import Path

import ultralytics
from ultralytics.nn import tasks

from foreign.network import Network, images

FOLDER = Path(ultralytics.__file__).parent / "cfg" / "models"
LARGE = (
    "cls-resnet18",  # fetches weights
    "resnet101",
    "rtdetr-x",
    "yolov9e",
    "yolov10x",
    "yolov10l",
    "yolov10b",
    "yolov10m",
    "yolov9m",
)
WORDS = ("world", "yoloe")  # that take texts, or a text encoder's weights
KINDS = {"cls": "Classification", "seg": "Segmentation", "pose": "Pose", "obb": "OBB"}


def build(name):
    """A network of a file; n, the smallest scale, where the file has scales."""
    kind = next((kind for part, kind in KINDS.items() if f"-{part}" in name), "Detection")
    if "rtdetr" in name:
        kind = "RTDETRDetection"
    file = next(FOLDER.rglob(f"{name}.yaml"))
    config = tasks.yaml_model_load(file)
    config["scale"] = "n" if "n" in config.get("scales", {}) else ""
    return getattr(tasks, f"{kind}Model")(config, verbose=False)


def networks():
    names = sorted(file.stem for file in FOLDER.rglob("*.yaml"))
    return [
        Network(name, lambda n=name: build(n), images(), (128, 192) if "p6" in name else (64, 96))
        for name in names
        if not any(part in name for part in (*LARGE, *WORDS))
    ]
