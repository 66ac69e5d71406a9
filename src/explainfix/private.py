"""Names that PyTorch keeps to itself: whoever needs one asks here, and bears it if it is gone.

PyTorch may change them in any version. `tests/test_private.py` has them all: it fails by the name
of the one that changed, and shows that without it networks compute the same and keep more. Pruning
cannot do without `schema` and `TorchDispatchMode`.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode  # for everybody

from .running import tensors_in

Hook = Callable[..., Any]


def add_hook(module: nn.Module, hook: Hook) -> None:
    """Call a hook after every forward pass, unless it could not be taken away again."""
    if _hooks(module) is not None:
        module.register_forward_hook(hook)


def has_hook(module: nn.Module, hook: Hook) -> bool:
    """Whether `add_hook` added it."""
    return hook in (_hooks(module) or {}).values()


def is_left_alone(module: nn.Module) -> bool:
    """Whether nobody's hook follows a module but ours, and it computes as its class does."""
    hooks = (_hooks(module) or {}).values()
    return all(_is_ours(hook) for hook in hooks) and "forward" not in module.__dict__


def remove_hooks(module: nn.Module, *ours: Hook) -> None:
    """Undo `add_hook`; hooks of others stay."""
    hooks = _hooks(module) or {}
    for key in [key for key, hook in hooks.items() if hook in ours]:
        del hooks[key]


def hand_over_hooks(old: nn.Module, new: nn.Module) -> None:
    """Let `new`, which takes the place of `old`, call its hooks; those of explainfix stay.

    The dictionaries themselves go over, so that the handles that users have still work.
    """
    for name in _HOOKS:
        held = getattr(old, name, None)
        if held is None:
            continue
        kept = None
        if isinstance(held, dict):
            kept = OrderedDict((key, hook) for key, hook in held.items() if _is_ours(hook))
            for key in kept:
                del held[key]
        setattr(old, name, kept)
        setattr(new, name, held)


def has_hooks(thing: nn.Module | Tensor) -> bool:
    """Whether users hung hooks on a module, or on the gradient of a tensor."""
    every = [getattr(thing, name, None) for name in (*_HOOKS, "_post_accumulate_grad_hooks")]
    held = [hook for hooks in every if isinstance(hooks, dict) for hook in hooks.values()]
    return not all(map(_is_ours, held))


def saved_variable(node: Any, name: str) -> Any:
    """What holds a tensor that a node of the graph keeps, to be told to keep another; or `None`."""
    if name in (names := _names_in_python(node)):
        held = getattr(node, "_raw_saved_tensors", None)
        return None if held is None else held[names.index(name)]
    return getattr(node, f"_raw_saved_{name}", None)


def saved_values(node: Any, *names: str) -> tuple[Any, ...] | None:
    """What a node of the graph keeps under these names, or `None` if it does not know them all."""
    try:
        if known := _names_in_python(node):
            kept = dict(zip(known, node.saved_tensors, strict=True))
            return tuple(kept[name] for name in names)
        return tuple(getattr(node, f"_saved_{name}") for name in names)
    except (AttributeError, KeyError):
        return None


def saved_names(node: Any) -> list[str]:
    """The names of all that a node of the graph keeps."""
    own = [name.removeprefix("_saved_") for name in dir(node) if name.startswith("_saved_")]
    return own or list(_names_in_python(node))


def tells_saved_names() -> bool:
    """Whether `saved_names` finds any where there must be some."""
    return bool(saved_names(torch.ones(1, requires_grad=True).exp().grad_fn))


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place, but through `.data`; 0 if that is not known."""
    return int(getattr(tensor, "_version", 0))


def computes_as(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether a module computes its output as the first of these kinds that it is does."""
    kind = next((kind for kind in kinds if isinstance(module, kind)), nn.Module)
    names = ("forward", "_conv_forward")
    same = all(getattr(type(module), name, None) is getattr(kind, name, None) for name in names)
    return same and "forward" not in vars(module)


def in_transform(tensor: Tensor) -> bool:
    """Whether a transform of torch.func computes with a tensor, or that is not known."""
    known = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
    return known is None or bool(known(tensor))


def flat_tensors(tree: Any) -> list[Tensor]:
    """The tensors in nested containers, in the order in which PyTorch's exporter has them."""
    try:
        from torch.utils._pytree import tree_leaves
    except ImportError:
        return tensors_in(tree)
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def schema(op: Any) -> Any:
    """The names, defaults and aliases of an ATen operation's arguments, and what it returns."""
    return op._schema


def compiled_as(module: nn.Module) -> Literal["a copy", "in place"] | None:
    """Whether a module is what torch.compile made of another, or compiled itself."""
    if hasattr(module, "_orig_mod"):
        return "a copy"
    return "in place" if getattr(module, "_compiled_call_impl", None) is not None else None


def running_load() -> tuple[nn.Module, bool] | None:
    """The module whose load_state_dict calls us, and its `strict`, which no hook is told."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not nn.Module.load_state_dict.__code__:
        frame = frame.f_back
    return None if frame is None else (frame.f_locals["self"], frame.f_locals["strict"])


def has_load_hook(module: nn.Module, hook: Hook) -> bool:
    """Whether a hook waits for the end of a module's load_state_dict; two would do no harm."""
    return hook in getattr(module, "_load_state_dict_post_hooks", {}).values()


def _names_in_python(node: Any) -> tuple[str, ...]:
    """What a function of ours, written in Python, calls the tensors that it saves."""
    return getattr(node, "explainfix_keeps", ())


_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
)  # fmt: skip


def _is_ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("explainfix.")


def _hooks(module: nn.Module) -> MutableMapping[int, Hook] | None:
    """The hooks of a module; only PyTorch's own name for them leads to those of a copy."""
    return getattr(module, "_forward_hooks", None)
