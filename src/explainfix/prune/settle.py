"""A plan that holds: tried on the model, operation by operation and number by number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ..layers import as_found, attributes_as_found
from ..recording.call import Call
from ..recording.graph import Graph
from ..recording.record import Failed, Recorder, record
from ..running import tensors_in
from .cut import cut_for_a_moment
from .liveness import Plan, plan
from .request import Request
from .state import State, apply_rules
from .trust import Trust
from .verify import (
    LIMITS,
    Variation,
    difference,
    precision,
    rounding,
    surprise,
    trained_outputs,
    variations,
)


@dataclass(frozen=True)
class Settled:
    """A plan that was tried, and what was found on the way."""

    plan: Plan
    state: State
    apart: list[tuple[Call, float]]  # by how much the outputs of each call differ
    verified: tuple[str, ...] = ()
    differs_in_training: bool = False
    varies: float = math.nan  # how much outputs differ between inputs, relative to their size
    unseen: tuple[str, ...] = ()
    params_with_ghosts: float = math.nan

    @property
    def difference(self) -> float:
        return max(apart for _, apart in self.apart)


@dataclass
class Passes:
    """Recorded passes, and what else the uncut network does."""

    graph: Graph
    calls: list[tuple[Call, bool]]
    unseen: tuple[str, ...]  # parameters that no pass used
    varied: list[Variation] = field(default_factory=list)


def record_passes(model: nn.Module, call: Call, *, trained: bool = False) -> Passes:
    """The pass in evaluation, and the one in training if it uses what the first does not.

    `trained` asks for the one in training in any case.
    """
    recorder, calls = Recorder(model), [(call, False)]
    graph = recorder.graph
    try:
        recorder.run(call, training=False)
    except Failed as problem:
        shapes = [tuple(tensor.shape) for tensor in call.tensors()]
        raise ValueError(f"the model does not run on the example {shapes}: {problem}") from problem
    unseen = _unseen(model, graph)
    if unseen or trained:
        # Twice the example: BatchNorm does not train on a single number.
        doubled = call.map(lambda x: torch.cat([x, x]) if x.dim() else x)
        done = len(graph.nodes)
        try:
            with as_found(model):
                recorder.run(doubled, training=True)
        except Failed:  # it asks for targets, perhaps
            del graph.nodes[done:]
        else:
            calls.append((doubled, True))
            unseen = _unseen(model, graph)
    return Passes(graph, calls, unseen)


def _unseen(model: nn.Module, graph: Graph) -> tuple[str, ...]:
    """Parameters that take no part, such as those of heads used in training only."""
    used = {graph.parameters.get(ref.number) for node in graph.nodes for ref in node.inputs}
    return tuple(name for name, _ in model.named_parameters() if name not in used)


def analyse(graph: Graph, request: Request, trust: Trust) -> State:
    """What the rules find, and which layers are to stay."""
    state = apply_rules(State(graph, trust, dropping=request.ghosts == "drop"))
    for (name, _), labels in state.axes.items():
        if name in request.whole:
            state.pin(labels)
    for name, grouping in state.groupings.items():
        if name in request.whole:
            state.pin(grouping.inputs)
            state.pin(grouping.outputs)
    return state


def settle(
    model: nn.Module, call: Call, request: Request, trust: Trust, *, trained: bool = False
) -> Settled:
    """A plan that does what is foreseen and gives the same outputs; guesses that fail go.

    What a model gives in training alone is looked at if `trained`, or if it turns out to matter.
    """
    # Passes may fill caches or count: the cut network starts where this one does.
    with attributes_as_found(model):
        passes = record_passes(model, call, trained=trained)
        model.eval()
        passes.varied = variations(model, call, chance=passes.graph.draws)
    while True:
        state = analyse(passes.graph, request, trust)
        training = None
        if request.ghosts == "keep":
            training = apply_rules(State(passes.graph, trust, training=True))
        decided, life = plan(state, request.ghosts, training, request.at_least)
        with cut_for_a_moment(model, decided):
            failure = ""
            with as_found(model) if len(passes.calls) > 1 else nullcontext():
                try:
                    cut = record(model, passes.calls, named=False)
                except Failed as problem:
                    cut, failure = problem.graph, str(problem)
            wrong = surprise(state, life, cut)
            if wrong is None:
                settled, trained_ours = _compared(model, passes, decided, state, cut)
        if wrong is None:
            settled = _accepted(model, passes, request, settled)
            differs = _differs_in_training(model, passes, decided, trained_ours)
            settled = replace(settled, differs_in_training=differs)
            if differs and not trained:  # it gives something else there
                return settle(model, call, request, trust, trained=True)
            return settled
        node, reason = wrong
        if not decided.keep:
            raise ValueError(
                "the model does not do the same on every call: operation "
                f"{passes.graph.nodes.index(node) + 1} was {node.op} in {node.module!r} when it "
                f"was recorded, then {reason}"
            )
        if "" in trust.held:
            raise ValueError(f"no cut could be verified on the example: {failure or reason}")
        trust.lose(passes.graph, node, state.guessed, state.untried)


def _compared(
    model: nn.Module, passes: Passes, decided: Plan, state: State, cut: Graph
) -> tuple[Settled, list[list[Tensor] | None]]:
    """What the cut network gives, beside what the uncut one gave; then what it gives in training.

    That is `None` for a variation on which the cut network does not train.
    """
    apart = [(passes.calls[0][0], difference(cut.results, passes.graph.results))]
    model.eval()
    varies, verified = math.nan, ["example"]
    trained: list[list[Tensor] | None] = []
    for variation in passes.varied:
        try:
            ours = tensors_in(variation.call.run(model, chance=state.graph.draws))
            apart.append((variation.call, difference(ours, variation.wanted)))
        except Exception as problem:  # of the model, or an output of another shape
            raise ValueError(f"no cut holds for other {variation.what}: {problem}") from problem
        verified.append(variation.what)
        varies = _spread_of(ours, variation)
        trained.append(trained_outputs(model, variation))
    return Settled(decided, state, apart, tuple(verified), False, varies, passes.unseen), trained


def _differs_in_training(
    model: nn.Module, passes: Passes, decided: Plan, trained: list[list[Tensor] | None]
) -> bool:
    """Whether training gives other shapes, or numbers that differ although none should."""
    # Constants that are dropped, or right in evaluation only, may move what training gives.
    promised = not (decided.for_evaluation or decided.dropped)
    limit = 10 * LIMITS[precision(passes.graph)] if promised else math.inf
    for variation, ours in zip(passes.varied, trained, strict=True):
        if not variation.trains:
            continue
        if not promised and ours and _shapes(ours) == _shapes(variation.wanted):
            continue  # as in evaluation: the pass of the uncut network would say no more
        with attributes_as_found(model):
            wanted = trained_outputs(model, variation)
        if wanted is None:  # as without targets
            continue
        if (
            ours is None
            or _shapes(ours) != _shapes(wanted)
            or not difference(ours, wanted) <= limit
        ):
            return True
    return False


def _shapes(tensors: list[Tensor]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors]


def _accepted(model: nn.Module, passes: Passes, request: Request, settled: Settled) -> Settled:
    """The settled plan, if the outputs are the same but for rounding."""
    if settled.plan.dropped:
        exact = analyse(passes.graph, replace(request, ghosts="keep"), settled.state.trust)
        kept, _ = plan(exact, "keep", None, request.at_least)
        return replace(settled, params_with_ghosts=params_left(model, kept))
    dtype = precision(passes.graph)
    for call, apart in settled.apart:
        if not apart <= LIMITS[dtype] and not apart <= 30 * (moved := rounding(model, call, dtype)):
            raise ValueError(
                f"no cut could be verified: the outputs changed by {apart:.2g} of their size, "
                f"rounding alone moves them by {moved:.2g}"
            )
    return settled


def _spread_of(outputs: list[Tensor], variation: Variation) -> float:
    """How much outputs differ between the images of a batch, relative to their size."""
    spread = math.nan
    for output in outputs:
        if "batch" in variation.what and output.is_floating_point() and output.dim():
            half = len(output) // 2
            if half and len(output) == 2 * half and output[0].numel():
                apart = difference([output[:half]], [output[half:]])
                spread = apart if math.isnan(spread) else max(spread, apart)
    return spread


def params_left(model: nn.Module, decided: Plan) -> float:
    """The share of the parameters that a plan leaves."""
    return share_left(model, decided)


def share_left(
    model: nn.Module, decided: Plan, positions: Mapping[str, int] | None = None
) -> float:
    """The share of the parameters that a plan leaves, or of the multiply-adds.

    Those are asked for by `positions`, how often each layer's weight is applied, by its path.
    """
    left = total = 0
    for name, parameter in model.named_parameters():
        path, _, kind = name.rpartition(".")
        times = 1 if positions is None else positions.get(path, 0) * (kind == "weight")
        lengths = list(parameter.shape)
        total += parameter.numel() * times
        for axis in range(len(lengths)):
            if (name, axis) in decided.keep:
                lengths[axis] = decided.keep[name, axis].shape[-1]
        left += math.prod(lengths) * times
    return left / max(total, 1)
