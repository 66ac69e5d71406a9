"""Models of your own: FILE.py:FACTORY, a function of that file that returns a module."""

import ast
import importlib.util
import inspect
import math
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn
from torch.nn.parameter import is_lazy

from ..layers import spatial_layers
from ..registry import unknown

COUNTS = ("num_classes", "in_channels")  # what a factory may be asked for


def split_factory(spec: str) -> tuple[str, str] | None:
    """FILE.py:FACTORY in two, or `None`.

    >>> split_factory("nets/my_net.py:unet"), split_factory("timm:resnet18")
    (('nets/my_net.py', 'unet'), None)
    """
    found = re.fullmatch(r"(.+\.py):(\w+)", spec)
    return (found[1], found[2]) if found else None


def build_own(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    """What the factory returns; what it raises, with the line of its own file."""
    file, _, factory = name.rpartition(":")
    if pretrained:
        raise ValueError(f"{name!r} has no pretrained weights to look up; pass weights=FILE")
    with _as_a_script(Path(file)) as module:
        return _call(module, file, factory, num_classes=num_classes, in_channels=in_channels)


def _call(module: ModuleType, file: str, factory: str, **counts: int | None) -> nn.Module:
    name = f"{file}:{factory}"
    functions = [n for n, f in vars(module).items() if callable(f) and not n.startswith("_")]
    if factory not in functions:
        raise unknown(f"function in {file!r}:", factory, list_factories(Path(file)) or functions)
    build = getattr(module, factory)
    options = {option: count for option, count in counts.items() if count is not None}
    accepted = inspect.signature(build).parameters.values()
    for option in options:
        if not any(p.name == option or p.kind is p.VAR_KEYWORD for p in accepted):
            raise ValueError(f"{name!r} takes no {option}: give the function that parameter")
    for parameter in accepted:
        if _is_required(parameter) and parameter.name not in options:
            asked = f"--{parameter.name.replace('_', '-')}" if parameter.name in COUNTS else ""
            remedy = f"give {asked}" if asked else "give it a default"
            raise ValueError(f"{name!r} needs {parameter.name!r}: {remedy}")
    with _failures_placed(f"{name!r} raised", Path(file)):
        model = build(**options)
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name!r} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def begins_as_pytorch_does(model: nn.Module) -> bool:
    """Whether every spatial kernel is spread evenly up to PyTorch's bound, as nothing learned is.

    A factory may load weights: it is not known of its networks that they are random.

    >>> begins_as_pytorch_does(nn.Conv2d(3, 64, 3))
    True
    """
    layers = spatial_layers(model).values()
    for layer in layers:
        if is_lazy(layer.weight) or layer.weight.is_meta:
            return False
        share = layer.weight.detach().double().abs() * math.sqrt(layer.weight[0].numel())
        slack = 5 / math.sqrt(share.numel())  # five deviations, or more, of either mean
        even = abs(share.mean() - 1 / 2) < 0.29 * slack
        even &= abs(share.square().mean() - 1 / 3) < 0.3 * slack
        if not (even and share.max() < 1 + 1e-6):
            return False
    return bool(layers)


def list_factories(file: Path) -> list[str]:
    """The functions and classes of a file that can be called as a factory; it is not run."""
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError):
        return []
    found = []
    for entry in body:
        if isinstance(entry, ast.FunctionDef) and _asks_for(entry.args) <= set(COUNTS):
            found.append(entry.name)
        elif isinstance(entry, ast.ClassDef) and entry.bases:
            makers = [e for e in entry.body if getattr(e, "name", "") == "__init__"]
            if all(_asks_for(m.args) <= {"self", *COUNTS} for m in makers):  # type: ignore[attr-defined]
                found.append(entry.name)
    return [name for name in found if not name.startswith("_")]


def which_factory(file: Path, rest: str = "") -> ValueError:
    """The error for a file without a factory: it lists those it has, in the form to type."""
    if not (names := list_factories(file)):
        return ValueError(f"{str(file)!r} has no function that could build a model")
    choices = " or ".join(repr(f"{file}:{name}{rest}") for name in names[:8])
    return ValueError(f"which function of {str(file)!r} builds the model? Give {choices}")


def _asks_for(arguments: ast.arguments) -> set[str]:
    """The arguments without a default."""
    placed = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    required = placed[: len(placed) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {*required, *(a.arg for a, default in named if default is None)}


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variable


@contextmanager
def _as_a_script(file: Path) -> Iterator[ModuleType]:
    """Run a file as Python runs a script: what it imports is looked for beside it first."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(f"explainfix_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{str(file)!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[module.__name__] = module  # dataclasses look there for their own module
    try:
        with _failures_placed(f"{str(file)!r} could not be run:", file):
            spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(file.resolve().parent))
        del sys.modules[module.__name__]


@contextmanager
def _failures_placed(what: str, file: Path) -> Iterator[None]:
    """Whatever the user's code raises, as one line that names the line of the user's own file."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if Path(f.filename).resolve() == file.resolve()]
        line = error.lineno if isinstance(error, SyntaxError) else None
        source = (error.text or "").strip() if isinstance(error, SyntaxError) else ""
        if own:
            line, source = own[-1].lineno, own[-1].line or ""
        place = f" ({file}, line {line}: {source})" if line else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"{what} {type(error).__name__}: {message}{place}") from error
