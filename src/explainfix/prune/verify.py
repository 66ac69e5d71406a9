"""Whether a cut network does what its plan says: operation by operation, then number by number.

The first holds for every input: the cut network must run the same operations, in the shapes that
the plan foresees, with the same numbers in their arguments. The second is on examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..recording.call import Call
from ..recording.graph import Graph, Node, replaced
from ..running import tensors_in
from .liveness import Life
from .state import State
from .values import WILD, Value

# Arguments that are sizes or places along an axis, by operation: they may follow the channels.
_SIZES = {
    "view": (1,), "_unsafe_view": (1,), "reshape": (1,), "_reshape_alias": (1, 2), "expand": (1,),
    "split": (1,), "split_with_sizes": (1,), "slice": (2, 3), "narrow": (2, 3), "repeat": (1,),
    "zeros": (0,), "ones": (0,), "empty": (0,), "full": (0,), "rand": (0,), "randn": (0,),
    "new_zeros": (1,), "new_ones": (1,), "new_empty": (1,), "new_full": (1,),
    "empty_strided": (0, 1), "new_empty_strided": (1, 2), "convolution": (8,),
    "affine_grid_generator": (1,), "native_group_norm": (3, 4, 5, 6), "native_layer_norm": (1,),
    "constant_pad_nd": (1,),
}  # fmt: skip
_PARTS = ("slice", "split", "split_with_sizes")
# How far rounding may move an output of a network in this precision, relative to its size.
LIMITS = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def surprise(state: State, life: Life, cut: Graph) -> tuple[Node, str] | None:
    """The first operation of the cut network that is not as foreseen, and what is wrong with it."""
    graph = state.graph
    for node, other in zip(graph.nodes, cut.nodes, strict=False):
        if node.op is not other.op and not _whole_slice(node, other):
            return node, f"{other.op} came in place of {node.op}"
        changed = _wrong_part(state, life, node, other)  # with the same numbers too
        if node.name == other.name and (node.args, node.kwargs) != (other.args, other.kwargs):
            changed = changed or _changed_numbers(node, other)
        if changed is not None:
            return node, changed
        for ref in node.inputs:
            if ref.number in graph.literals and not _same_literal(graph, cut, ref.number):
                return node, f"{node.op} reads other numbers"
        for ref in node.outputs:
            foreseen = _foreseen(state.values.get(ref.number), life)
            if foreseen is not None and foreseen != cut.shapes[ref.number]:
                return node, f"{node.op} gives {cut.shapes[ref.number]} instead of {foreseen}"
    if len(cut.nodes) < len(graph.nodes):
        node = graph.nodes[len(cut.nodes)]
        return node, f"it ends before {node.op}"
    if len(cut.nodes) > len(graph.nodes):
        other = cut.nodes[len(graph.nodes)]
        return graph.nodes[-1], f"{other.op} comes after what was the end"
    return None


def _whole_slice(node: Node, other: Node) -> bool:
    """Python's indexing leaves a slice out that takes everything."""
    return (node.name, other.name) == ("slice", "alias")


def _changed_numbers(node: Node, other: Node) -> str | None:
    """What differs in the arguments, but for sizes."""
    if node.inputs != other.inputs:
        return f"{node.op} reads something else"
    sizes = _SIZES.get(node.name, ())
    for place, (one, new) in enumerate(zip(node.args, other.args, strict=False)):
        if place not in sizes and _leaves(one) != _leaves(new):
            return f"{node.op} has {_leaves(new)} in place of {_leaves(one)}"
    if len(node.args) != len(other.args) or _leaves(node.kwargs) != _leaves(other.kwargs):
        return f"{node.op} has other options"
    return None


def _leaves(tree: Any) -> list[str]:
    found: list[str] = []
    for kind in (int, float):  # Booleans are integers
        replaced(tree, kind, lambda leaf: found.append(repr(leaf)))
    return found


