"""Recording a pass: every ATen operation, with the values that tensors hold at that point.

Tensors may share memory. An operation that writes into one gives a new value to all that look into
the same memory: what they hold is worked out anew when they are next read. So the graph is as if
nothing had been written in place.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..layers import Convolution, weight_name
from ..private import TorchDispatchMode, schema
from ..running import reason_of, tensors_in
from .call import Call, same_seeds, stilled
from .graph import Graph, Node, Ref, View, functional, replaced, rule_name

# Operations that, in place, change how a tensor looks into its memory and not what is there.
_TURNS = ("t", "transpose", "swapaxes", "swapdims", "squeeze", "unsqueeze", "detach", "as_strided")
WRITE_BACK = "write_back"  # the name of a node that puts a view's new value into what it views


class _Memory:
    """What several tensors may look into; counts how often it was written."""

    version = 0


@dataclass
class _Slot:
    """The value that a tensor holds, and how it looks into another tensor's memory."""

    number: int
    memory: _Memory
    parent: _Slot | None = None
    view: View | None = None
    version: int = 0


class Recorder(TorchDispatchMode):
    """Writes down every operation of a model's passes into one graph."""

    def __init__(self, model: nn.Module, *, named: bool = True) -> None:
        """With `named`, nodes know the module that ran them."""
        super().__init__()
        self.model = model
        self.named = named
        self.graph = Graph()
        self.training = False
        self.current: list[str] = [""]
        self.places: Counter[str] = Counter()
        # The id of a tensor → the tensor, which may be gone by now, and its slot.
        self.slots: dict[int, tuple[weakref.ref[Tensor], _Slot]] = {}
        self.own: set[int] = set()  # parameters and buffers
        self.graph.modules = dict(model.named_modules(remove_duplicate=False))
        for path, module in self.graph.modules.items():
            if isinstance(module, Convolution):
                self.graph.kernels.add(weight_name(path))
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            number = self.slot(tensor, tensor).number
            self.graph.parameters[number] = name
            self.own.add(id(tensor))
        self.graph.literals.clear()

    def run(self, call: Call, *, training: bool) -> None:
        """Run the model, without gradients, in evaluation or in training.

        If it fails, `Failed` is raised, and the graph has what was done until then.
        """
        self.model.train(training)
        self.training = training
        self.places.clear()
        copied = call.map(lambda x: x.detach().as_subclass(Tensor).clone())
        inputs = copied.tensors()
        self.graph.literals -= {self.slot(tensor).number for tensor in inputs}
        given = self.own | {id(tensor) for tensor in inputs}
        try:
            with (
                torch.no_grad(),
                same_seeds(),
                sdpa_kernel(SDPBackend.MATH),  # the choice of a kernel depends on sizes
                _module_names(self.model, self.current) if self.named else nullcontext(),
                self,
            ):
                result = self.model(*copied.args, **copied.kwargs)
        except Exception as problem:  # whatever a model of somebody's raises
            raise Failed(self.graph, problem) from problem
        self.finish(result, given)

    def slot(self, tensor: Tensor, kept: Tensor | None = None) -> _Slot:
        """What a tensor holds now; a value from nowhere if it was never seen."""
        known, slot = self.slots.get(id(tensor), (None, None))
        if slot is None or known is None or known() is not tensor:
            slot = self.add(tensor, _Slot(self.fresh(tensor, kept), _Memory()))
            self.graph.literals.add(slot.number)
        return slot

    def add(self, tensor: Tensor, slot: _Slot) -> _Slot:
        self.slots[id(tensor)] = weakref.ref(tensor), slot
        return slot

    def fresh(self, tensor: Tensor, kept: Tensor | None = None) -> int:
        """A new value, of this tensor's shape. Of vectors the numbers are kept as well."""
        new = len(self.graph.shapes)
        self.graph.shapes[new] = tuple(tensor.shape)
        if kept is None and tensor.dim() <= 1 and not tensor.is_meta:
            kept = tensor.detach().clone()
        if kept is not None:
            self.graph.tensors[new] = kept
        return new

    def read(self, slot: _Slot) -> int:
        """The value in a slot, looked up anew if its memory was written since."""
        if slot.parent is not None and slot.version != slot.memory.version:
            assert slot.view is not None
            base, view = Ref(self.read(slot.parent)), slot.view
            seen = view.op(*view.of(torch.empty(self.graph.shapes[base.number], device="meta")),
                           **view.kwargs)  # fmt: skip
            made: list[Ref] = []
            replaced(seen, Tensor, lambda part: made.append(Ref(self.fresh(part))))
            self.note(view.op, rule_name(view.op), view.of(base), view.kwargs, tuple(made))
            slot.number, slot.version = made[view.index].number, slot.memory.version
        return slot.number

    def write(self, tensor: Tensor) -> Ref:
        """A tensor was written: it has a new value, and so has all that it looks into."""
        slot = self.slot(tensor)
        above, parent = [], slot.parent
        while parent is not None:
            above.append((parent, self.read(parent)))
            parent = parent.parent
        slot.memory.version += 1
        name = self.graph.parameters.get(slot.number)
        slot.number, slot.version = self.fresh(tensor), slot.memory.version
        if name is not None:  # still that buffer, with other numbers
            self.graph.parameters[slot.number] = name
            self.graph.tensors[slot.number] = tensor
            if not self.training:
                self.graph.changing.add(name)
        written = Ref(slot.number)
        child = slot
        for parent, before in above:
            assert child.view is not None
            new = len(self.graph.shapes)
            self.graph.shapes[new] = self.graph.shapes[before]
            args = (Ref(before), Ref(child.number), child.view)
            self.note(child.view.op, WRITE_BACK, args, {}, (Ref(new),))
            parent.number, parent.version = new, slot.memory.version
            child = parent
        return written

    def note(
        self,
        op: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: tuple[Ref, ...],
    ) -> None:
        module = self.current[-1]
        self.graph.nodes.append(
            Node(op, name, args, kwargs, outputs, module, self.places[module], self.training)
        )
        self.places[module] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        noted_args, noted_kwargs = replaced(
            (args, kwargs), Tensor, lambda leaf: Ref(self.read(self.slot(leaf)))
        )
        alike = rule_name(func) == "as_strided" and _looks_alike(*args)
        result = stilled(func, args, kwargs)
        if alike:  # pooling in channels last does this; whether it does, depends on the layout
            self.add(result, self.slot(args[0]))
            return result
        writes, views = _effects(func)
        written: list[Tensor] = []
        for place, name in writes:
            given = args[place] if place < len(args) else kwargs.get(name)
            replaced(given, Tensor, written.append)
        changed = {id(tensor) for tensor in written}
        made: list[Tensor] = []
        replaced(result, Tensor, made.append)
        made += [tensor for tensor in written if not any(tensor is other for other in made)]
        if writes and rule_name(func) in _TURNS:  # another look at the same memory, not a write
            func, views, changed = functional(func), True, set()
        parent = self.slot(args[0]) if views else None
        outputs, at = [], len(self.graph.nodes)
        for index, tensor in enumerate(made):
            if id(tensor) in changed:
                outputs.append(self.write(tensor))
            elif parent is not None:
                view = View(func, (None, *noted_args[1:]), noted_kwargs, index)
                slot = _Slot(self.fresh(tensor), parent.memory, parent, view, parent.memory.version)
                outputs.append(Ref(self.add(tensor, slot).number))
            else:
                outputs.append(Ref(self.add(tensor, _Slot(self.fresh(tensor), _Memory())).number))
        self.note(func, rule_name(func), tuple(noted_args), noted_kwargs, tuple(outputs))
        # The operation comes before what its writing does to other values.
        self.graph.nodes.insert(at, self.graph.nodes.pop())
        return result

    def finish(self, result: Any, given: set[int]) -> None:
        """Note what came out: whatever of this pass is still there, wherever it is kept."""
        found = tensors_in(result)
        known = {id(tensor) for tensor in found}

        def others() -> list[Tensor]:
            here = (weak() for weak, _ in self.slots.values())
            return [t for t in here if t is not None and id(t) not in known and id(t) not in given]

        if others():  # waiting for the collector, perhaps
            gc.collect()
            found += others()
        outputs = {self.read(self.slot(tensor)): tensor for tensor in found}
        if not outputs:
            raise ValueError("what the model returns holds no tensor")
        for number, tensor in sorted(outputs.items()):
            self.graph.outputs.append(Ref(number))
            if not self.training:
                self.graph.results.append(tensor.detach().clone())


