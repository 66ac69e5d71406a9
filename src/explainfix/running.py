"""Running anybody's model: tensors in whatever it takes and gives, words for what goes wrong.

Models take and give tuples, dictionaries, dataclasses, any object.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .layers import Convolution

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, nn.Module)


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor in a nest of containers and objects, in order, each once.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> one, two = torch.ones(1), torch.ones(2)
    >>> [len(t) for t in tensors_in({"a": [one, 3], "b": SimpleNamespace(mask=two, again=one)})]
    [1, 2]
    """
    found: list[Tensor] = []
    _gather(tree, found, set())
    return found


def map_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a nest with every tensor changed; what holds no tensor is not copied.

    >>> import torch
    >>> map_tensors((torch.ones(2), {"a": [torch.ones(1)], "b": "text"}), torch.neg)
    (tensor([-1., -1.]), {'a': [tensor([-1.])], 'b': 'text'})
    """
    return _changed(tree, change, {})


def example_input(model: nn.Module, size: Sequence[int]) -> Tensor:
    """Noise `(1, c, *size)` for a model whose first convolution has c inputs; one size is square.

    >>> example_input(nn.Sequential(nn.Conv2d(3, 8, 3)), [32]).shape
    torch.Size([1, 3, 32, 32])
    """
    first = next((layer for layer in model.modules() if isinstance(layer, Convolution)), None)
    if first is None:
        raise ValueError(
            f"{type(model).__name__} has no convolution to tell the shape of its input from"
        )
    axes = len(first.kernel_size)
    if len(size) not in (1, axes) or (len(size) == 1 and axes == 3):
        raise ValueError(
            f"the model's inputs have {axes} axes beside batch and channels: give a size of "
            f"{axes} numbers, not {'x'.join(map(str, size))!r}"
        )
    if min(size) < 1:
        raise ValueError(f"a size must be at least 1, not {min(size)}")
    shape = 1, first.in_channels, *(size if len(size) == axes else (*size,) * axes)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return noise.to(first.weight)


def channel_hint(model: nn.Module, channels: int, remedy: str) -> str:
    """What to say after an error if the model's first convolution takes other channels; or nothing.

    >>> channel_hint(nn.Sequential(nn.Conv2d(3, 8, 3)), 1, "take --in-channels 1")
    '. The model takes 3 channels and the images have 1: take --in-channels 1'
    """
    first = next((layer for layer in model.modules() if isinstance(layer, Convolution)), None)
    if first is None or first.in_channels == channels:
        return ""
    taken = f"{first.in_channels} channel{'s' if first.in_channels != 1 else ''}"
    return f". The model takes {taken} and the images have {channels}: {remedy}"


@contextmanager
def explained(inputs: object) -> Iterator[None]:
    """Turn what a model raises into one line that says on which inputs it does not run."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError, AssertionError) as problem:
        reason = reason_of(problem)
        several = "; give several inputs as ((a, b), target) or by their names in a dictionary"
        remedy = several if "positional argument" in reason else ""
        raise ValueError(f"the model does not run on {inputs}: {reason}{remedy}") from problem


def reason_of(problem: BaseException) -> str:
    """The first line of what went wrong at first, or its kind."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return next((line for line in str(problem).splitlines() if line), type(problem).__name__)


def is_finite(tree: Any) -> bool:
    """Whether no tensor of a nest holds NaN or infinity."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors_in(tree))


def first_not_finite(model: nn.Module, run: Callable[[], object]) -> str | None:
    """The path of the first layer whose output is not finite in a pass, without gradients."""
    found: list[str] = []

    def watch(path: str) -> Callable[[nn.Module, Any, object], None]:
        def hook(module: nn.Module, inputs: Any, output: object) -> None:
            if not found and not is_finite(output):
                found.append(path)

        return hook

    leaves = [(path, m) for path, m in model.named_modules() if not any(m.children())]
    handles = [module.register_forward_hook(watch(path)) for path, module in leaves]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _parts(tree: Any) -> Iterator[Any]:
    """What a container or an object holds."""
    if isinstance(tree, Mapping):
        yield from tree.values()
    elif isinstance(tree, (list, tuple, set, frozenset)):
        yield from tree
    yield from _attributes(tree).values()


def _attributes(tree: Any) -> dict[str, Any]:
    """The attributes of an object, be they in its dictionary or in slots."""
    found = dict(getattr(tree, "__dict__", {}))
    for kind in type(tree).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(tree, name):
                found[name] = getattr(tree, name)
    return found


def _opaque(tree: Any) -> bool:
    return isinstance(tree, _PLAIN) or callable(tree) or type(tree).__module__ == "torch"


def _gather(tree: Any, found: list[Tensor], seen: set[int]) -> None:
    if id(tree) in seen:
        return
    if isinstance(tree, Tensor):
        seen.add(id(tree))
        found.append(tree)
    elif not _opaque(tree):
        seen.add(id(tree))
        for part in list(_parts(tree)):
            _gather(part, found, seen)


def _changed(tree: Any, change: Callable[[Tensor], Tensor], done: dict[int, Any]) -> Any:
    if id(tree) in done:
        return done[id(tree)]
    if isinstance(tree, Tensor):
        done[id(tree)] = change(tree)
    elif _opaque(tree) or not tensors_in(tree):
        return tree
    elif isinstance(tree, tuple):
        parts = [_changed(part, change, done) for part in tree]
        named = hasattr(tree, "_fields")
        done[id(tree)] = type(tree)(*parts) if named else type(tree)(parts)
    else:
        new = done[id(tree)] = copy.copy(tree)
        if isinstance(tree, Mapping):
            for key in tree:
                new[key] = _changed(tree[key], change, done)
        elif isinstance(tree, list):
            new[:] = [_changed(part, change, done) for part in tree]
        for name, value in _attributes(tree).items():
            if (part := _changed(value, change, done)) is not value:
                object.__setattr__(new, name, part)  # a frozen dataclass too
    return done[id(tree)]
