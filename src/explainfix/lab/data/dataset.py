"""What a dataset is: named images with targets, in splits, and what training does to them.

Everything random is drawn from a generator that is handed in, so an epoch can be repeated.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ...registry import datasets, unknown
from .images import DamagedError
from .preparation import Preparation

Task = Literal["segmentation", "multilabel", "multiclass"]


class Sample(NamedTuple):
    """One image `(c, h, w)` or volume `(c, d, h, w)`, and what is known about it.

    The target is a mask `(1, h, w)` of class numbers for segmentation, `(tasks,)` of 0 and 1 for
    several labels, a class number for one. NaN marks what is not to be counted.
    """

    image: Tensor
    target: Tensor

    @property
    def masked(self) -> bool:
        """Whether the target is a mask, with a number for every pixel."""
        return self.target.dim() == self.image.dim()

    def changed(self, change: Callable[[Tensor], Tensor]) -> Sample:
        """The image changed, and with it the mask, if there is one."""
        target = change(self.target) if self.masked else self.target
        return Sample(change(self.image), target)


class Images(Protocol):
    """The images of one split, decoded when asked for."""

    @property
    def names(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


@dataclass(frozen=True)
class Listed:
    """Images by name; `read` makes the one at an index.

    `targets` `(n, tasks)` are those of all images where they are known without decoding any.
    """

    names: tuple[str, ...]
    read: Callable[[int], Sample]
    targets: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        try:
            return self.read(range(len(self.names))[index])
        except DamagedError as error:  # not all of very many are decoded when they are opened
            raise ValueError(f"{error}. skip_damaged leaves such files out") from None


def draw_share(images: Images, share: float, seed: int) -> Listed:
    """A random share of the images, one at least, in their order; a smaller share is part of it.

    >>> images = Listed(("a", "b", "c", "d"), lambda i: Sample(torch.empty(0), torch.tensor(i)))
    >>> half = draw_share(images, 0.5, seed=0)
    >>> half.names, half[1].target.item()
    (('a', 'c'), 2)
    """
    count = max(round(share * len(images)), 1)
    places = sorted(np.random.default_rng(seed).permutation(len(images))[:count].tolist())
    known = getattr(images, "targets", None)
    return Listed(
        tuple(images.names[place] for place in places),
        partial(_read_place, images, places),
        None if known is None else known[places],
    )


def _read_place(images: Images, places: Sequence[int], index: int) -> Sample:
    return images[places[index]]


Augment = Callable[[Sample, np.random.Generator], Sample]


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What goes into a network and what comes out: enough to use it without its data.

    A mask of one class is 0 and 1; of several, which exclude each other, the first is background.
    """

    task: Task
    classes: tuple[str, ...]
    preparation: Preparation

    @property
    def in_channels(self) -> int:
        return self.preparation.channels

    def as_dict(self) -> dict[str, Any]:
        """In plain values, for JSON; of a dataset no more than its signature."""
        how = dataclasses.asdict(self.preparation)
        return {"task": self.task, "classes": list(self.classes), "preparation": how}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Signature:
        """What `as_dict` gave, also after it was JSON."""
        how: dict[str, Any] = dict(values["preparation"])
        how |= {name: tuple(how[name]) for name in ("mean", "deviation")}
        given: dict[str, Any] = {**values, "classes": tuple(values["classes"])}
        return Signature(**given | {"preparation": Preparation(**how)})


@dataclass(frozen=True, kw_only=True)
class Dataset(Signature):
    """Splits by name ("train", "val", "test", …) and how their images reach a network."""

    name: str
    splits: Mapping[str, Images]
    steps: tuple[Augment, ...] = ()  # of training, in turn: crops, flips, noise
    samples_per_epoch: int | None = None  # drawn with replacement; `None`: every image once
    damaged: tuple[str, ...] = ()  # the files that `skip_damaged` left out
    notes: tuple[str, ...] = ()  # what its user should know

    def prepare(self, sample: Sample) -> Sample:
        """What evaluation does to a sample."""
        return sample._replace(image=self.preparation(sample.image))

    def augment(self, sample: Sample, generator: np.random.Generator) -> Sample:
        """What training does to a sample: the same, with its steps in between."""
        sample = sample._replace(image=self.preparation.adjusted(sample.image))
        for step in self.steps:
            sample = step(sample, generator)
        return sample._replace(image=self.preparation.standardised(sample.image))

    def split(self, name: str) -> Images:
        """The images of a split, or an error that names the splits there are."""
        if name not in self.splits:
            known = ", ".join(map(repr, self.splits))
            raise ValueError(f"{self.name!r} has no split {name!r}: choose from {known}")
        return self.splits[name]


def list_datasets() -> list[str]:
    """The names that `open_dataset` takes, without the path that some of them need.

    >>> list_datasets()
    ['bbbc038v1', 'chexpert', 'folder', 'nih-cxr14', 'nuclei', 'xray-like']
    """
    _register()
    return sorted(datasets)