def _looks_alike(
    tensor: Tensor, size: list[int], stride: list[int], offset: int | None = None
) -> bool:
    """Whether other strides see every element where it is: those of axes of length one are free."""
    same = offset is None or offset == tensor.storage_offset()
    return (
        same
        and tuple(size) == tuple(tensor.shape)
        and all(
            length <= 1 or new == old
            for length, new, old in zip(size, stride, tensor.stride(), strict=True)
        )
    )


@cache
def _effects(op: Any) -> tuple[tuple[tuple[int, str], ...], bool]:
    """Which arguments an operation writes into, and whether its results look into the first."""
    writes = []
    described = schema(op)
    for place, argument in enumerate(described.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes.append((place, argument.name))
    looks = any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for returned in described.returns
    )
    return tuple(writes), looks


class Failed(Exception):  # noqa: N818
    """A pass that broke off: what was recorded until then, and why."""

    def __init__(self, graph: Graph, problem: Exception) -> None:
        super().__init__(reason_of(problem))
        self.graph = graph


def record(model: nn.Module, calls: list[tuple[Call, bool]], *, named: bool = True) -> Graph:
    """The graph of passes one after the other, in training where so marked."""
    recorder = Recorder(model, named=named)
    for call, training in calls:
        recorder.run(call, training=training)
    return recorder.graph


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
