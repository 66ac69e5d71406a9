"""export_onnx: a model as an ONNX file, checked against PyTorch before it appears."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import private
from .extras import needed_for
from .layers import as_found
from .running import explained, reason_of
from .store import check_free, written

_AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_LARGEST = 2**31 - 1  # bytes: what one protobuf file can hold
_STEP = 32  # what the second size of the check is larger by; most networks halve five times


@dataclass(frozen=True)
class Check:
    """How far ONNX Runtime's outputs are from PyTorch's for inputs of one shape."""

    shape: tuple[int, ...]
    difference: float  # the largest of an output, relative to their root mean square


@dataclass(frozen=True)
class OnnxReport:
    """What was exported. A free axis of the input or of an output has a name, others a number."""

    bytes: int
    opset: int
    inputs: dict[str, tuple[int | str, ...]]
    outputs: dict[str, tuple[int | str, ...]]
    checks: tuple[Check, ...]
    seconds: float
    fixed: str | None = None  # why an axis that could be free is not

    @property
    def difference(self) -> float | None:
        """The largest difference of all checks; none if nothing was checked."""
        return max((check.difference for check in self.checks), default=None)

    def __str__(self) -> str:
        lines = [
            f"{name}: ({', '.join(map(str, shape))})"
            for name, shape in (*self.inputs.items(), *self.outputs.items())
        ]
        if self.fixed:
            lines.append(f"Axes with a number are fixed; with free ones: {self.fixed}.")
        lines += [
            f"Largest difference to PyTorch at {'x'.join(map(str, check.shape))}: "
            f"{check.difference:.1e}."
            for check in self.checks
        ]
        return "\n".join(lines)


def export_onnx(
    model: nn.Module,
    path: str | Path,
    example: Tensor,
    *,
    check: bool = True,
    overwrite: bool = False,
) -> OnnxReport:
    """Write the model, as it evaluates, to one ONNX file that takes batches of any size.

    `example` is an input `(n, c, ...)`. Its height and width are free too where the model allows;
    where it does not even allow a free batch, the file takes the shape of the example alone. The
    report says which axes are free, and why others are not.
    ONNX Runtime's outputs are compared with PyTorch's on the example and on a larger one, and the
    file appears under its name only if they agree; differences are relative to the outputs' root
    mean square.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    with needed_for("exporting"):
        for package in ("onnx", "onnxscript", *(["onnxruntime"] if check else [])):
            import_module(package)
    if not isinstance(example, Tensor) or example.ndim < 2:
        raise ValueError("the example must be one tensor whose first axis is the batch")
    tensors = (*model.parameters(), *model.buffers())
    if (size := sum(t.numel() * t.element_size() for t in tensors)) > _LARGEST:
        raise ValueError(f"the model has {size / 1e9:.1f} GB, and one ONNX file holds 2.1 at most")
    started = time.perf_counter()
    with as_found(model), torch.no_grad(), written(path, overwrite=overwrite) as temporary:
        model.eval()
        names = _output_names(_run(model, example))
        spatial = dict(enumerate(_AXES.get(example.ndim - 2, ()), start=2))
        fixed: str | None = None
        for free in ({0: "batch", **spatial}, {0: "batch"}, {}):
            try:
                program = _exported(model, example, names, free)
                program.save(temporary, external_data=False)
                checks = tuple(_checks(model, temporary, example)) if check else ()
                _require_agreement(checks, example.dtype)
                break
            except ValueError as problem:  # with fewer free axes it may work
                if not free:
                    raise
                fixed = fixed or str(problem).rstrip(".")
        graph = program.model.graph
        return OnnxReport(
            bytes=temporary.stat().st_size,
            opset=program.model.opset_imports[""],
            inputs={value.name: _shape(value) for value in graph.inputs},
            outputs={value.name: _shape(value) for value in graph.outputs},
            checks=checks,
            seconds=time.perf_counter() - started,
            fixed=fixed,
        )


