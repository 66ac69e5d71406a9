"""A picture with what was found in it drawn over, a colour for each class and a legend."""

import colorsys
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...extras import needed_for

with needed_for("drawing pictures"):
    from PIL import Image, ImageDraw, ImageFont

_TURN = (5**0.5 - 1) / 2  # of the circle of hues: any number of steps are well apart
_LINE = 14  # pixels of the legend


def class_colour(number: int) -> tuple[int, int, int]:
    """The colour of class 1, red, 2, …

    >>> class_colour(1), class_colour(2)
    ((255, 61, 61), (61, 118, 255))
    """
    red, green, blue = colorsys.hsv_to_rgb((number - 1) * _TURN % 1, 0.76, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def overlay(image: Tensor, mask: Tensor, classes: Sequence[str]) -> Image.Image:
    """The image `(c, h, w)` from 0 to 1 with each class of a mask `(h, w)` tinted and outlined.

    0 is the background. Where there are several classes, a legend below names them; of a volume
    `(c, d, h, w)`, the middle slice is drawn.
    """
    if image.dim() == 4:
        middle = image.shape[1] // 2
        image, mask = image[:, middle], mask[middle]
    pixels = grey_or_colour(image).permute(1, 2, 0).mul(255).numpy().copy()
    for number in mask.unique().int().tolist():
        if number > 0:
            colour, inside = class_colour(number), (mask == number).numpy()
            pixels[inside] = 0.7 * pixels[inside] + 0.3 * np.array(colour, dtype=np.float32)
            pixels[outline(inside)] = colour
    picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return picture if len(classes) == 1 else _with_legend(picture, classes[1:])


def outline(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Those pixels of a mask that have a neighbour outside of it."""
    around = np.pad(inside, 1, mode="edge")
    core = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    edge: NDArray[np.bool_] = inside & ~core
    return edge


def grey_or_colour(image: Tensor) -> Tensor:
    """Three channels to show: the image's own, or else its first, in grey."""
    return image if len(image) == 3 else image[:1].expand(3, *image.shape[1:])


def _with_legend(picture: Image.Image, names: Sequence[str]) -> Image.Image:
    """The picture above a swatch and a name for each class, as many a line as fit."""
    font = ImageFont.load_default(size=11)
    widths = [_LINE + round(font.getlength(name)) + 10 for name in names]
    width, places, x, y = max(picture.width, *widths), [], 0, picture.height
    for step in widths:
        if x and x + step > width:
            x, y = 0, y + _LINE
        places.append((x, y))
        x += step
    sheet = Image.new("RGB", (width, y + _LINE), "white")
    sheet.paste(picture, (0, 0))
    pen = ImageDraw.Draw(sheet)
    for number, (name, (left, top)) in enumerate(zip(names, places, strict=True), start=1):
        pen.rectangle((left + 3, top + 3, left + 11, top + 11), fill=class_colour(number))
        pen.text((left + _LINE, top), name, fill="black", font=font)
    return sheet


def class_numbers(probability: Tensor, threshold: float = 0.5) -> Tensor:
    """The mask `(h, w)` of probabilities `(classes, h, w)`: 1 where one class is likely enough.

    Of several classes the likeliest has its number, the background's being 0.
    """
    if len(probability) == 1:
        return (probability[0] > threshold).to(torch.uint8)
    return probability.argmax(0).to(torch.uint8 if len(probability) < 256 else torch.int16)
