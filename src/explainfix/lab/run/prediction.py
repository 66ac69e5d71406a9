"""What a model says about images: kept from an evaluation, or drawn over files of any origin."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from ...layers import as_found
from ...store import written
from ..data.dataset import Dataset, Images, Sample, Task
from ..data.images import read_image
from .checkpoint import failures_named
from .evaluation import check_shapes, compute_logits

_TINT = np.array([255, 60, 60], dtype=np.float32)  # of the first class; the others turn from it


def probabilities(logits: Tensor, task: Task) -> Tensor:
    """Logits `(n, classes, ...)` as probabilities."""
    return logits.softmax(1) if task == "multiclass" else logits.sigmoid()


class Predictions:
    """The probabilities of a whole split, gathered batch by batch."""

    def __init__(self, dataset: Dataset, images: Images) -> None:
        self.dataset, self.names = dataset, images.names
        self.kept: dict[int, Tensor] = {}

    def see(self, indices: list[int], logits: Tensor, targets: Tensor) -> None:
        """Keep a batch: labels as numbers, masks as bytes and without what was padded."""
        answers = probabilities(logits, self.dataset.task)
        for index, answer, target in zip(indices, answers, targets, strict=True):
            if answer.dim() == 3:
                padded = target.isnan().all(0)  # collate pads masks with NaN
                rows, columns = ((~padded).any(1).nonzero().max(), (~padded).any(0).nonzero().max())
                answer = (answer[:, : rows + 1, : columns + 1] * 255).round().byte()
            self.kept[index] = answer.contiguous().clone()

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """One safetensors file: "probabilities" `(n, classes)`, or a mask of bytes per image.

        Names of images and classes are in its metadata, as JSON.
        """
        names = [self.names[index] for index in sorted(self.kept)]
        answers = [self.kept[index] for index in sorted(self.kept)]
        masks = self.dataset.task == "segmentation"
        tensors = (
            {f"mask/{name}": answer for name, answer in zip(names, answers, strict=True)}
            if masks
            else {"probabilities": torch.stack(answers)}
        )
        about = {"names": json.dumps(names), "classes": json.dumps(self.dataset.classes)}
        with failures_named(path), written(path, overwrite=overwrite) as temporary:
            save_file(tensors, temporary, about)


def predict_files(
    model: nn.Module, dataset: Dataset, files: Iterable[Path], folder: Path
) -> list[Path]:
    """Write what `model` sees in each file: NAME.mask.png and NAME.overlay.png, or classes.csv.

    All files are looked at before the first is written; `dataset` says how to prepare an image.
    """
    answers = {}
    where = next(model.parameters())
    with as_found(model), torch.inference_mode():
        model.eval()
        for file in files:
            image = match_channels(read_image(file), dataset.in_channels)
            prepared = dataset.prepare(Sample(image, torch.zeros(1, *image.shape[1:]))).image
            logits = compute_logits(model, prepared.unsqueeze(0).to(where.device, where.dtype))
            shape = (1, len(dataset.classes), *image.shape[1:])
            blank = torch.zeros(shape if dataset.task == "segmentation" else shape[:2])
            check_shapes(logits, blank, dataset.task, len(dataset.classes))
            answers[file] = image, probabilities(logits.float().cpu(), dataset.task)[0]
    folder.mkdir(parents=True, exist_ok=True)
    if dataset.task != "segmentation":
        return [_write_classes(folder, dataset.classes, {f: a[1] for f, a in answers.items()})]
    made = []
    for file, (image, answer) in answers.items():
        for kind, picture in (("mask", _mask(answer)), ("overlay", overlay(image, answer))):
            made.append(folder / f"{file.stem}.{kind}.png")
            with failures_named(made[-1]), written(made[-1], overwrite=True) as temporary:
                picture.save(temporary)
    return made


def match_channels(image: Tensor, channels: int) -> Tensor:
    """The image in as many channels: grey repeated, colours averaged."""
    if len(image) == channels:
        return image
    if len(image) != 1 and channels != 1:
        raise ValueError(f"an image of {len(image)} channels does not fit a model of {channels}")
    return image.mean(0, keepdim=True).expand(channels, -1, -1)


def overlay(image: Tensor, probability: Tensor) -> Image.Image:
    """The image `(c, h, w)` with each class above one half tinted and outlined."""
    pixels = match_channels(image, 3).permute(1, 2, 0).mul(255).numpy().copy()
    for number, mask in enumerate((probability > 0.5).numpy()):
        colour = np.roll(_TINT, number)
        pixels[mask] = 0.7 * pixels[mask] + 0.3 * colour
        around = np.pad(mask, 1, mode="edge")
        inner = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
        pixels[mask & ~inner] = colour
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _mask(probability: Tensor) -> Image.Image:
    """White where the one class is, or the class's number, from 1, of the likeliest above half."""
    best, which = probability.max(0)
    level = 255 if len(probability) == 1 else which + 1
    return Image.fromarray(((best > 0.5) * level).byte().numpy())


def _write_classes(folder: Path, classes: tuple[str, ...], answers: dict[Path, Tensor]) -> Path:
    path = folder / "classes.csv"
    with (
        failures_named(path),
        written(path, overwrite=True) as temporary,
        temporary.open("w", newline="") as file,
    ):
        table = csv.writer(file)
        table.writerow(["image", *classes])
        table.writerows([str(f), *(f"{p:.4f}" for p in a.tolist())] for f, a in answers.items())
    return path