def _wrong_part(state: State, life: Life, node: Node, other: Node) -> str | None:
    """Whether a slice or a split takes other channels than those foreseen."""
    if node.name not in _PARTS:
        return None
    value = state.get(node.inputs[0])
    place = 1 if node.name == "slice" else 2
    axis = (node.args[place] if len(node.args) > place else 0) % len(value.shape)
    held = value.along(axis)
    if held is None or value.labels.numel() == 1 or bool((held[0] == WILD).any()):
        return None
    left = life.kept(held[0])
    if left.all():
        return None
    args = list(other.args)
    args[0] = held[0][torch.from_numpy(left)]
    if len(args) > place:
        args[place] = 0
    parts: list[Tensor] = []
    try:
        replaced(other.op(*args), Tensor, parts.append)
    except RuntimeError:
        return f"{node.op} does not fit the channels that are left"
    for ref, part in zip(node.outputs, parts, strict=False):
        labels = state.values[ref.number].labels.reshape(-1)
        kept = labels[torch.from_numpy(life.kept(labels))]
        if not torch.equal(kept.expand_as(part) if len(kept) == 1 else kept, part):
            return f"{node.op} takes other channels"
    return None


def _same_literal(graph: Graph, cut: Graph, number: int) -> bool:
    one, other = graph.tensors.get(number), cut.tensors.get(number)
    if one is None or other is None:
        return graph.shapes[number] == cut.shapes.get(number)
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def _foreseen(value: Value | None, life: Life) -> tuple[int, ...] | None:
    """The shape of a value after the cut, if that can be said."""
    if value is None or value.parameter is not None:
        return None
    labels = value.labels.numpy()
    kept = life.table[labels]
    if (labels == WILD).any() or (labels.size == 1 and not kept.all()):
        return None
    if kept.all():
        return value.shape
    long = [axis for axis in range(labels.ndim) if labels.shape[axis] > 1]
    shape, product = list(value.shape), 1
    for axis in long:
        others = tuple(other for other in range(labels.ndim) if other != axis)
        shape[axis] = int(kept.any(axis=others).sum())
        product *= shape[axis]
    return tuple(shape) if product == int(kept.sum()) else None


