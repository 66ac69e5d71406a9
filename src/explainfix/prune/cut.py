"""Cutting: tensors lose the indices that a plan does not keep; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..layers import Convolution, attributes_as_found, own_tensors
from ..layout import layout_of
from .liveness import Plan


@dataclass(frozen=True)
class Cut:
    """What was kept along each axis of each tensor, "name|axis" → indices, and groups left.

    Along the second axis of a grouped convolution's weight the indices are a list for each group.
    `attributes` has the numbers of channels that modules keep themselves, "module|name" → number.
    """

    keep: dict[str, list[int] | list[list[int]]]
    groups: dict[str, int]
    attributes: dict[str, int | list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Cut:
        """What remains to be known of a plan that was carried out."""
        keep = {f"{name}|{axis}": kept.tolist() for (name, axis), kept in plan.keep.items()}
        attributes = {f"{path}|{name}": value for (path, name), value in plan.attributes.items()}
        return cls(keep, dict(plan.groups), attributes)

    def again_(self, model: nn.Module) -> None:
        """Cut a newly built model as another one was."""
        keep = {}
        for place, indices in self.keep.items():
            name, _, axis = place.rpartition("|")
            keep[name, int(axis)] = torch.tensor(indices)
        attributes = {}
        for place, value in self.attributes.items():
            path, _, name = place.rpartition("|")
            attributes[path, name] = value
        cut_(model, Plan(keep, self.groups, attributes))

    def renamed(self, rename: Callable[[str], str]) -> Cut:
        attributes = {}
        for place, value in self.attributes.items():
            path, _, name = rename(place.replace("|", ".").lstrip(".")).rpartition(".")
            attributes[f"{path}|{name}"] = value
        keep = {rename(place): indices for place, indices in self.keep.items()}
        return Cut(keep, {rename(name): left for name, left in self.groups.items()}, attributes)


def cut_(model: nn.Module, plan: Plan) -> None:
    """Carry out a plan: fold constants, cut tensors, put the modules' counts right."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for fold in plan.folds:
            tensor = tensors[fold.tensor]
            tensor.add_(fold.amount.to(tensor))
    cuts: dict[str, dict[int, Tensor]] = {}
    for (name, axis), kept in plan.keep.items():
        cuts.setdefault(name, {})[axis] = kept
    groups = {id(tensors[name]): count for name, count in plan.groups.items()}
    touched: dict[int, nn.Module] = {}
    replaced: dict[int, Tensor] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        own = own_tensors(module)
        left = groups.get(id(own.get("weight")))
        for key, tensor in own.items():
            name = f"{path}.{key}" if path else key
            if id(tensor) not in replaced and name in cuts:
                new = _cut(tensor, cuts[name])
                replaced[id(tensor)] = replaced[id(new)] = new
            if id(tensor) in replaced:
                _hold(module, key, replaced[id(tensor)])
                touched[id(module)] = module
        for count in ("groups", "num_groups"):
            if left is not None and hasattr(module, count):
                setattr(module, count, left)
                touched[id(module)] = module
    for module in touched.values():
        _count(module)
    for (path, name), value in plan.attributes.items():
        module = model.get_submodule(path)
        kind = type(getattr(module, name))
        setattr(module, name, kind(value))


@contextmanager
def cut_for_a_moment(model: nn.Module, plan: Plan) -> Iterator[None]:
    """Carry out a plan to try it, and put everything back, whatever happens meanwhile."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    folded = [(tensors[fold.tensor], tensors[fold.tensor].detach().clone()) for fold in plan.folds]
    try:
        with attributes_as_found(model):
            cut_(model, plan)
            yield
    finally:
        with torch.no_grad():
            for tensor, old in reversed(folded):  # two folds may have one target
                tensor.copy_(old)


def _cut(tensor: Tensor, kept: dict[int, Tensor]) -> Tensor:
    data = tensor.detach()
    for axis, indices in sorted(kept.items(), reverse=True):  # by group, while all groups are there
        places = indices.to(data.device)
        data = (
            _within_groups(data, places) if places.dim() == 2 else data.index_select(axis, places)
        )
    data = data.to(memory_format=layout_of(tensor))
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data


def _hold(module: nn.Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, nn.Parameter):  # not by `setattr`, in which an LSTM changes more
        module.register_parameter(name, tensor)
    else:
        setattr(module, name, tensor)


def _within_groups(data: Tensor, places: Tensor) -> Tensor:
    """A grouped convolution's weight with other places along its second axis for every group."""
    blocks = data.reshape(len(places), -1, data.shape[1], *data.shape[2:])
    chosen = places.reshape(len(places), 1, -1, *[1] * (data.dim() - 2))
    chosen = chosen.expand(-1, blocks.shape[1], -1, *data.shape[2:])
    return blocks.gather(2, chosen).flatten(0, 1)


def _count(module: Any) -> None:
    """Put right the numbers of channels that a module of PyTorch's keeps."""
    if isinstance(module, Convolution):
        first, second = module.weight.shape[:2]
        if getattr(module, "transposed", False):
            module.in_channels, module.out_channels = first, second * module.groups
        else:
            module.in_channels, module.out_channels = second * module.groups, first
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif hasattr(module, "num_features") and hasattr(module, "running_mean"):  # of any batch norm
        held = module.weight if module.running_mean is None else module.running_mean
        module.num_features = module.num_features if held is None else len(held)
    elif isinstance(module, nn.GroupNorm):
        module.num_channels = len(module.weight)
    elif isinstance(module, nn.PReLU):
        module.num_parameters = module.weight.numel()