def open_dataset(spec: str, *, skip_damaged: bool = False, **options: Any) -> Dataset:
    """The dataset of a name, or of a name and a path, as in `bbbc038v1:PATH`.

    `options` are those of that dataset (`dataset_options`), such as `crop=128`; texts are read as
    the option's type. Damaged files are an error that names them, or are left out.

    >>> data = open_dataset("nuclei", count=20, size=64)
    >>> len(data.split("train")), data.split("train")[0].image.shape
    (20, torch.Size([3, 64, 64]))
    """
    make = _find(spec)
    name, _, path = spec.partition(":")
    known = dataset_options(spec)
    for option in options:
        if option not in known:
            takes = f"{name} takes {', '.join(known)}"
            raise ValueError(f"{unknown('option', option, known)} ({takes})")
    given = {option: _convert(option, value, known[option]) for option, value in options.items()}
    if path.startswith("~"):  # which the shell leaves alone after a colon
        path = str(Path(path).expanduser())
    opened: Dataset = make(path, skip_damaged=skip_damaged, **given)
    return opened


class Option(NamedTuple):
    """The type of a dataset's option, and its default."""

    type: Any
    default: Any

    @property
    def choices(self) -> tuple[Any, ...]:
        """The default, and after it the other values if they can be listed."""
        others = (False, True) if self.type is bool else ()
        if typing.get_origin(self.type) is Literal:
            others = typing.get_args(self.type)
        return (self.default, *(value for value in others if value != self.default))


def dataset_options(spec: str) -> dict[str, Option]:
    """The options of a dataset, given as to `open_dataset`.

    >>> {option: how.choices for option, how in dataset_options("nuclei").items()}
    {'seed': (0,), 'count': (400,), 'size': (128,)}
    """
    make = _find(spec)
    hints = typing.get_type_hints(make)
    return {
        parameter.name: Option(hints[parameter.name], parameter.default)
        for parameter in inspect.signature(make).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name != "skip_damaged"
    }


def _find(spec: str) -> Callable[..., Any]:
    """What opens a dataset, or an error that knows a folder when it is given one."""
    _register()
    name, path = spec.partition(":")[0], Path(spec).expanduser()
    if name not in datasets and (path.is_dir() or (path.suffix == ".zip" and path.is_file())):
        raise ValueError(
            f"{spec!r} is a place, and data is named NAME:PATH: give 'folder:{spec}' for images of "
            "your own (explainfix list datasets shows the other names)"
        )
    return datasets.find(name)


def _register() -> None:
    from . import sources as _  # noqa: F401 (registers them; they import this module)


def _convert(name: str, value: Any, option: Option) -> Any:
    """An option's value in its type, or an error that says what was wanted."""
    if typing.get_origin(option.type) is Literal:
        if value not in typing.get_args(option.type):
            raise unknown(name, value, typing.get_args(option.type))
        return value
    wanted: list[type] = [option.type]
    if isinstance(option.type, types.UnionType):
        wanted = list(typing.get_args(option.type))
    text = value.lower() if isinstance(value, str) else value
    if types.NoneType in wanted and (value is None or text == "none"):
        return None
    plain = next(kind for kind in wanted if kind is not types.NoneType)
    if plain is bool and text in ("true", "false", True, False):
        return text in ("true", True)
    if plain in (int, float) and not isinstance(value, bool):
        try:
            if plain(value) == value or isinstance(value, str):
                return plain(value)
        except (TypeError, ValueError):
            pass
    articles = {bool: "true or false", int: "a whole number", float: "a number"}
    or_none = " or none" if types.NoneType in wanted else ""
    raise ValueError(f"{name} must be {articles[plain]}{or_none}, not {value!r}")


def collate(samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """A batch. Smaller images get zeros at the end of each axis, and masks get NaN there."""
    sizes = [sample.image.shape[1:] for sample in samples]
    largest = [max(sides) for sides in zip(*sizes, strict=True)]
    images, targets = zip(*(pad(sample, largest) for sample in samples), strict=True)
    return torch.stack(images), torch.stack(targets)


def pad(sample: Sample, sizes: Sequence[int]) -> Sample:
    """At least of these sizes: zeros at the end of each axis, NaN in the mask."""
    have = sample.image.shape[1:]
    missing = [max(size - own, 0) for size, own in zip(sizes, have, strict=True)]
    if not any(missing):
        return sample
    ends = [part for more in reversed(missing) for part in (0, more)]  # the last axis comes first
    image = torch.nn.functional.pad(sample.image, ends)
    if not sample.masked:
        return sample._replace(image=image)
    return Sample(image, torch.nn.functional.pad(sample.target, ends, value=torch.nan))


def cut(sample: Sample, starts: Sequence[int], size: int) -> Sample:
    """The square or cube of `size` pixels that begins there."""
    window = (slice(None), *(slice(start, start + size) for start in starts))
    return sample.changed(lambda tensor: tensor[window])


def cut_middle(sample: Sample, size: int) -> Sample:
    """The square or cube of `size` pixels in the middle; what is smaller is padded."""
    sample = pad(sample, [size] * (sample.image.dim() - 1))
    return cut(sample, [(side - size) // 2 for side in sample.image.shape[1:]], size)


def as_outputs(targets: Tensor, classes: int) -> Tensor:
    """Targets in the shape of a network's outputs, 0 where nothing is known or to be counted.

    Class numbers `(n,)`, or masks of several classes `(n, 1, h, w)`, become 0 and 1 for each class.

    >>> as_outputs(torch.tensor([[[2.0, 0.0, torch.nan]]]), 3).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]
    """
    numbers = targets.unsqueeze(1) if targets.dim() == 1 else targets
    if numbers.shape[1] == classes:
        return numbers.nan_to_num()
    each = torch.arange(classes, device=targets.device).view(-1, *[1] * (numbers.dim() - 2))
    return (numbers == each).to(targets.dtype)
