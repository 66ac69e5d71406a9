"""A contact sheet: what a dataset looks like, with the outlines of masks or the labels."""

import math
from typing import Literal

import numpy as np
from torch import Tensor

from ...extras import needed_for
from .dataset import Dataset, Sample

with needed_for("a contact sheet"):
    from PIL import Image, ImageDraw

YELLOW = (255, 220, 0)


def contact_sheet(
    dataset: Dataset,
    split: str,
    count: int,
    *,
    tile: int = 160,
    stage: Literal["raw", "prepared"] = "raw",
) -> Image.Image:
    """`count` images of a split, evenly spread over it, `tile` pixels each.

    Masks are outlined, labels written. `stage="prepared"` shows what the network gets.
    """
    images = dataset.split(split)
    chosen = np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).round().astype(int))
    columns = math.ceil(math.sqrt(len(chosen) * 1.5))
    rows = math.ceil(len(chosen) / columns)
    sheet = Image.new("RGB", (columns * tile, rows * tile), "white")
    for place, index in enumerate(chosen):
        sample = images[int(index)]
        if stage == "prepared":
            sample = dataset.prepare(sample)
        picture = _picture(sample, dataset.classes, tile)
        sheet.paste(picture, (place % columns * tile, place // columns * tile))
    return sheet


def _picture(sample: Sample, classes: tuple[str, ...], tile: int) -> Image.Image:
    image, target = sample
    if image.dim() == 4:  # a volume: its middle slice
        middle = image.shape[1] // 2
        image, target = image[:, middle], target[:, middle] if sample.masked else target
    image = image if len(image) == 3 else image[:1]
    levels = image.clamp(0, 1).mul(255).byte().expand(3, -1, -1).permute(1, 2, 0).numpy()
    picture = Image.fromarray(np.ascontiguousarray(levels))
    picture.thumbnail((tile - 4, tile - 4))
    if max(picture.size) < tile - 4:
        factor = (tile - 4) / max(picture.size)
        size = round(picture.width * factor), round(picture.height * factor)
        picture = picture.resize(size, Image.Resampling.NEAREST)
    if sample.masked:
        return _outlined(picture, target[0])
    text = classes[int(target)] if target.dim() == 0 else _labels(target, classes)
    pen = ImageDraw.Draw(picture)
    pen.text((3, 2), text, fill=YELLOW, stroke_width=1, stroke_fill=(0, 0, 0))
    return picture


def _outlined(picture: Image.Image, mask: Tensor) -> Image.Image:
    levels = Image.fromarray((mask.nan_to_num() > 0).byte().mul(255).numpy())
    inside = np.asarray(levels.resize(picture.size)) > 127
    padded = np.pad(inside, 1, mode="edge")
    core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    pixels = np.array(picture)
    pixels[inside & ~core] = YELLOW
    return Image.fromarray(pixels)


def _labels(target: Tensor, classes: tuple[str, ...]) -> str:
    """The findings there are, a line each; a question mark where uncertain."""
    marks = zip(classes, target.tolist(), strict=True)
    return "\n".join(f"{name}?" if math.isnan(v) else name for name, v in marks if v != 0)
