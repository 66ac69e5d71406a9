"""The operations of one forward pass, as ATen calls: what a model does, whatever it looks like."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from ..layers import Convolution


@dataclass(frozen=True)
class Ref:
    """A value in the graph: the number of a tensor at one point of the pass."""

    number: int


@dataclass(frozen=True)
class Node:
    """One operation: its ATen overload, its arguments with `Ref` for tensors, and what it made."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Ref, ...]
    module: str  # the path of the module that was running
    into_part: bool  # it writes into a part of a larger tensor

    @cached_property
    def inputs(self) -> list[Ref]:
        found: list[Ref] = []
        replaced((self.args, self.kwargs), Ref, found.append)
        return found


@dataclass
class Graph:
    """A recorded pass. Of activations it keeps the shapes alone."""

    nodes: list[Node] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)  # parameters, buffers, vectors
    parameters: dict[int, str] = field(default_factory=dict)  # value → name of parameter or buffer
    kernels: set[str] = field(default_factory=set)  # the weights that belong to a convolution
    modules: dict[str, nn.Module] = field(default_factory=dict)
    inputs: list[Ref] = field(default_factory=list)
    outputs: list[Ref] = field(default_factory=list)
    result: Any = None

    @cached_property
    def named(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return {name: self.tensors[number] for number, name in self.parameters.items()}

    @cached_property
    def readers(self) -> dict[Ref, list[Node]]:
        """Value → the operations that read it."""
        found: dict[Ref, list[Node]] = {}
        for node in self.nodes:
            for ref in dict.fromkeys(node.inputs):
                found.setdefault(ref, []).append(node)
        return found


def replaced(tree: Any, kind: type, replace: Callable[[Any], Any]) -> Any:
    """The same arguments, with every leaf of a kind replaced: the part of a pytree used here."""
    if isinstance(tree, kind):
        return replace(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)([replaced(leaf, kind, replace) for leaf in tree])
    if isinstance(tree, dict):
        return {key: replaced(leaf, kind, replace) for key, leaf in tree.items()}
    return tree


class _Recorder(TorchDispatchMode):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.graph = Graph()
        self.current: list[str] = [""]
        # The id of a tensor → the tensor, which may be gone by now, and its value.
        self.numbers: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self.graph.modules = dict(model.named_modules(remove_duplicate=False))
        for path, module in self.graph.modules.items():
            if isinstance(module, Convolution):
                self.graph.kernels.add(f"{path}.weight" if path else "weight")
        named = [*model.named_parameters(), *model.named_buffers()]
        for name, tensor in named:
            number = self.number(tensor)
            self.graph.parameters[number] = name
            self.graph.tensors[number] = tensor

    def number(self, tensor: Tensor) -> int:
        """The value a tensor holds now; a new one if it was never seen."""
        known, number = self.numbers.get(id(tensor), (None, -1))
        return number if known is not None and known() is tensor else self.renew(tensor)

    def renew(self, tensor: Tensor) -> int:
        new = len(self.graph.shapes)
        self.numbers[id(tensor)] = weakref.ref(tensor), new
        self.graph.shapes[new] = tuple(tensor.shape)
        if tensor.dim() <= 1:
            self.graph.tensors[new] = tensor
        return new

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}

        def refer(leaf: Tensor) -> Ref:
            return Ref(self.number(leaf))

        noted_args, noted_kwargs = replaced((args, kwargs), Tensor, refer)
        into_part = False
        if args and isinstance(args[0], Tensor) and args[0]._base is not None:
            into_part = args[0].numel() != args[0]._base.numel()
        result = func(*args, **kwargs)
        made: list[Tensor] = []
        replaced(result, Tensor, made.append)
        # An operation in place gives back its argument: the tensor holds a new value from here on.
        outputs = tuple(Ref(self.renew(tensor)) for tensor in made)
        self.graph.nodes.append(
            Node(func, tuple(noted_args), noted_kwargs, outputs, self.current[-1], into_part)
        )
        return result


def record(model: nn.Module, inputs: tuple[Any, ...]) -> Graph:
    """Run the model once, without gradients, and write down every operation."""
    recorder = _Recorder(model)
    graph = recorder.graph
    given = [leaf for leaf in tree_flatten(inputs)[0] if isinstance(leaf, Tensor)]
    graph.inputs = [Ref(recorder.number(tensor)) for tensor in given]
    with torch.no_grad(), _module_names(model, recorder.current), recorder:
        graph.result = model(*inputs)
    results = [leaf for leaf in tree_flatten(graph.result)[0] if isinstance(leaf, Tensor)]
    graph.outputs = [Ref(recorder.number(tensor)) for tensor in results]
    return graph


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(func)
        return func(*args, **(kwargs or {}))


def check_same_way(model: nn.Module, inputs: tuple[Any, ...], graph: Graph) -> None:
    """Raise if another pass does something else than the recorded one, and say where."""
    mode = _Operations()
    with torch.no_grad(), mode:
        model(*inputs)
    recorded = [node.op for node in graph.nodes]
    for number, (one, other) in enumerate(zip_longest(recorded, mode.operations)):
        if one is not other:
            module = graph.nodes[min(number, len(recorded) - 1)].module
            raise ValueError(
                f"the model does not do the same on every call: operation {number + 1} was "
                f"{one or 'the end'} in {module!r} when it was recorded, then {other or 'the end'}"
            )


@contextmanager
def _module_names(model: nn.Module, current: list[str]) -> Iterator[None]:
    """Keep the path of the innermost running module on top of `current`."""
    handles = []

    def leave(*_: Any) -> None:
        current.pop()

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: current.append(name)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
