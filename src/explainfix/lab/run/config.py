"""All options of a training run, in one typed value that is written whole beside the results."""

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...fix import KernelScale
from ...registry import bases, filters, unknown
from ...store import written
from ..data.augment import choose_steps
from ..data.dataset import Task
from .losses import fitting_losses

# The paper's rates: Adam at 0.008 for microscopy, at 0.0001 for x-rays.
DEFAULT_LR: dict[Task, float] = {"segmentation": 0.008, "multilabel": 1e-4, "multiclass": 1e-4}
Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
Accelerator = Literal["auto", "cpu", "cuda", "mps"]


@dataclass(frozen=True)
class RunConfig:
    """What a run does.

    Parameters
    ----------
    model
        A model's name (explainfix list models), NAME@FILE to go on from weights, a file that
        explainfix saved, or a run's folder.
    data
        A dataset's name (explainfix list datasets), or NAME:PATH.
    data_options
        Options of the dataset.
    skip_damaged
        Go on without the files that cannot be read.
    train_split
        The split to train on.
    train_share
        The share of its images to train on, drawn by the seed.
    evaluate_on
        The splits to score; the first chooses the best weights.
    evaluate_every
        Epochs between two evaluations.
    recalibrate
        Before each evaluation, average BatchNorm's statistics anew over so many training batches
        (default: none, they are as training left them).
    weights
        'pretrained', or a safetensors or .pth file (default: random).
    fix
        The rule for the spatial filters (explainfix list filters); without it they are learned.
    fix_seed
        Same seed, same filters.
    fix_scale
        Norm of the kernels: the method's own, or Kaiming's for networks without BatchNorm.
    fix_guide
        What guides guidedsteer: a saved file, the name of a pretrained model, or 'imagenet', which
        ships with explainfix.
    fix_layers
        Only these layers: paths or patterns such as 'layer4.*'.
    fix_options
        Options of the rule.
    mix
        Put a learned 1x1 behind the fixed layers that nothing learned mixes.
    steer
        Fixed filters for each channel and a learned 1x1 in the place of dense convolutions; fix
        may then name a basis too (dct2, haar, pca).
    steer_filters
        How many filters a channel has (default: a whole basis, or one that is drawn).
    steer_energy
        The share of a layer's energy that the filters of a basis must hold.
    zero
        Share of the fixed kernels, least salient first, that are zero from the first step on.
    zero_by
        What is salient: the gradient times the weight, as in the paper's equation, or the gradient.
    zero_batches
        Over how many batches, the first ones of the first epoch.
    zero_from
        The network whose saliency it is: a run, or a saved model, with the same layers (default:
        this one's own, before its first step).
    prune
        Cut what zero leaves dead before the first step, and fill what is still zero.
    augment
        What training does to images: flips, sideways, rotate90, shift, elastic, brightness, noise;
        or none (default: the dataset's own).
    epochs
        Passes over the data; more than a run has had go on with it, unless the schedule depends
        on how many there are.
    patience
        Stop after so many evaluations without a better score (default: never).
    batch_size
        Images a batch, in each process.
    accumulate
        Batches a step.
    eval_batch_size
        Images a batch in evaluation (default: 1 for masks, as smaller images are padded, else
        the batch size).
    optimizer
        Which optimizer, with its defaults.
    lr
        Learning rate (default: the paper's, 0.008 for masks and 0.0001 for labels).
    schedule
        Constant, or one cycle up to the rate and down to nothing.
    weight_decay
        Weight decay.
    clip
        Largest norm of the gradient.
    loss
        Which loss (default: bce for masks of one class, cross_entropy for those of several, focal
        for several labels, cross_entropy for one).
    teacher
        A trained network to learn from too: a saved file, NAME@FILE, or a run, with the same
        outputs.
    distil
        The share of the loss, above 0 and up to 1, that is the distance to the teacher's outputs.
    seed
        Seed of the weights, the order of the data and the augmentations.
    accelerator
        What to run on.
    devices
        Processes: one for each GPU, or several on the CPU.
    precision
        Precision of the arithmetic.
    channels_last
        Keep the channels of a pixel side by side in memory: often faster (explainfix tune).
    frugal
        Keep less for the backward pass and compute it again: the same numbers in less memory.
    compile
        Let torch.compile make one graph of a step, once, in minutes: then some networks train
        faster (explainfix tune).
    workers
        Processes that load data, for each training process; 0 loads between steps.
    checkpoint_seconds
        A checkpoint is written after every epoch, and within one after this time.
    tensorboard
        Write TensorBoard events too.
    """

    model: str = "unetd"
    data: str = "nuclei"
    data_options: Mapping[str, Any] = field(default_factory=dict)
    skip_damaged: bool = False
    train_split: str = "train"
    train_share: float = 1.0
    evaluate_on: tuple[str, ...] = ("val",)
    evaluate_every: int = 1
    recalibrate: int = 0
    weights: str | None = None
    fix: str | None = None
    fix_seed: int = 0
    fix_scale: KernelScale = "paper"
    fix_guide: str | None = None
    fix_layers: tuple[str, ...] = ()
    fix_options: Mapping[str, Any] = field(default_factory=dict)
    mix: bool = False
    steer: bool = False
    steer_filters: int | None = None
    steer_energy: float | None = None
    zero: float | None = None
    zero_by: Literal["weight_gradient", "gradient"] = "weight_gradient"
    zero_batches: int = 8
    zero_from: str | None = None
    prune: bool = False
    augment: tuple[str, ...] = ()
    epochs: int = 20
    patience: int | None = None
    batch_size: int = 10
    accumulate: int = 1
    eval_batch_size: int | None = None
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float | None = None
    schedule: Literal["constant", "onecycle"] = "constant"
    weight_decay: float = 0.0
    clip: float | None = None
    loss: Literal["bce", "dice", "dice_cross_entropy", "focal", "cross_entropy"] | None = None
    teacher: str | None = None
    distil: float | None = None
    seed: int = 0
    accelerator: Accelerator = "auto"
    devices: int = 1
    precision: Precision = "32-true"
    channels_last: bool = False
    frugal: bool = False
    compile: bool = False
    workers: int = 0
    checkpoint_seconds: float = 300.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, kind in typing.get_type_hints(RunConfig).items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), kind))
        for name in (
            "epochs", "batch_size", "accumulate", "devices", "evaluate_every", "zero_batches",
        ):  # fmt: skip
            _at_least(self, name, 1)
        for name in ("seed", "fix_seed", "workers", "weight_decay", "checkpoint_seconds"):
            _at_least(self, name, 0)
        _at_least(self, "recalibrate", 0)
        for name in ("eval_batch_size", "steer_filters", "patience"):
            _at_least(self, name, 1)
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0, not {value!r}")
        if self.fix is not None and not (self.steer and self.fix in bases):
            filters.find(self.fix)
        elif self.fix is None:
            for name in ("fix_guide", "fix_layers", "fix_options", "mix", "steer"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs fix, the rule to use")
        if self.mix and self.steer:
            raise ValueError("give mix or steer, not both: steered layers are mixed already")
        if not self.steer and (self.steer_filters, self.steer_energy) != (None, None):
            raise ValueError("steer_filters and steer_energy need steer")
        if self.zero is None and self.prune:
            raise ValueError("prune needs zero, the share of the kernels to begin with")
        check_share("train_share", self.train_share)
        if self.zero is None and self.zero_from is not None:
            raise ValueError("zero_from needs zero, the share of the kernels that are zero")
        if self.zero is not None:
            if not 0 < self.zero < 1:
                raise ValueError(f"zero must be above 0 and below 1, not {self.zero!r}")
            if self.fix is None and not self._goes_on:
                raise ValueError("zero needs fix, or a saved model whose filters are fixed")
        check_share("distil", self.distil)
        if self.distil is None and self.teacher is not None:
            raise ValueError("teacher needs distil, the share of the loss that is its due")
        if self.teacher is None and self.distil is not None:
            raise ValueError("distil needs teacher, the network to learn from")
        if self.compile and self.frugal:
            raise ValueError("give frugal or compile, not both: a compiler decides what is kept")
        if not self.evaluate_on:
            raise ValueError("evaluate_on must name a split to score")
        choose_steps((), self.augment)

    @property
    def _goes_on(self) -> bool:
        """Whether the model is a file or a run's folder, which may have fixed filters, no name."""
        return self.model.endswith(".safetensors") or (
            ":" not in self.model and len(Path(self.model).parts) > 1
        )

    def resolved(self, task: Task, classes: int = 1) -> "RunConfig":
        """The same with every default that depends on the task filled in."""
        one = 1 if task == "segmentation" else self.batch_size
        fitting = fitting_losses(task, classes)
        if self.loss is not None and self.loss not in fitting:
            raise unknown(f"loss for {task}", self.loss, fitting)
        changes: dict[str, Any] = {
            "lr": self.lr or DEFAULT_LR[task],
            "loss": self.loss or fitting[0],
            "eval_batch_size": self.eval_batch_size or one,
        }
        return dataclasses.replace(self, **changes)

    def to_toml(self) -> str:
        """All options, those without a value as comments; `read_config` reads it."""
        lines, tables = [], []
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, dict):
                tables += [f"\n[{name}]", *(f"{k} = {_toml(v)}" for k, v in value.items())]
            else:
                lines.append(f"# {name} =" if value is None else f"{name} = {_toml(value)}")
        return "\n".join([*lines, *tables]) + "\n"


