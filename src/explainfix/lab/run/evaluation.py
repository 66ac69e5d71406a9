"""Run a model over a split: what metrics need, the predictions, and what is wrong with them."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ...extras import needed_for
from ...layers import as_found
from ...recalibration import recalibrate_
from ...running import channel_hint, first_not_finite
from ..data.dataset import Dataset, Signature
from ..data.loader import Share, evaluation_batches, training_steps
from .metrics import Outcomes, Scores, count_pixels, score

Wrap = Callable[[Iterable[Any], int], Iterable[Any]]
See = Callable[[list[int], Tensor, Tensor], None]  # indices, logits, targets


def evaluate(
    model: nn.Module,
    dataset: Dataset,
    split: str = "test",
    *,
    batch_size: int = 1,
    resamples: int = 1000,
    workers: int = 0,
    see: See | None = None,
    progress: Wrap | None = None,
) -> Scores:
    """The scores of `model` on a split, with 95% intervals; `see` gets every batch's logits.

    The model is evaluated where it is, and comes back as it went in.
    """
    outcomes = collect_outcomes(
        model, dataset, split, Share(batch_size), workers=workers, see=see, progress=progress
    )
    return score(outcomes, resamples=resamples)


def collect_outcomes(
    model: nn.Module,
    dataset: Dataset,
    split: str,
    share: Share,
    *,
    workers: int = 0,
    total: Callable[[Tensor], Tensor] | None = None,
    see: See | None = None,
    progress: Wrap | None = None,
) -> Outcomes:
    """What metrics need of every image of a split; each process does its share, `total` adds up."""
    n, classes = len(dataset.split(split)), len(dataset.classes)
    if n == 0:
        raise ValueError(f"the split {split!r} of {dataset.name!r} is empty")
    masks = dataset.task == "segmentation"
    where = next(model.parameters())
    window = dataset.preparation.window if masks else None
    values = torch.zeros(n, classes, 3, dtype=torch.long) if masks else torch.zeros(n, classes)
    known = torch.zeros(n, classes) if dataset.task == "multilabel" else torch.zeros(n)
    batches: Iterable[tuple[list[int], Tensor, Tensor]] = evaluation_batches(
        dataset,
        split,
        batch_size=share.batch_size,
        rank=share.rank,
        world=share.world,
        workers=workers,
    )
    if progress is not None:
        batches = progress(batches, math.ceil(n / share.world / share.batch_size))
    with as_found(model), torch.inference_mode():
        model.eval()
        for indices, images, targets in batches:
            images = images.to(where.device, where.dtype)
            logits = compute_logits(model, images, window=window).float().cpu()
            check_shapes(logits, targets, dataset)
            if masks:
                values[indices] = count_pixels(logits, targets)
            else:
                values[indices], known[indices] = logits, targets.float()
            if see is not None:
                see(indices, logits, targets)
    if total is not None:
        values, known = total(values), total(known)
    if not values.isfinite().all():
        raise ValueError(f"the model's outputs on {split!r} are not finite")
    return Outcomes(dataset.task, dataset.classes, values, None if masks else known)


def average_statistics_(
    model: nn.Module,
    dataset: Dataset,
    split: str,
    share: Share,
    *,
    steps: int,
    seed: int = 0,
    epoch: int = 0,
    workers: int = 0,
) -> int:
    """Average BatchNorm's statistics over the first steps of an epoch; how many layers have them.

    Images are augmented as in training. More steps than an epoch has are all of them.
    """
    where = next(model.parameters())
    found = training_steps(dataset, split, share, seed=seed, epoch=epoch, workers=workers)
    batches = (images.to(where) for step in islice(found, steps) for images, _ in step)
    return recalibrate_(model, batches)


def compute_logits(model: nn.Module, images: Tensor, *, window: int | None = None) -> Tensor:
    """The model's logits; if it fails, an error that says on what.

    With a `window` the model looks at squares or cubes of that side, which overlap by half; the
    nearer to the middle of one, the more its answer counts.
    """
    if window is not None:
        return _slide(partial(compute_logits, model), images, window)
    try:
        return logits_of(model(images))
    except RuntimeError as error:  # wrong channels, too small an image, no memory
        reason = str(error).partition("\n")[0]
        remedy = f"build it for {images.shape[1]}, or take images that have as many"
        hint = channel_hint(model, images.shape[1], remedy)
        raise ValueError(
            f"the model fails on images {tuple(images.shape)}: {reason}{hint}"
        ) from error


def _slide(look: Callable[[Tensor], Tensor], images: Tensor, window: int) -> Tensor:
    with needed_for("looking at images window by window"):
        from monai.inferers import sliding_window_inference
    sides = (window,) * (images.dim() - 2)
    logits: Tensor = sliding_window_inference(images, sides, 4, look, overlap=0.5, mode="gaussian")
    return logits


def logits_of(output: Any) -> Tensor:
    """The logits in whatever a network returns: a tensor, {"out": …}, or a tuple with `.logits`."""
    found = output.get("out") if isinstance(output, Mapping) else output
    found = getattr(found, "logits", found)
    if not isinstance(found, Tensor):
        raise ValueError(f"the model returns {type(output).__name__}, not a tensor of logits")
    return found


def check_shapes(logits: Tensor, targets: Tensor, about: Signature) -> None:
    """Raise unless the model's outputs are what the data's task needs."""
    wanted = (len(targets), len(about.classes), *targets.shape[2:])
    if tuple(logits.shape) != wanted:
        raise ValueError(
            f"the model gives outputs {tuple(logits.shape)}, {about.task} on this data needs "
            f"{wanted}: was it made for other data?"
        )


def describe_fault(model: nn.Module, images: Tensor) -> str:
    """Run a batch again and say which layer's output is the first that is not finite, and why."""
    if not images.isfinite().all():
        return "the images, which hold NaN or infinite values"
    with as_found(model):
        path = first_not_finite(model, lambda: model(images))
    if path is None:
        return "the loss itself, which overflows"
    module = model.get_submodule(path)
    broken = [name for name, p in module.named_parameters() if not p.isfinite().all()]
    why = f"its {broken[0]} is not finite" if broken else "its inputs were finite"
    return f"layer {path!r} ({type(module).__name__}): {why}; try a lower lr, or clip"
