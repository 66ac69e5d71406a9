"""Running a model the same way every time: on copies of its inputs, with no say for chance."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..private import TorchDispatchMode
from ..running import map_tensors, tensors_in
from .graph import CHANCE, rule_name


@dataclass
class Call:
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, example: Any) -> Call:
        """A tensor, a tuple of positional inputs or a dictionary of keyword inputs."""
        if isinstance(example, dict):
            return cls((), example)
        return cls(example if isinstance(example, tuple) else (example,), {})

    def map(self, change: Any) -> Call:
        return Call(*map_tensors((self.args, self.kwargs), change))

    def tensors(self) -> list[Tensor]:
        return tensors_in((self.args, self.kwargs))

    def run(self, model: nn.Module, *, chance: bool = True) -> Any:
        """The model's output, on a copy of the inputs, with the same random numbers every time.

        Without `chance` the model is known to draw none.
        """
        copied = self.map(lambda x: x.detach().as_subclass(Tensor).clone())
        with torch.no_grad(), same_seeds(), _Still() if chance else nullcontext():
            return model(*copied.args, **copied.kwargs)


def stilled(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operation gives if random numbers are all the same.

    So it makes no difference how many are drawn, nor in which order memory is filled with them.
    """
    name = rule_name(func)
    if name == "native_dropout":
        return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
    result = func(*args, **kwargs)
    return result.fill_(1 if name == "bernoulli" else 0.5) if name in CHANCE else result


class _Still(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return stilled(func, args, kwargs or {})


@contextmanager
def same_seeds() -> Iterator[None]:
    """Generators begin anew, and go on outside as if they had not; `as_found` minds PyTorch's."""
    own, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            torch.default_generator.manual_seed(0)
            if torch.cuda.is_initialized():
                torch.cuda.manual_seed_all(0)
            yield
    finally:
        random.setstate(own)
        np.random.set_state(arrays)  # noqa: NPY002
