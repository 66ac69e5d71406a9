"""What a batch holds for a model, its inputs and the target, and what of an output is scored."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor, nn

from ..running import map_tensors, tensors_in

_INPUTS = ("x", "input", "inputs", "image", "images", "pixel_values")
_TARGETS = ("y", "target", "targets", "label", "labels", "mask", "masks")


@dataclass(frozen=True)
class Inputs:
    """What a model is called with."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def run(self, model: nn.Module, device: torch.device) -> Any:
        """The model's output for copies of the inputs: some models write into what they get."""
        args, kwargs = map_tensors(
            (self.args, self.kwargs), lambda tensor: plain(tensor).detach().to(device, copy=True)
        )
        return model(*args, **kwargs)

    def __str__(self) -> str:
        shapes = [str(tuple(tensor.shape)) for tensor in tensors_in((self.args, self.kwargs))]
        if len(shapes) == 1:
            return f"a batch of shape {shapes[0]}"
        return f"inputs of shapes {', '.join(shapes)}" if shapes else "a batch without a tensor"


def split_batch(batch: object, model: nn.Module) -> tuple[Inputs, Any]:
    """The inputs and the target, or `None`, of a batch, whose form `saliency` describes.

    >>> class Flow(nn.Module):
    ...     def forward(self, before, after, steps=3): ...
    >>> one, two, flow = torch.zeros(1), torch.ones(1), torch.ones(1)
    >>> for batch in ((one, two, flow), ((one, two), flow), ({"before": one, "after": two}, flow)):
    ...     inputs, target = split_batch(batch, Flow())
    ...     print(inputs.args, target)
    (tensor([0.]), tensor([1.])) tensor([1.])
    (tensor([0.]), tensor([1.])) tensor([1.])
    (tensor([0.]), tensor([1.])) tensor([1.])
    """
    takes = _Signature.of(model)
    if isinstance(batch, Tensor):
        return Inputs((batch,)), None
    if isinstance(batch, Mapping):
        return _from_mapping(batch, takes)
    if isinstance(batch, (tuple, list)) and batch:
        first = batch[0]
        count = 1
        if isinstance(first, Tensor):
            # What forward cannot do without is no target.
            count = max(1, takes.required)
            inputs = Inputs(tuple(batch[:count]))
        elif isinstance(first, Mapping) and tensors_in(first):
            named = all(isinstance(key, str) and takes.knows(key) for key in first)
            inputs = takes.in_order(dict(first)) if named else Inputs((first,))
        elif isinstance(first, (tuple, list)) and tensors_in(first):
            # A loader makes lists of tuples, but a list may be one input too: a list of images.
            several = takes.required > 1 or isinstance(first, tuple)
            several = several and takes.most >= len(first)
            inputs = Inputs(tuple(first) if several else (first,))
        else:
            raise _no_batch(batch)
        return inputs, batch[count] if len(batch) > count else None
    raise _no_batch(batch)


def primary_output(output: object) -> Tensor:
    """The main tensor of whatever a model returns: itself, "out" or "logits", or the first one."""
    if isinstance(output, Tensor):
        return output
    named = output if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    tensors = tensors_in([*(named[key] for key in ("out", "logits") if key in named), output])
    real = [tensor for tensor in tensors if tensor.is_floating_point()]
    if tensors:
        return (real or tensors)[0]
    raise ValueError(f"the model returned {type(output).__name__}, in which there is no tensor")


def plain(tensor: Tensor) -> Tensor:
    """A tensor without its class, where that only adds to it, as MONAI's MetaTensor does."""
    adds = type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    return tensor.as_subclass(Tensor) if adds and type(tensor) is not Tensor else tensor


@dataclass(frozen=True)
class _Signature:
    """What the forward of a model takes."""

    parameters: dict[str, Parameter]
    open: bool  # any further names too

    @classmethod
    def of(cls, model: nn.Module) -> _Signature:
        try:
            found = inspect.signature(model.forward).parameters
        except (TypeError, ValueError):  # compiled code has none
            return cls({}, False)
        kinds = {parameter.kind for parameter in found.values()}
        return cls(dict(found), Parameter.VAR_KEYWORD in kinds)

    @property
    def positional(self) -> list[Parameter]:
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        return [p for p in self.parameters.values() if p.kind in kinds]

    @property
    def required(self) -> int:
        """How many inputs it cannot do without."""
        return sum(parameter.default is Parameter.empty for parameter in self.positional)

    @property
    def most(self) -> float:
        """How many inputs it takes by position."""
        kinds = {parameter.kind for parameter in self.parameters.values()}
        unknown = not self.parameters or Parameter.VAR_POSITIONAL in kinds
        return float("inf") if unknown else len(self.positional)

    def knows(self, name: str) -> bool:
        kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        return self.open or (name in self.parameters and self.parameters[name].kind in kinds)

    def needs(self, name: str) -> bool:
        return name in self.parameters and self.parameters[name].default is Parameter.empty

    def in_order(self, named: dict[str, Any]) -> Inputs:
        """Inputs by name, those that come first by position: hooks of others count on that."""
        args: list[Any] = []
        for parameter in self.positional:
            if parameter.name not in named or parameter.kind is Parameter.POSITIONAL_ONLY:
                break
            args.append(named.pop(parameter.name))
        return Inputs(tuple(args), named)


def _from_mapping(batch: Mapping[Any, Any], takes: _Signature) -> tuple[Inputs, Any]:
    targets = [key for key in _TARGETS if key in batch and not takes.needs(key)]
    named = {
        key: value
        for key, value in batch.items()
        if key in takes.parameters and takes.knows(key) and key not in targets
    }
    target = batch[targets[0]] if targets else None
    main = next((key for key in _INPUTS if key in batch), None)
    if main is None or main in named:
        inputs = takes.in_order(named)
    else:  # the first input, under a name of the data's own
        first = next((p.name for p in takes.positional), None)
        named.pop(first, None)
        inputs = Inputs((batch[main],), named)
    if not tensors_in((inputs.args, inputs.kwargs)):
        wanted = [parameter.name for parameter in takes.positional]
        also = f", or as the model's forward does: {', '.join(map(repr, wanted))}" if wanted else ""
        raise ValueError(
            f"a batch with the keys {', '.join(map(repr, batch))} has no input: name it "
            f"{' or '.join(map(repr, _INPUTS))}{also}"
        )
    return inputs, target


def _no_batch(batch: object) -> ValueError:
    inside = f" of {type(batch[0]).__name__}" if isinstance(batch, (tuple, list)) and batch else ""
    return ValueError(
        "a batch must be a tensor, (inputs, target) or a dictionary, not "
        f"{type(batch).__name__}{inside}"
    )
