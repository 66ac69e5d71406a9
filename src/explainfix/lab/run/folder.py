"""A run on disk: its folder, what is in it, and the model it started from or ended with."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import torch
from torch import nn

from ...fix import fix_
from ...marks.untrained import is_untrained
from ...recipe import recipes
from ...registry import bases, openers
from ...steering import mix_, steer_
from ...store import load
from ...table import as_frame
from ...zoo import create_model
from ...zoo.opening import is_complete, open_guide, open_network, split_run, split_weights
from ...zoo.own import split_factory
from ..data.augment import choose_steps
from ..data.dataset import Dataset, Signature, dataset_options, draw_share, open_dataset
from ..data.loader import Share, training_steps
from .checkpoint import Checkpoint, writing
from .config import RunConfig, make_config, read_config
from .history import METRICS, SPECTRA, count_stale, is_stale, read_history
from .naming import differences, run_name, run_title
from .pruned_start import zero_kernels_

if TYPE_CHECKING:
    import pandas as pd

CONFIG, DATA, RESULT = "config.toml", "data.json", "result.json"
CHECKPOINT, BEST = "checkpoint.safetensors", "best.safetensors"


@dataclass(frozen=True)
class Run:
    """A finished run: its options, a row of numbers per epoch, and the folder it is in."""

    folder: Path
    config: RunConfig
    history: Sequence[dict[str, float]]
    result: dict[str, Any]

    def table(self) -> "pd.DataFrame":
        """A row per epoch."""
        return as_frame(self.history, "epoch")

    def model(self, which: Literal["best", "last"] = "best") -> nn.Module:
        """The network with its best or its last weights."""
        return open_run_model(self.folder, which)


@dataclass(frozen=True)
class Moment:
    """What a run reports after every step, and with its row of numbers after every epoch."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    row: dict[str, float] | None = None


Report = Callable[[Moment], None]


class BusyError(ValueError):
    """Another process is at this run."""


def settle(config: RunConfig) -> RunConfig:
    """The same with ImageNet's normalisation where pretrained weights expect it.

    That is for datasets which can, unless they are told otherwise or give one channel.
    """
    options = config.data_options
    if config.weights != "pretrained" or options.get("grey"):
        return config
    known = dataset_options(config.data).get("normalise")
    given = options.get("normalise", "auto") != "auto"
    if given or known is None or "imagenet" not in known.choices:
        return config
    return replace(config, data_options={**options, "normalise": "imagenet"})


def open_data(config: RunConfig) -> Dataset:
    """The dataset of a run, whose splits are there and not empty."""
    dataset = open_dataset(config.data, skip_damaged=config.skip_damaged, **config.data_options)
    for split in (config.train_split, *config.evaluate_on):
        if len(dataset.split(split)) == 0:
            raise ValueError(f"the split {split!r} of {dataset.name!r} is empty")
    if config.train_share < 1:
        part = draw_share(dataset.split(config.train_split), config.train_share, config.seed)
        dataset = replace(dataset, splits={**dataset.splits, config.train_split: part})
    return replace(dataset, steps=choose_steps(dataset.steps, config.augment))


def build_model(config: RunConfig, dataset: Dataset) -> nn.Module:
    """The network of a run before its first step, fixed, zeroed and pruned if it is to be."""
    with torch.random.fork_rng([]):  # models are made on the CPU
        torch.default_generator.manual_seed(config.seed)
        model = _open_for(dataset, config.model, config.weights)
        if config.fix is not None:
            set_filters_(model, config, dataset)
        if config.zero is not None:
            zero_kernels_(model, config, dataset)
    return model


def open_teacher(config: RunConfig, dataset: Dataset) -> nn.Module | None:
    """The trained network that a run learns from, if there is one: it learns nothing itself."""
    if config.teacher is None:
        return None
    teacher = _open_for(dataset, config.teacher)
    if is_untrained(teacher):
        raise ValueError(
            f"the teacher {config.teacher!r} has random weights: give one that is trained, a saved "
            "file, NAME@FILE, or a run"
        )
    return teacher.eval().requires_grad_(False)


def _open_for(dataset: Dataset, text: str, weights: str | None = None) -> nn.Module:
    """A network with the dataset's channels and classes, or those that it has already."""
    has_counts = is_complete(text)
    return open_network(
        text,
        weights=weights,
        num_classes=None if has_counts else len(dataset.classes),
        in_channels=None if has_counts else dataset.in_channels,
    )


def set_filters_(model: nn.Module, config: RunConfig, dataset: Dataset) -> None:
    """Fix the filters of a run's network: as they are, or with a 1x1 that mixes or steers them."""
    assert config.fix is not None
    drawn = not config.steer or config.fix not in bases
    rule: dict[str, Any] = {"scale": config.fix_scale} if drawn else {}
    if config.fix_guide:
        rule["guide"] = open_guide(config.fix_guide)
    rule |= {"seed": config.fix_seed, "layers": config.fix_layers or None, **config.fix_options}
    if config.steer:
        steer_(model, config.fix, filters=config.steer_filters, energy=config.steer_energy, **rule)
        return
    fix_(model, config.fix, **rule)
    if config.mix:
        [[(images, _)]] = islice(
            training_steps(dataset, config.train_split, Share(1), seed=config.seed, epoch=0), 1
        )
        mix_(model, example_inputs=images.to(next(model.parameters())))


def find_folder(runs: Path, config: RunConfig) -> Path:
    """Where a run is, or is to be; what is there must be the run that is asked for."""
    folder = runs / run_name(config)
    if (folder / CONFIG).is_file() and (others := differences(folder / CONFIG, config)):
        told = ", ".join(f"{k} is {old!r}, not {new!r}" for k, (old, new) in others.items())
        raise ValueError(f"{str(folder)!r} holds another run, whose {told}: move it away")
    return folder


