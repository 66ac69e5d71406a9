"""prune_: remove every channel that can be removed with the output unchanged."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from ..fix import recipes_follow
from ..layers import Convolution, as_found
from .cut import cut_, remember_cut
from .graph import Graph, record
from .liveness import Ghosts, Plan, plan
from .state import Barrier, State, apply_rules

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PruneReport:
    """What pruning did."""

    parameters_before: int
    parameters_after: int
    folded: int
    ghosts_dropped: int
    barriers: tuple[Barrier, ...]
    difference: float  # the largest change of an output, relative to their root mean square
    seconds: float
    channels: Mapping[str, tuple[int, int, int, int]]  # layer → in and out before, in and out after
    zeroed: Mapping[str, int] = field(default_factory=dict)  # kernels, per layer
    filled: Mapping[str, int] = field(default_factory=dict)  # weights, per layer
    zero_share: float | None = None

    @property
    def params_kept(self) -> float:
        """The share of the parameters that is left."""
        return self.parameters_after / self.parameters_before

    def table(self) -> pd.DataFrame:
        """A row per layer, keyed by module path: its channels before and after."""
        import pandas as pd

        names = ["in_before", "out_before", "in_after", "out_after"]
        frame = pd.DataFrame.from_dict(dict(self.channels), orient="index", columns=names)
        frame["kernels_zeroed"] = [self.zeroed.get(path, 0) for path in frame.index]
        frame["weights_filled"] = [self.filled.get(path, 0) for path in frame.index]
        frame.index.name = "layer"
        return frame

    def __str__(self) -> str:
        lines = [
            f"{self.parameters_before - self.parameters_after:,} of {self.parameters_before:,} "
            f"parameters removed, {self.params_kept:.1%} kept.",
            f"Largest change of an output on the example: {self.difference:.1e} of their size.",
        ]
        if self.folded:
            lines.append(f"{self.folded:,} constant channels were folded into what read them.")
        if self.ghosts_dropped:
            lines.append(f"{self.ghosts_dropped:,} constant channels (ghosts) were dropped.")
        for barrier in self.barriers[:5]:
            where = f" in {barrier.module}" if barrier.module else ""
            lines.append(
                f"{barrier.channels:,} channels stay because of {barrier.operation}{where}."
            )
        return "\n".join(lines)


def prune_(
    model: nn.Module, example_inputs: Tensor | tuple[Any, ...], *, ghosts: Ghosts = "keep"
) -> PruneReport:
    """Remove every channel whose removal leaves the output unchanged, for every input.

    A channel goes if nothing that reaches an output uses it: it is nought, or a constant that can
    be folded exactly into what reads it, or has no weight anywhere. `ghosts="drop"` lets constants
    go without folding, as the paper does.
    """
    if ghosts not in ("keep", "drop"):
        raise ValueError(f"ghosts must be 'keep' or 'drop', not {ghosts!r}")
    started = time.perf_counter()
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    before = sum(parameter.numel() for parameter in model.parameters())
    with as_found(model):
        graphs = record_passes(model, inputs)
        problem: Exception | None = None
        for trusting in (True, False):
            state = analyse(graphs, trusting=trusting)
            decided = plan(state, ghosts)
            try:
                difference = _verified(model, decided, inputs, graphs[0], ghosts)
                break
            except (RuntimeError, ValueError) as error:
                problem = error
        else:
            raise ValueError(f"no cut could be verified on the example: {problem}") from problem
    sizes = _channels(model)
    with recipes_follow(model):
        cut_(model, decided)
    remember_cut(model, decided)
    return PruneReport(
        before,
        sum(parameter.numel() for parameter in model.parameters()),
        decided.folded,
        decided.ghosts_dropped,
        tuple(barrier for barrier in state.barriers if barrier.channels),
        difference,
        time.perf_counter() - started,
        {path: (*counts, *_channels(model)[path]) for path, counts in sizes.items()},
    )


def _channels(model: nn.Module) -> dict[str, tuple[int, int]]:
    """The inputs and outputs of every convolution and linear layer."""
    counts: dict[str, tuple[int, int]] = {}
    for path, module in model.named_modules():
        if isinstance(module, Convolution):
            counts[path] = module.in_channels, module.out_channels
        elif isinstance(module, nn.Linear):
            counts[path] = module.in_features, module.out_features
    return counts


def record_passes(model: nn.Module, inputs: tuple[Any, ...]) -> list[Graph]:
    """The pass in evaluation, and the one in training if it uses what the first does not."""
    graphs = [_recorded(model.eval(), inputs)]
    if _unused(model, graphs[0]):
        # Twice the example: BatchNorm does not train on a single number.
        doubled = tree_map(lambda x: torch.cat([x, x]) if isinstance(x, Tensor) else x, inputs)
        with as_found(model):
            graphs.append(_recorded(model.train(), doubled))
    return graphs


def analyse(graphs: list[Graph], *, trusting: bool) -> State:
    """The rules over the recorded passes; the second, in training, adds what only it uses."""
    state = apply_rules(State(graphs[0], trusting))
    evaluated = list(state.mixings)
    known = {mixing.weight for mixing in evaluated}
    for graph in graphs[1:]:
        state.graph, state.values = graph, {}
        apply_rules(state)
        added = state.mixings[len(evaluated) :]
        state.mixings = evaluated + [mixing for mixing in added if mixing.weight not in known]
        state.graph = graphs[0]
    return state


def _recorded(model: nn.Module, inputs: tuple[Any, ...]) -> Graph:
    try:
        return record(model, inputs)
    except (RuntimeError, ValueError, IndexError, TypeError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        shapes = [tuple(leaf.shape) for leaf in inputs if isinstance(leaf, Tensor)]
        raise ValueError(f"the model does not run on the example {shapes}: {reason}") from problem


def _unused(model: nn.Module, graph: Graph) -> bool:
    """Whether some parameters take no part in evaluation, such as heads used in training only."""
    used = {graph.parameters.get(ref.number) for node in graph.nodes for ref in node.inputs}
    return any(name not in used for name, _ in model.named_parameters())


def _verified(
    model: nn.Module, decided: Plan, inputs: tuple[Any, ...], graph: Graph, ghosts: Ghosts
) -> float:
    """Cut a copy, run it, and compare: how far its outputs are off, or an error."""
    twin = copy.deepcopy(model)
    cut_(twin, decided)
    with torch.no_grad():
        ours = [t for t in tree_flatten(twin(*inputs))[0] if isinstance(t, Tensor)]
    theirs = [t for t in tree_flatten(graph.result)[0] if isinstance(t, Tensor)]
    worst = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            raise ValueError(f"an output changed from {tuple(other.shape)} to {tuple(one.shape)}")
        if one.is_floating_point():
            scale = float(other.double().square().mean().sqrt()) or 1.0
            worst = max(worst, float((one.double() - other.double()).abs().max()) / scale)
    if ghosts == "keep" and not worst < 1e-2:
        raise ValueError(f"the outputs changed by {worst:.2g} of their size")
    return worst
