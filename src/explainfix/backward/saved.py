"""What a forward pass keeps for its backward pass, and how something smaller is kept instead."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from .. import private
from ..running import tensors_in

_INSTEAD = "explainfix keeps instead"  # of a node: by the name of what it would keep


@dataclass
class Kept:
    """A block of memory that is kept, and the operations that keep it: one block, many keepers."""

    bytes: int
    keepers: set[str] = field(default_factory=set)


class Substitute(Protocol):
    """What is kept in a tensor's place."""

    @property
    def own(self) -> tuple[Tensor, ...]:
        """Tensors that nobody else keeps."""

    def restore(self) -> Tensor:
        """All that the backward pass reads of the tensor."""


def kept_for_backward(model: nn.Module, *inputs: Tensor) -> int:
    """The bytes that a forward pass keeps for its backward pass, parameters and buffers apart.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU())
    >>> kept_for_backward(model, torch.ones(1, 1, 10, 10)) == 4 * (10 * 10 + 8 * 8)
    True
    """
    return sum(kept.bytes for kept in find_kept(model, *inputs))


def find_kept(model: nn.Module, *inputs: Tensor) -> list[Kept]:
    """Every block that a forward pass keeps, parameters and buffers apart."""
    own = {_address(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, Kept] = {}

    def note(tensor: Tensor, keeper: str = "unknown") -> Tensor:
        if (where := _address(tensor)) not in own:
            block = kept.setdefault(where, Kept(tensor.untyped_storage().nbytes()))
            block.keepers.add(keeper)
        return tensor.detach()

    # These hooks see everything, but leave no room for those of `keep_instead`.
    hooks = saved_tensors_hooks(note, lambda tensor: tensor)
    with nullcontext() if private.tells_saved_names() else hooks:
        output = model(*inputs)  # holds all of it
    for node in _nodes(output):
        for tensor in _kept_by(node):
            note(tensor, node.name().removesuffix("0").removesuffix("Backward"))
    return list(kept.values())


def keep_instead(node: Any, name: str, find: Callable[[Tensor], Substitute | None]) -> None:
    """Let a node of the graph keep what `find` gives for a tensor, or the tensor for `None`.

    Where somebody else has hooks already, as checkpointing does, `find` is not asked.
    """
    saved = private.saved_variable(node, name)
    if saved is None:
        return
    found: list[Substitute] = []

    def pack(tensor: Tensor) -> Tensor | Substitute:
        found.extend(filter(None, [find(tensor)]))
        return found[0] if found else tensor

    try:
        saved.register_hooks(pack, _restore)
    except RuntimeError:  # only one pair of hooks is allowed
        return
    if found:
        # Weak: the backward pass frees what is kept, though the node may live on.
        refs = [weakref.ref(own) for own in found.pop().own]
        node.metadata.setdefault(_INSTEAD, {})[name] = refs


def _restore(kept: Tensor | Substitute) -> Tensor:
    return kept if isinstance(kept, Tensor) else kept.restore()


def _nodes(output: Any) -> Iterator[Any]:
    """Every operation that led to an output, or to the tensors in it."""
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors_in(output)]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [following for following, _ in node.next_functions]


def _kept_by(node: Any) -> Iterator[Tensor]:
    instead = node.metadata.get(_INSTEAD, {})
    for refs in instead.values():
        yield from (tensor for ref in refs if (tensor := ref()) is not None)
    names = private.saved_names(node)
    for name in names:
        if name not in instead:
            yield from tensors_in(private.saved_values(node, name))
    if not names:
        yield from getattr(node, "saved_tensors", ())  # of a function written in Python


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
