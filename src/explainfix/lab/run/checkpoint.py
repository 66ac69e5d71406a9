"""Where a run is: weights, optimizer state and history in one file that is there whole or not."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn
from torch.optim import Optimizer

from ...store import check_fit, written

_HEADER = "explainfix_run"


@dataclass
class Checkpoint:
    """How far a run has come."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done of the next one
    loss: float = 0.0  # their sum
    seconds: float = 0.0  # their time
    best: float | None = None
    history: list[dict[str, float]] = field(default_factory=list)  # a row per epoch
    left_out: dict[str, Sequence[str]] = field(default_factory=dict)  # labels no split can score
    scaler: dict[str, Any] = field(default_factory=dict)  # of mixed precision


def write_checkpoint(
    path: Path, network: nn.Module, optimizer: Optimizer, progress: Checkpoint
) -> None:
    """Replace the checkpoint by the state there is now; on any error the old one stays."""
    tensors = {f"model/{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"optimizer/{name}/{key}"] = torch.as_tensor(value)
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content = serialise(plain, {_HEADER: json.dumps(asdict(progress))})
    with writing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_checkpoint(path: Path, network: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """Put a checkpoint into the network and its optimizer; on any error they are as they were."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            progress = Checkpoint(**json.loads((file.metadata() or {})[_HEADER]))
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(path)!r} is damaged or no checkpoint of a run ({error})") from None
    weights = _below("model/", tensors)
    check_fit(network.state_dict(), weights, str(path))
    states: dict[Tensor, dict[str, Tensor]] = {}
    for name, parameter in network.named_parameters():
        state = _below(f"optimizer/{name}/", tensors)
        if state and parameter.requires_grad:
            states[parameter] = {key: _like(parameter, value) for key, value in state.items()}
    network.load_state_dict(weights)
    optimizer.state.update(states)
    return progress


@contextmanager
def failures_named(path: Path) -> Iterator[None]:
    """Whatever keeps a file from being written, as an `OSError` that names the file."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{str(path)!r} could not be written: {error}") from None
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, f"{error.strerror}; nothing was changed", str(path)) from None


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """As `store.written`, over what is there."""
    with failures_named(path), written(path, overwrite=True) as temporary:
        yield temporary


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that a killed process left."""
    for file in folder.glob(".*.*"):
        if file.suffix in (".safetensors", ".csv", ".json", ".toml"):
            file.unlink(missing_ok=True)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _like(parameter: nn.Parameter, value: Tensor) -> Tensor:
    """The value where and how the optimizer would keep it beside the parameter."""
    if value.shape != parameter.shape:
        return value  # Adam's count of steps stays on the CPU
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value).detach()
