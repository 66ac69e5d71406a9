"""What a model says about images: kept from an evaluation, or drawn over files of any origin."""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from ...layers import as_found
from ...store import written
from ..data.dataset import Dataset, Images, Signature, Task
from ..data.images import to_channels
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
    model: nn.Module,
    about: Signature,
    files: Iterable[tuple[str, Path]],
    folder: Path,
    *,
    threshold: float = 0.5,
    keep_probabilities: bool = False,
) -> list[Path]:
    """Write what `model` sees in files: NAME.mask.png and NAME.overlay.png, or classes.csv.

    `about` says how images are prepared. Masks are as large as the images; their probabilities are
    NAME.probability.tif, of floats `(h, w)` or `(classes, h, w)`.
    """
    made: list[Path] = []
    rows: dict[Path, Tensor] = {}
    where = next(model.parameters())
    with as_found(model), torch.inference_mode():
        model.eval()
        for name, file in files:
            image = about.preparation.decode(file)
            ready = about.preparation(about.preparation.fitted(image))
            logits = compute_logits(model, ready.unsqueeze(0).to(where.device, where.dtype))
            shape = (1, len(about.classes), *ready.shape[1:])
            blank = torch.zeros(shape if about.task == "segmentation" else shape[:2])
            check_shapes(logits, blank, about.task, len(about.classes))
            answer = probabilities(logits.float().cpu(), about.task)
            if about.task != "segmentation":
                rows[file] = answer[0]
                continue
            if answer.shape[2:] != image.shape[1:]:
                answer = F.interpolate(answer, image.shape[1:], mode="bilinear")
            seen = {"mask.png": _mask(answer[0], threshold)}
            seen["overlay.png"] = overlay(image, answer[0], threshold)
            made += _write_pictures(folder / name, seen, answer[0] if keep_probabilities else None)
    return made or [_write_classes(folder, about, rows, threshold)]


def _write_pictures(
    start: Path, pictures: Mapping[str, Image.Image], probability: Tensor | None
) -> list[Path]:
    """Pictures and, if given, probabilities under names that begin alike."""
    start.parent.mkdir(parents=True, exist_ok=True)
    made = []
    for ending, picture in pictures.items():
        made.append(start.with_name(f"{start.name}.{ending}"))
        with failures_named(made[-1]), written(made[-1], overwrite=True) as temporary:
            picture.save(temporary)
    if probability is not None:
        import tifffile

        made.append(start.with_name(f"{start.name}.probability.tif"))
        levels = probability[0] if len(probability) == 1 else probability
        with failures_named(made[-1]), written(made[-1], overwrite=True) as temporary:
            tifffile.imwrite(temporary, levels.numpy(), photometric="minisblack")
    return made


def overlay(image: Tensor, probability: Tensor, threshold: float = 0.5) -> Image.Image:
    """The image `(c, h, w)` with each class above the threshold tinted and outlined."""
    pixels = to_channels(image, 3).permute(1, 2, 0).mul(255).numpy().copy()
    for number, mask in enumerate((probability > threshold).numpy()):
        colour = np.roll(_TINT, number)
        pixels[mask] = 0.7 * pixels[mask] + 0.3 * colour
        around = np.pad(mask, 1, mode="edge")
        inner = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
        pixels[mask & ~inner] = colour
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _mask(probability: Tensor, threshold: float) -> Image.Image:
    """White where the one class is, or the number, from 1, of the likeliest above the threshold."""
    best, which = probability.max(0)
    level = 255 if len(probability) == 1 else which + 1
    return Image.fromarray(((best > threshold) * level).byte().numpy())


def _write_classes(
    folder: Path, about: Signature, rows: Mapping[Path, Tensor], threshold: float
) -> Path:
    """A row for each image: the probability of each class, and which it has."""
    path = folder / "classes.csv"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        failures_named(path),
        written(path, overwrite=True) as temporary,
        temporary.open("w", newline="") as file,
    ):
        table = csv.writer(file)
        table.writerow(["image", *about.classes, "predicted"])
        for image, answer in rows.items():
            least = answer.max() if about.task == "multiclass" else threshold
            found = [name for name, p in zip(about.classes, answer, strict=True) if p >= least]
            table.writerow([str(image), *(f"{p:.4f}" for p in answer.tolist()), "; ".join(found)])
    return path
