"""What a model says about images: kept from an evaluation, or drawn over files of any origin."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from ...extras import needed_for
from ...layers import as_found
from ...store import written
from ..data.dataset import Dataset, Images, Signature, Task
from ..data.volumes import read_affine, write_volume
from ..run.checkpoint import failures_named
from ..run.evaluation import check_shapes, compute_logits
from .overlay import class_numbers, overlay

with needed_for("drawing pictures"):
    from PIL import Image


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
    model: nn.Module,
    about: Signature,
    images: Iterable[tuple[str, Sequence[Path]]],
    folder: Path,
    *,
    threshold: float = 0.5,
    keep_probabilities: bool = False,
) -> list[Path]:
    """Write what `model` sees in images: NAME.mask.png and NAME.overlay.png, or classes.csv.

    `images` are names with their files: one, or the slices of a DICOM series; `about` says how they
    are prepared. Masks are as large as the images; their probabilities are NAME.probability.tif, of
    floats `(h, w)` or `(classes, h, w)`. Of volumes, masks and probabilities are NIfTI, on the
    voxels of the volume, and the overlay shows the middle slice.
    """
    made: list[Path] = []
    rows: dict[Path, Tensor] = {}
    where = next(model.parameters())
    with as_found(model), torch.inference_mode():
        model.eval()
        for name, files in images:
            image = about.preparation.decode(files)
            ready = about.preparation(about.preparation.fitted(image))
            segments = about.task == "segmentation"
            window = about.preparation.window if segments else None
            batch = ready.unsqueeze(0).to(where.device, where.dtype)
            logits = compute_logits(model, batch, window=window)
            check_shapes(logits, torch.zeros(1, 1, *ready.shape[1:] if segments else ()), about)
            answer = probabilities(logits.float().cpu(), about.task)
            if not segments:
                rows[files[0]] = answer[0]
                continue
            if answer.shape[2:] != image.shape[1:]:
                mode = "bilinear" if image.dim() == 3 else "trilinear"
                answer = F.interpolate(answer, image.shape[1:], mode=mode)
            numbers = class_numbers(answer[0], threshold)
            drawn = overlay(image, numbers, about.classes)
            kept = answer[0] if keep_probabilities else None
            if image.dim() == 4:
                made += _write_volumes(folder / name, numbers, kept, read_affine(files))
            else:
                made += _write_pictures(folder / name, _white(numbers, about), kept)
            made.append(_place(folder / name, "overlay.png"))
            with failures_named(made[-1]), written(made[-1], overwrite=True) as temporary:
                drawn.save(temporary)
    return made or [_write_classes(folder, about, rows, threshold)]


def _white(numbers: Tensor, about: Signature) -> Tensor:
    """White where the one class is, or the number of each class."""
    return numbers * 255 if len(about.classes) == 1 else numbers


def _place(start: Path, ending: str) -> Path:
    start.parent.mkdir(parents=True, exist_ok=True)
    return start.with_name(f"{start.name}.{ending}")


def _write_pictures(start: Path, mask: Tensor, probability: Tensor | None) -> list[Path]:
    """A mask and, if given, probabilities under names that begin alike."""
    made = [_place(start, "mask.png")]
    with failures_named(made[0]), written(made[0], overwrite=True) as temporary:
        Image.fromarray(mask.numpy()).save(temporary)
    if probability is not None:
        with needed_for("writing TIFF"):
            import tifffile
        made.append(_place(start, "probability.tif"))
        levels = probability[0] if len(probability) == 1 else probability
        with failures_named(made[1]), written(made[1], overwrite=True) as temporary:
            tifffile.imwrite(temporary, levels.numpy(), photometric="minisblack")
    return made


def _write_volumes(
    start: Path, mask: Tensor, probability: Tensor | None, affine: NDArray[Any]
) -> list[Path]:
    """The same of a volume, on its own voxels."""
    made = []
    for what, tensor in (("mask", mask), ("probability", probability)):
        if tensor is not None:
            made.append(_place(start, f"{what}.nii.gz"))
            with failures_named(made[-1]), written(made[-1], overwrite=True) as temporary:
                write_volume(temporary, tensor, affine)
    return made


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
