"""What a model says about images: kept from an evaluation, or drawn over files of any origin."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path

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
from .overlay import class_numbers, overlay


def probabilities(logits: Tensor, task: Task) -> Tensor:
    """Logits `(n, classes, ...)` as probabilities, that add up where classes exclude each other."""
    exclusive = task == "multiclass" or (task == "segmentation" and logits.shape[1] > 1)
    return logits.softmax(1) if exclusive else logits.sigmoid()


class Predictions:
    """The probabilities of a whole split, gathered batch by batch."""

    def __init__(self, dataset: Dataset, images: Images) -> None:
        self.dataset, self.names = dataset, images.names
        self.kept: dict[int, Tensor] = {}

    def see(self, indices: list[int], logits: Tensor, targets: Tensor) -> None:
        """Keep a batch: labels as numbers, masks as bytes and without what was padded."""
        answers = probabilities(logits, self.dataset.task)
        for index, answer, target in zip(indices, answers, targets, strict=True):
            if self.dataset.task == "segmentation":
                known = (~target[0].isnan()).nonzero()
                if len(targets) > 1 and len(known):  # collate pads masks with NaN
                    answer = answer[:, *(slice(int(end) + 1) for end in known.amax(0))]
                answer = (answer * 255).round().byte()
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
            space = image.shape[1:] if dataset.task == "segmentation" else ()
            check_shapes(logits, torch.zeros(1, 1, *space), dataset)
            answers[file] = image, probabilities(logits.float().cpu(), dataset.task)[0]
    folder.mkdir(parents=True, exist_ok=True)
    if dataset.task != "segmentation":
        return [_write_classes(folder, dataset.classes, {f: a[1] for f, a in answers.items()})]
    made = []
    for file, (image, answer) in answers.items():
        numbers = class_numbers(answer)
        drawn = overlay(image, numbers, dataset.classes)
        for kind, picture in (("mask", _mask(numbers, len(answer))), ("overlay", drawn)):
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


def _mask(numbers: Tensor, classes: int) -> Image.Image:
    """White where the one class is, or the number of each class."""
    return Image.fromarray((numbers * 255 if classes == 1 else numbers).numpy())


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
