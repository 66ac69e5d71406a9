"""prune_: remove every channel that can be removed with the output unchanged."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from ..fix import recipes_follow
from ..layers import as_found
from .cut import cut_, cut_for_a_moment, remember_cut
from .graph import Graph, check_same_way, record
from .liveness import Ghosts, Plan, plan
from .outcome import PruneReport, count_positions, measure
from .state import State, Trust, apply_rules
from .unfit import check_prunable

_FAILURES = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)


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
    check_prunable(model)
    started = time.perf_counter()
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    with as_found(model):
        graphs = record_passes(model, inputs)
        decided, state, difference = settle(
            model, inputs, graphs, ghosts, Trust(), graphs[0].result
        )
    positions = count_positions(graphs[0])
    before, layers_before = measure(model, positions)
    with recipes_follow(model):
        cut_(model, decided)
    remember_cut(model, decided)
    after, layers_after = measure(model, positions)
    return PruneReport(
        before,
        after,
        layers_before,
        layers_after,
        {name.rpartition(".")[0]: count for name, count in decided.folded.items()},
        {name.rpartition(".")[0]: count for name, count in decided.dropped.items()},
        decided.for_evaluation,
        tuple(barrier for barrier in state.barriers if barrier.channels),
        difference,
        time.perf_counter() - started,
    )


def settle(
    model: nn.Module,
    inputs: tuple[Any, ...],
    graphs: list[Graph],
    ghosts: Ghosts,
    trust: Trust,
    wanted: Any,
) -> tuple[Plan, State, float]:
    """A plan that gives the wanted outputs on the example: guesses that fail are given up."""
    while True:
        state = analyse(graphs, trust, ghosts)
        training = None
        if ghosts == "keep":
            training = apply_rules(State(graphs[0], trust, training=True))
        decided = plan(state, ghosts, training)
        reached: set[str] = set()
        try:
            with cut_for_a_moment(model, decided):
                try:
                    return decided, state, _difference(model, inputs, wanted, ghosts)
                except _FAILURES:
                    reached = _reached(model, inputs)
                    raise
        except _FAILURES as problem:
            if trust.nothing:
                check_same_way(model, inputs, graphs[0])
                reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
                raise ValueError(f"no cut could be verified on the example: {reason}") from problem
        trust.lose([graphs[0].modules[path] for path in state.guesses if path in reached])


def _reached(model: nn.Module, inputs: tuple[Any, ...]) -> set[str]:
    """The modules that a failing network runs before it fails; none if it does not."""
    reached: set[str] = set()
    handles = [
        module.register_forward_pre_hook(lambda *_, path=path: reached.add(path))
        for path, module in model.named_modules()
    ]
    try:
        with torch.no_grad():
            model(*inputs)
    except _FAILURES:
        return reached
    finally:
        for handle in handles:
            handle.remove()
    return set()


def record_passes(model: nn.Module, inputs: tuple[Any, ...]) -> list[Graph]:
    """The pass in evaluation, and the one in training if it uses what the first does not."""
    graphs = [_recorded(model.eval(), inputs)]
    if _unused(model, graphs[0]):
        # Twice the example: BatchNorm does not train on a single number.
        doubled = tree_map(lambda x: torch.cat([x, x]) if isinstance(x, Tensor) else x, inputs)
        with as_found(model):
            graphs.append(_recorded(model.train(), doubled))
    return graphs


def analyse(graphs: list[Graph], trust: Trust, ghosts: Ghosts) -> State:
    """The rules over the recorded passes; the second, in training, adds what only it uses."""
    state = apply_rules(State(graphs[0], trust, dropping=ghosts == "drop"))
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


def _difference(model: nn.Module, inputs: tuple[Any, ...], wanted: Any, ghosts: Ghosts) -> float:
    """How far the outputs of a model that was cut are off; an error if it cannot be right."""
    with torch.no_grad():
        ours = [t for t in tree_flatten(model(*inputs))[0] if isinstance(t, Tensor)]
    theirs = [t for t in tree_flatten(wanted)[0] if isinstance(t, Tensor)]
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