def other_lengths(runs: Path, config: RunConfig) -> dict[Path, RunConfig]:
    """The runs with the same options and files, but for when they end."""
    found = {}
    for file in sorted(runs.glob(f"{run_title(config)}-*/{CONFIG}")):
        there = make_config(read_config(file))
        as_long = replace(config, epochs=there.epochs, patience=there.patience)
        if as_long != config and run_name(as_long) == file.parent.name:
            found[file.parent] = as_long
    return found


def find_beginning(folder: Path, config: RunConfig, chosen_by: str) -> Path | None:
    """A run that did what this one is to do first, the one that came furthest.

    One cycle of the rate depends on the number of epochs from its first step on; a constant rate
    does not. This one's patience must not have ended that one before.
    """
    found = {}
    for other, options in other_lengths(folder.parent, config).items():
        history = read_history(other)
        seen = [count_stale(history[:epochs], chosen_by) for epochs in range(len(history))]
        same_rates = config.schedule == "constant" or options.epochs == config.epochs
        if not same_rates or any(is_stale(evaluations, config) for evaluations in seen):
            continue
        if (other / CHECKPOINT).is_file() and 0 < len(history) <= config.epochs:
            found[other] = len(history)
    return max(found, key=lambda other: found[other], default=None)


def begin_with(beginning: Path, folder: Path) -> None:
    """Let a new run go on from the last checkpoint of another, which stays as it is.

    If somebody is at that one, this one begins by itself.
    """
    with suppress(BusyError), locked(beginning):
        for name in (BEST, METRICS, SPECTRA, CHECKPOINT):  # the last says that the others are there
            if (beginning / name).is_file():
                with writing(folder / name) as file:
                    shutil.copyfile(beginning / name, file)


def start_run(folder: Path, config: RunConfig) -> None:
    """Write the config of a run into its folder."""
    with writing(folder / CONFIG) as file:
        file.write_text(config.to_toml())


def write_signature(folder: Path, config: RunConfig, dataset: Dataset) -> None:
    """Write into a run's folder what its model needs to be of use without its data."""
    about = {"model": network_of(config.model), **dataset.as_dict()}
    with writing(folder / DATA) as file:
        file.write_text(json.dumps(about, indent=2) + "\n")


def read_signature(folder: Path) -> tuple[str, Signature]:
    """The model of a run, its file wherever one is, and what goes into it and comes out."""
    path = folder / DATA
    if not path.is_file():
        raise ValueError(
            f"{str(folder)!r} has no {DATA}, which says how images were prepared: train again with "
            "the same options, which does no more than to write it if the run is finished"
        )
    try:
        about = json.loads(path.read_text())
        return about.pop("model"), Signature.from_dict(about)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error!r}") from None


def network_of(model: str) -> str:
    """What built a run's network, so that it can be found from anywhere.

    Of a run that goes on from another what built that one. Only what the user typed may choose
    which Python file to run, not a file of weights.
    """
    if run := split_run(model):
        return read_signature(run[0])[0]
    name, _ = split_weights(model)
    own = split_factory(name)
    return f"{Path(own[0]).expanduser().absolute()}:{own[1]}" if own else name


def read_run(folder: Path) -> Run:
    """A run that is finished."""
    config = make_config(read_config(folder / CONFIG))
    return Run(folder, config, read_history(folder), json.loads((folder / RESULT).read_text()))


def is_finished(folder: Path) -> bool:
    return (folder / RESULT).is_file()


def find_run(text: str) -> tuple[Path, str] | None:
    """The folder of a run and which of its weights: RUN, RUN@last, or a file of weights in it."""
    path = Path(text)
    found = (path.parent, path.stem) if path.suffix == ".safetensors" else split_run(text)
    return found if found and (found[0] / CONFIG).is_file() else None


@openers.register("run")
def open_run_model(folder: Path, which: str = "best") -> nn.Module:
    """The network of a run, with its best or its last weights; a model of your own too."""
    file = folder / f"{which}.safetensors"
    if not file.is_file():
        raise FileNotFoundError(f"{str(folder)!r} holds no {file.name}: was the run stopped early?")
    model, _ = read_signature(folder)
    own = split_factory(model)
    if own is None:
        return load(file)
    if not Path(own[0]).is_file():  # it was moved: the config has it as the user typed it
        model, _ = split_weights(make_config(read_config(folder / CONFIG)).model)
    return create_model(model, weights=file)


def write_result(folder: Path, network: nn.Module, progress: Checkpoint) -> None:
    """Mark a run as finished, with what it says of itself."""
    parameters = list(network.parameters())
    result = {
        "epochs": progress.epoch,
        "best": progress.best,
        "last": progress.history[-1],
        "left_out": {split: names for split, names in progress.left_out.items() if names},
        "seconds": round(sum(row["seconds"] for row in progress.history), 3),
        "parameters": sum(p.numel() for p in parameters),
        "learned_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "fixed_layers": len(recipes(network)),
        "torch": torch.__version__,
    }
    with writing(folder / RESULT) as file:
        file.write_text(json.dumps(result, indent=2) + "\n")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and keep other processes out; the system undoes it when this one dies.

    If all that comes of it is an error, and no checkpoint, a new folder is gone again.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        _lock(file, folder)
        try:
            yield
        except BaseException:
            if new and not (folder / CHECKPOINT).exists():
                shutil.rmtree(folder)
            raise


def _lock(file: TextIO, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(f"{str(folder)!r} is being run by another process") from None
