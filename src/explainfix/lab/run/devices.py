"""What training runs on: the devices, the optimizer, the learning rate."""

import atexit
import math
import os
import shutil
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...backward.pointwise import multiply_pointwise_
from ...backward.recompute import make_frugal_
from ...backward.rows import normalise_in_rows_
from ...extras import needed_for
from ...layout import to_channels_last
from .config import RunConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def started_by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def make_ready_(model: nn.Module, *, channels_last: bool, frugal: bool) -> None:
    """Let a network train as these options say.

    In channels last the channels of a pixel, or voxel, are side by side in memory.
    """
    make_frugal_(model, free=not frugal)
    if not channels_last:
        return
    for parameter in model.parameters():
        parameter.data = to_channels_last(parameter.data)
    normalise_in_rows_(model)
    if not frugal:  # which asks convolutions what they keep
        multiply_pointwise_(model)


def find_device(accelerator: str, count: int = 1) -> str:
    """What PyTorch calls the devices asked for, if so many are there; `auto` is the fastest."""
    there = {
        "cuda": (torch.cuda.device_count(), "CUDA devices"),
        "mps": (int(torch.backends.mps.is_available()), "MPS devices"),
        "cpu": (os.cpu_count() or 1, "CPU cores"),
    }
    if accelerator == "auto":
        accelerator = next(kind for kind, (some, _) in there.items() if some)
    known, what = there[accelerator]
    if count > known:
        raise ValueError(f"devices={count}, but there are {known} {what}")
    return accelerator


def open_fabric(config: RunConfig) -> "Fabric":
    """Fabric for the devices asked for, if they are there."""
    elastic = started_by_torchrun()
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if elastic else config.devices
    kind = find_device(config.accelerator, here)
    if config.precision == "16-mixed" and kind == "cpu":
        raise ValueError("precision '16-mixed' needs a GPU; on a CPU take 'bf16-mixed'")
    if config.compile and not is_compiler_there(kind):
        wanted = "g++ or clang++" if kind == "cpu" else "Triton"
        raise ValueError(f"compile needs {wanted}, which is not here; train without it")
    with needed_for("training"):
        from lightning_fabric import Fabric
    return Fabric(
        accelerator=kind,
        devices=here,
        num_nodes=config.devices // here,
        strategy="ddp" if elastic else "ddp_spawn" if here > 1 else "auto",
        precision=config.precision,
    )


def launch(fabric: "Fabric", work: Callable[["Fabric"], None]) -> None:
    """Do `work` in each of Fabric's processes, and leave this one's environment as it was.

    Fabric writes there where the processes meet, for all that come later.
    """
    meeting = {name: os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT")}
    try:
        fabric.launch(work)
    finally:
        if not started_by_torchrun():
            for name, before in meeting.items():
                os.environ.pop(name, None)
                if before is not None:
                    os.environ[name] = before


def leave_group_at_exit() -> None:
    """Close this process's connections to the others before the interpreter goes.

    gloo's threads abort a process that ends around them, now and then: a run that is whole would
    be reported as one that failed.
    """
    atexit.register(_leave_group)


def _leave_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_compiler_there(device: str) -> bool:
    """Whether torch.compile finds what it needs: Triton for a GPU, a C++ compiler for the CPU."""
    if device == "cuda":
        return find_spec("triton") is not None
    known = (os.environ.get("CXX", ""), "g++", "clang++", "cl")
    return device == "cpu" and any(shutil.which(name) for name in known if name)


def make_optimizer(config: RunConfig, network: nn.Module) -> torch.optim.Optimizer:
    """An optimizer of the parameters that learn; fixed kernels get no state."""
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not learned:
        raise ValueError(f"{config.model!r} has no parameter left to learn")
    lr, decay, fused = config.lr or 0.0, config.weight_decay, in_one_kernel(learned)
    if config.optimizer == "sgd":
        return torch.optim.SGD(learned, lr, momentum=0.9, weight_decay=decay, fused=fused)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(learned, lr, weight_decay=decay, fused=fused)


def in_one_kernel(parameters: Iterable[nn.Parameter]) -> bool | None:
    """What to tell an optimizer as `fused`: on a CPU PyTorch loops over parameters by default.

    One kernel for all of them takes a third of the time. Elsewhere PyTorch chooses well (`None`).
    """
    return all(p.device.type == "cpu" and p.is_floating_point() for p in parameters) or None


def learning_rate(config: RunConfig, done: float) -> float:
    """The rate when a share `done` of all steps is done.

    One cycle goes from lr/25 to lr in 30% of the steps and on to lr/250,000, along cosines.
    """
    top = config.lr or 0.0
    if config.schedule == "constant":
        return top
    rising = done < 0.3
    start, end = (top / 25, top) if rising else (top, top / 25e4)
    part = done / 0.3 if rising else (done - 0.3) / 0.7
    return end + (start - end) * (1 + math.cos(math.pi * min(part, 1.0))) / 2
