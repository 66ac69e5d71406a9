"""What a network costs to run: its time, measured in turns with the original, its size and memory.

Nothing is guessed: a fifth of the multiply-adds may be half of the time.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...layers import as_found
from ...private import TorchDispatchMode
from ...prune.outcome import LayerSize, Size, count_positions, measure
from ...recording.call import Call
from ...recording.record import Recorder
from ...running import tensors_in
from ..measure.timing import Ratio, take_turns
from .goal import Cost, Runtime


@dataclass(frozen=True)
class Costs:
    """What a network costs, and as a share of what the original does."""

    latency: Ratio
    seconds: float
    beside: float  # the seconds of the original, in the same turns
    parameters: int
    multiply_adds: int
    memory: int  # bytes: weights, and the most that a pass holds beside them
    shares: Mapping[Cost, float]


def size_of(model: nn.Module, x: Tensor) -> tuple[Size, dict[str, LayerSize]]:
    """The size of a network and of its layers, with the multiply-adds of one pass."""
    with as_found(model):
        recorder = Recorder(model)
        recorder.run(Call.of(x), training=False)
    return measure(model, count_positions(recorder.graph))


def compare_costs(
    original: nn.Module,
    small: nn.Module,
    x: Tensor,
    *,
    runtime: Runtime = "eager",
    rounds: int = 40,
    seconds: float = 20.0,
) -> Costs:
    """The costs of a pass of `small` on a batch, beside those of the original in the same turns."""
    with _ready(original, x, runtime) as first, _ready(small, x, runtime) as second:
        raced = take_turns(
            {"original": first, "small": second}, rounds=rounds, narrow=0.03, seconds=seconds
        )
    latency = raced.ratio("small")
    sizes = [size_of(network, x)[0] for network in (original, small)]
    memory = [
        size.bytes + peak_memory(n, x) for n, size in zip((original, small), sizes, strict=True)
    ]
    return Costs(
        latency,
        raced.seconds("small"),
        raced.seconds("original"),
        sizes[1].parameters,
        sizes[1].multiply_adds,
        memory[1],
        {
            "latency": latency.middle,
            "params": sizes[1].parameters / sizes[0].parameters,
            "macs": sizes[1].multiply_adds / max(sizes[0].multiply_adds, 1),
            "memory": memory[1] / memory[0],
        },
    )


@contextmanager
def _ready(model: nn.Module, x: Tensor, runtime: Runtime) -> Iterator[Callable[[], object]]:
    """A function that does one pass, as it would be done in use."""
    if runtime == "onnx":
        with tempfile.TemporaryDirectory() as folder:
            yield _session(model, x, Path(folder) / "network.onnx")
        return
    with as_found(model):
        model.eval()

        def run() -> None:
            with torch.inference_mode():
                model(x)
                if x.is_cuda:
                    torch.cuda.synchronize()

        yield run


def _session(model: nn.Module, x: Tensor, file: Path) -> Callable[[], object]:
    from ...export import export_onnx

    export_onnx(model, file, x)
    onnxruntime = import_module("onnxruntime")  # it has no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: x.cpu().numpy()}
    return lambda: session.run(None, inputs)


def peak_memory(model: nn.Module, x: Tensor) -> int:
    """The bytes of the tensors that a pass holds at its fullest moment, weights apart.

    >>> peak_memory(nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU()), torch.ones(1, 1, 8, 8))
    1280
    """
    with as_found(model), torch.no_grad():
        model.eval()
        with _Peak((*model.parameters(), *model.buffers()), x) as watch:
            model(x)
    return int(watch.peak)


class _Peak(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive, each block of memory once."""

    def __init__(self, own: tuple[Tensor, ...], x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.own = {tensor.untyped_storage().data_ptr() for tensor in (*own, x)}
        self.users: dict[int, int] = {}
        self.now = self.peak = x.untyped_storage().nbytes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            block = tensor.untyped_storage()
            if (place := block.data_ptr()) in self.own or not block.nbytes():
                continue
            if not self.users.get(place):
                self.now += block.nbytes()
                self.peak = max(self.peak, self.now)
            self.users[place] = self.users.get(place, 0) + 1
            weakref.finalize(tensor, self._let_go, place, block.nbytes())
        return result

    def _let_go(self, place: int, size: int) -> None:
        self.users[place] -= 1
        if not self.users[place]:
            self.now -= size