def read_config(path: str | Path) -> dict[str, Any]:
    """The options in a TOML file, checked: names that exist, values of their types."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
        make_config(given)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{str(path)!r} is no TOML file: {error}") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from None
    return given


def put_options(path: str | Path, options: Mapping[str, Any]) -> None:
    """Set options in a TOML file, or in a new one; every other line of it stays."""
    path = Path(path)
    there = read_config(path) if path.exists() else {}
    lines = path.read_text().splitlines() if path.exists() else []
    end = next((n for n, line in enumerate(lines) if line.startswith("[")), len(lines))  # a table
    wanted = {name: f"{name} = {_toml(value)}" for name, value in options.items()}
    for n, line in enumerate(lines[:end]):
        lines[n] = wanted.get(line.partition("=")[0].strip(), line)
    new = [line for name, line in wanted.items() if name not in there]
    text = "\n".join([*new, *lines]) + "\n"
    if tomllib.loads(text) != there | dict(options):  # an option whose name is in quotes, say
        by_hand = ", ".join(wanted.values())
        raise ValueError(f"{str(path)!r} cannot be changed line by line: write {by_hand}")
    with written(path, overwrite=True) as file:
        file.write_text(text)


def make_config(options: Mapping[str, Any]) -> RunConfig:
    """The config with these options, or an error that names the first wrong one."""
    known = [entry.name for entry in dataclasses.fields(RunConfig)]
    for name in options:
        if name not in known:
            raise unknown("option", name, known)
    return RunConfig(**options)


def check_share(name: str, value: float | None) -> None:
    """Raise unless this is a share, above 0 and up to 1, or nothing."""
    if value is not None and not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, not {value!r}")


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value, as the type its field has; a `ValueError` if it is none."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
        origin = typing.get_origin(kind)
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise unknown(f"{name}", value, typing.get_args(kind))
        return value
    if origin is tuple:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ValueError(f"{name} must be a list of names, not {value!r}")
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return dict(value)
        raise ValueError(f"{name} must be a table of options, not {value!r}")
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        words = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
        raise ValueError(f"{name} must be {words[kind]}, not {value!r}")
    return value


def _at_least(config: RunConfig, name: str, least: int) -> None:
    value = getattr(config, name)
    if value is not None and not least <= value < float("inf"):
        raise ValueError(f"{name} must be at least {least}, not {value!r}")


def _toml(value: Any) -> str:
    # JSON's strings, numbers, booleans and arrays are TOML's too.
    if isinstance(value, str | bool | int | float | list | tuple):
        return json.dumps(value)
    raise ValueError(f"{value!r} cannot be written as TOML")
