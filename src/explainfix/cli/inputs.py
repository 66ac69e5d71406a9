"""The data that explain and prune measure saliency on: a file of arrays, or a dataset by name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from torch import Tensor, nn

from ..explanation import Saliency, saliency
from ..lab.data.arrays import batches, read_arrays
from ..running import channel_hint
from .app import Whole, option_pair
from .printing import print_note, track_progress

Batch = tuple[Tensor, Tensor | None]
Options = Annotated[
    list[str] | None, Parameter(name="--data-option", negative="", consume_multiple=True)
]


@Parameter(name="*")
@dataclass(frozen=True)
class Data:
    """What to weight kernels by.

    Parameters
    ----------
    data
        A .npz or .safetensors file with inputs x and, if there are any, targets y; or a dataset,
        NAME or NAME:PATH (explainfix list datasets).
    data_option
        Options of the dataset, as in size=64.
    split
        The split of the dataset.
    batch_size
        Inputs a batch.
    max_batches
        Batches to use.
    """

    data: str | None = None
    data_option: Options = None
    split: str = "val"
    batch_size: Whole = 4
    max_batches: Whole = 15


def open_batches(
    data: Data, tell: Callable[[str], None] | None = None
) -> tuple[Iterator[Batch], int]:
    """The batches that were asked for, and how many there will be; `tell` gets what to know."""
    if data.data is None:
        raise ValueError(
            "this needs data to tell which kernels matter: give --data FILE or --data NAME:PATH"
        )
    if data.batch_size < 1 or data.max_batches < 1:
        raise ValueError("--batch-size and --max-batches must be at least 1")
    if Path(data.data).suffix in (".npz", ".safetensors") and ":" not in data.data:
        if data.data_option:
            raise ValueError(f"{data.data!r} is a file of arrays: it takes no --data-option")
        inputs, targets = read_arrays(data.data)
        stream: Iterator[Batch] = batches(inputs, targets, data.batch_size)
        length = len(inputs)
    else:
        from ..lab.data.dataset import as_outputs, open_dataset
        from ..lab.data.loader import evaluation_batches

        dataset = open_dataset(data.data, **dict(option_pair(o) for o in data.data_option or []))
        if tell is not None:
            for note in dataset.notes:
                tell(note)
        length = len(dataset.split(data.split))
        # a network for volumes was trained on cubes, and may take no others
        parts = evaluation_batches(
            dataset,
            data.split,
            batch_size=data.batch_size,
            middle=dataset.preparation.window,
        )
        classes = len(dataset.classes)
        # What is not to be counted, NaN, asks for no output.
        stream = ((x, as_outputs(y, classes) if y.is_floating_point() else y) for _, x, y in parts)
    return stream, min(data.max_batches, -(-length // data.batch_size))


def measure_saliency(network: nn.Module, data: Data) -> Saliency:
    """The saliency of a network on the data that was asked for."""
    stream, count = open_batches(data, print_note)
    channels = 0

    def watched() -> Iterator[Batch]:
        nonlocal channels
        for images, targets in stream:
            channels = images.shape[1]
            yield images, targets

    progress = partial(track_progress, title="Computing saliency", total=count)
    try:
        return saliency(network, watched(), max_batches=count, progress=progress)
    except ValueError as error:
        remedy = f"--in-channels {channels} builds a model for them"
        hint = channel_hint(network, channels, remedy) if channels else ""
        raise ValueError(f"{error}{hint}") from error


def name_silent(scores: Saliency) -> str:
    """A line that names the layers no score reaches, or nothing."""
    paths = scores.silent
    if not paths:
        return ""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    noun = "layer" if len(paths) == 1 else "layers"
    return f"No score reaches {len(paths)} {noun}: {', '.join(paths[:3])}{more}."