def difference(ours: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest change of an output, relative to the root mean square of that output.

    >>> difference([torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 1.0])])
    1.0
    """
    if len(ours) != len(wanted):
        raise ValueError(f"there are {len(ours)} outputs instead of {len(wanted)}")
    worst = 0.0
    for one, other in zip(ours, wanted, strict=True):
        if one.shape != other.shape:
            raise ValueError(f"an output changed from {tuple(other.shape)} to {tuple(one.shape)}")
        if other.is_complex():
            one, other = torch.view_as_real(one), torch.view_as_real(other)
        if not other.numel():
            continue
        if not other.is_floating_point():  # rounding may turn a decision here and there
            apart = float((one != other).double().mean())
            worst = max(worst, math.inf if apart > 0.01 else 0.0)
            continue
        one, other = one.double(), other.double()
        finite = other.isfinite()
        if not torch.equal(one.isfinite(), finite):
            return math.inf
        one, other = one[finite], other[finite]
        scale = float(other.square().mean().sqrt()) if len(other) else 0.0
        apart = float((one - other).abs().max()) if len(other) else 0.0
        worst = max(worst, apart / (scale or 1.0))
    return worst


def precision(graph: Graph) -> torch.dtype:
    """The coarsest floating type that a pass computes in."""
    held = {tensor.dtype for tensor in graph.named.values()}
    held |= {node.kwargs.get("dtype", torch.float64) for node in graph.nodes if node.inputs}
    known = [dtype for dtype in LIMITS if dtype in held]
    return max(known, key=LIMITS.__getitem__, default=torch.float32)


def rounding(model: nn.Module, call: Call, dtype: torch.dtype) -> float:
    """How far outputs move if inputs and parameters change by about their rounding.

    Less than that no check can resolve. The parameters come back as they were.
    """
    step = 4 * torch.finfo(dtype).eps
    generator = torch.Generator().manual_seed(1)

    def nudged(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x)
        return x * (1 + step * (2 * noise - 1))

    wanted = tensors_in(call.run(model))
    before = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    try:
        with torch.no_grad():
            for parameter, value in before:
                parameter.copy_(nudged(value))
        return difference(tensors_in(call.map(nudged).run(model)), wanted)
    finally:
        with torch.no_grad():
            for parameter, value in before:
                parameter.copy_(value)


@dataclass(frozen=True)
class Variation:
    """A call that differs from the example, in what, and the outputs that the uncut model gave."""

    what: str
    call: Call
    wanted: list[Tensor]
    trains: bool  # whether it is of use in training: BatchNorm asks for several numbers


def variations(model: nn.Module, call: Call, *, chance: bool) -> list[Variation]:
    """Other numbers, another batch size and another image size, as far as the model takes them.

    `chance` says whether the model draws random numbers.
    """
    running = partial(_running, model, call, chance)
    return (
        running([(True, True)])
        or running([(True, False), (False, True)])
        or running([(False, False)])
    )


def _running(
    model: nn.Module, call: Call, chance: bool, kinds: list[tuple[bool, bool]]
) -> list[Variation]:
    found = []
    for batch, image in kinds:
        varied = _varied(call, batch=batch, image=image)
        if varied is None:
            continue
        try:
            wanted = tensors_in(varied.run(model, chance=chance))
        except Exception:  # a model may refuse another size in any way it likes
            continue
        words = ["numbers", *(["batch"] if batch else []), *(["image size"] if image else [])]
        found.append(Variation(", ".join(words), varied, wanted, batch))
    return found


def _varied(call: Call, *, batch: bool, image: bool) -> Call | None:
    """An example with other numbers, twice as many of them, in images of another size."""
    tensors = call.tensors()
    floats = [x for x in tensors if x.is_floating_point()]
    if not floats:
        return None
    images = [x for x in floats if x.dim() >= 3 and min(x.shape[2:]) > 1]
    if image and not images:
        return None
    first = floats[0]
    generator = torch.Generator().manual_seed(2)

    def change(x: Tensor) -> Tensor:
        several = batch and x.dim() and first.dim() and x.shape[0] == first.shape[0]
        if image and any(x is other for other in images):
            for axis in range(2, x.dim()):
                places = torch.arange(_other_size(x.shape[axis])) % x.shape[axis]
                x = x.index_select(axis, places.to(x.device))
        twin = x
        if x.is_floating_point() and x.numel() > 1:
            noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
            twin = x + noise * x.double().std().nan_to_num().to(x)
        return torch.cat([x, twin]) if several else twin

    return call.map(change)


def _other_size(size: int) -> int:
    """A smaller size where there is room, a larger one otherwise, of the same powers of two.

    >>> [_other_size(size) for size in (224, 100, 64, 32, 9)]
    [64, 52, 96, 48, 10]
    """
    step = min(size & -size, 32)
    if size >= 100:
        part = (4 if size >= 192 else 2) * step
        return -(-size // part) * step
    return size + (step if step < size else step // 2)


def trained_outputs(model: nn.Module, variation: Variation) -> list[Tensor] | None:
    """What a variation gives in training; `None` if that does not run, as without targets."""
    if variation.trains:
        with suppress(Exception), in_training(model):
            return tensors_in(variation.call.run(model))
    return None


@contextmanager
def in_training(model: nn.Module) -> Iterator[None]:
    """Training mode; modes and buffers come back as they were."""
    modules = list(model.modules())
    modes = [module.training for module in modules]
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        for module in modules:
            module.training = True
        yield
    finally:
        for module, training in zip(modules, modes, strict=True):
            module.training = training
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