def _run(model: nn.Module, example: Tensor) -> Any:
    with explained(f"an input of shape {tuple(example.shape)}"):
        return model(example)


def _output_names(result: Any) -> list[str]:
    leaves = private.flat_tensors(result)
    if isinstance(result, dict) and len(result) == len(leaves):
        return [str(name) for name in result]
    return ["output"] if len(leaves) == 1 else [f"output{i}" for i in range(len(leaves))]


def _exported(model: nn.Module, example: Tensor, names: list[str], free: dict[int, str]) -> Any:
    # Of a batch of one the exporter would think that it is always one.
    batch = torch.cat([example, example]) if free and len(example) == 1 else example
    try:
        with warnings.catch_warnings(action="ignore"):  # of its own parts
            return torch.onnx.export(
                model,
                (batch,),
                input_names=["input"],
                output_names=names,
                dynamic_shapes=(free,) if free else None,
                dynamo=True,
                verbose=False,
            )
    except Exception as problem:  # the exporter raises whatever its many parts raise
        raise ValueError(
            f"PyTorch's exporter cannot export {type(model).__name__}: {reason_of(problem)}"
        ) from problem


def _shape(value: Any) -> tuple[int | str, ...]:
    return tuple(axis if isinstance(axis, int) else str(axis) for axis in value.shape)


def _checks(model: nn.Module, file: Path, example: Tensor) -> Iterator[Check]:
    """The example, and a batch of three larger ones."""
    onnxruntime = import_module("onnxruntime")  # it has no types
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # ONNX Runtime's errors have no common class
        raise ValueError(f"ONNX Runtime cannot read the export: {reason_of(problem)}") from problem
    (takes,) = session.get_inputs()
    for inputs in (example, _larger(model, example, takes.shape)):
        theirs = private.flat_tensors(model(inputs))
        try:
            ours = session.run(None, {takes.name: inputs.cpu().numpy()})
        except Exception as problem:
            where = f"an input of shape {tuple(inputs.shape)}"
            raise ValueError(f"ONNX Runtime fails on {where}: {reason_of(problem)}") from problem
        pairs = zip((torch.from_numpy(array) for array in ours), theirs, strict=True)
        yield Check(tuple(inputs.shape), max(_difference(one, other) for one, other in pairs))


def _larger(model: nn.Module, example: Tensor, takes: Sequence[int | str]) -> Tensor:
    """Another batch, larger along the axes that the export takes to be free."""
    batch = 3 if isinstance(takes[0], str) else len(example)
    channels, *size = example.shape[1:]
    generator = torch.Generator().manual_seed(0)
    further = [length + _STEP * (axis + 1) for axis, length in enumerate(size)]
    for larger in (further, [2 * length for length in size]):
        pairs = zip(size, larger, takes[2:], strict=True)
        lengths = [more if isinstance(free, str) else length for length, more, free in pairs]
        noise = torch.randn((batch, channels, *lengths), generator=generator).to(example)
        inputs = example.mean() + example.std() * noise if example.numel() > 1 else noise
        with contextlib.suppress(RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            model(inputs)
            return inputs
    raise ValueError(f"the model does not run on inputs of shape {tuple(inputs.shape)}")


def _difference(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        raise ValueError(
            f"an output of the export is {tuple(one.shape)}, PyTorch's {tuple(other.shape)}"
        )
    one, other = one.double(), other.double().cpu()
    scale = float(other.square().mean().sqrt()) or 1.0
    return float((one - other).abs().max()) / scale


def _require_agreement(checks: Sequence[Check], dtype: torch.dtype) -> None:
    limit = 1e-3 if dtype in (torch.float32, torch.float64) else 3e-2
    for check in checks:
        if not check.difference < limit:  # NaN is no agreement either
            raise ValueError(
                f"the export was not written: at {tuple(check.shape)} its outputs are "
                f"{check.difference:.2g} of their size off PyTorch's (at most {limit:g})"
            )
