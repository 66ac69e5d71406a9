"""prune_: remove every channel that can be removed with the output unchanged."""

from __future__ import annotations

import fnmatch
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..fix import recipes_follow
from ..layers import Convolution, as_found
from ..nested import tensors_in
from ..registry import unknown
from .cut import cut_, cut_for_a_moment, remember_cut
from .graph import Graph, full_name
from .liveness import Ghosts, Plan, plan
from .outcome import PruneReport, count_positions, measure, warnings_of
from .prunable import check_prunable
from .record import Call, Failed, Recorder, record
from .state import State, apply_rules
from .trust import Trust
from .verify import (
    LIMITS,
    Variation,
    difference,
    in_training,
    precision,
    rounding,
    surprise,
    variations,
)

Patterns = str | Iterable[str]
AtLeast = int | Mapping[str, int]


def prune_(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    ghosts: Ghosts = "keep",
    keep: Patterns = (),
    keep_at_least: AtLeast = 1,
) -> PruneReport:
    """Remove every channel whose removal leaves the output unchanged, for every input.

    A channel goes if nothing that reaches an output uses it: it is zero, or a constant that can be
    folded exactly into what reads it, or has no weight anywhere. `ghosts="drop"` lets constants go
    without folding, as the paper does. `example_inputs` is a tensor, a tuple of inputs or a
    dictionary of keyword inputs.

    `keep` names layers to leave alone, by path or pattern, or modules with all layers in them.
    `keep_at_least` is the smallest number of outputs to leave a layer, or such numbers by pattern.

    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 2, 3))
    >>> model[0].weight.data[2:] = 0
    >>> prune_(model, torch.randn(1, 1, 16, 16), keep_at_least=4).params_kept
    0.526...
    >>> model[0]
    Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), bias=False)
    """
    request = Request.of(model, ghosts, keep, keep_at_least)
    started = time.perf_counter()
    call = Call.of(example_inputs)
    with as_found(model):
        settled = settle(model, call, request, Trust())
    positions = count_positions(settled.state.graph)
    before, layers_before = measure(model, positions)
    decided = settled.plan
    rewritten = {
        f"{path}.{name}".lstrip("."): (getattr(model.get_submodule(path), name), value)
        for (path, name), value in decided.attributes.items()
        if getattr(model.get_submodule(path), name) != value
    }
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
        decided.barriers,
        settled.difference,
        time.perf_counter() - started,
        verified=settled.verified,
        rewritten=rewritten,
        differs_in_training=settled.differs_in_training,
        params_with_ghosts=settled.params_with_ghosts,
        constants_kept=decided.constants_kept,
        warnings=warnings_of(layers_before, layers_after, settled.varies, settled.unseen),
    )


@dataclass(frozen=True)
class Request:
    """What was asked of a cut, checked against the model."""

    ghosts: Ghosts
    whole: frozenset[str]  # layers to leave alone, by the name of their weight
    at_least: dict[str, int]  # weight → the smallest number of outputs

    @classmethod
    def of(
        cls, model: nn.Module, ghosts: Ghosts, keep: Patterns, keep_at_least: AtLeast
    ) -> Request:
        if ghosts not in ("keep", "drop"):
            raise ValueError(f"ghosts must be 'keep' or 'drop', not {ghosts!r}")
        check_prunable(model)
        patterns = [keep] if isinstance(keep, str) else list(keep)
        whole = {full_name(path) for pattern in patterns for path in _matching(model, pattern)}
        least = {"*": keep_at_least} if isinstance(keep_at_least, int) else dict(keep_at_least)
        numbers: dict[str, int] = {}
        for pattern, number in least.items():
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"keep_at_least must be 1 or more, not {number!r}")
            if number > 1:
                numbers |= {full_name(path): number for path in _matching(model, pattern)}
        return cls(ghosts, frozenset(whole), numbers)


def _matching(model: nn.Module, pattern: str) -> list[str]:
    """The layers whose path, or a module they are in, equals or matches a pattern."""
    layers = [path for path, m in model.named_modules() if isinstance(m, (Convolution, nn.Linear))]
    found = [
        path
        for path in layers
        if fnmatch.fnmatchcase(path, pattern) or path.startswith(f"{pattern}.")
    ]
    if not found:
        raise unknown("layer to keep", pattern, layers, "explainfix info MODEL")
    return found


@dataclass(frozen=True)
class Settled:
    """A plan that was tried, and what was found on the way."""

    plan: Plan
    state: State
    difference: float
    verified: tuple[str, ...] = ()
    differs_in_training: bool = False
    varies: float = math.nan  # how much outputs differ between inputs, relative to their size
    unseen: tuple[str, ...] = ()
    params_with_ghosts: float = math.nan


@dataclass
class Passes:
    """Recorded passes, and what else the uncut network does."""

    graph: Graph
    calls: list[tuple[Call, bool]]
    unseen: tuple[str, ...]  # parameters that no pass used
    varied: list[Variation] = field(default_factory=list)


def record_passes(model: nn.Module, call: Call) -> Passes:
    """The pass in evaluation, and the one in training if it uses what the first does not."""
    recorder, calls = Recorder(model), [(call, False)]
    graph = recorder.graph
    try:
        recorder.run(call, training=False)
    except Failed as problem:
        shapes = [tuple(tensor.shape) for tensor in call.tensors()]
        raise ValueError(f"the model does not run on the example {shapes}: {problem}") from problem
    unseen = _unseen(model, graph)
    if unseen:
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


def settle(model: nn.Module, call: Call, request: Request, trust: Trust) -> Settled:
    """A plan that does what is foreseen and gives the same outputs; guesses that fail go."""
    passes = record_passes(model, call)
    model.eval()
    passes.varied = variations(model, call)
    settling = False  # a first pass may fill caches: what counts is what later ones do
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
                    cut = record(model, passes.calls)
                except Failed as problem:
                    cut, failure = problem.graph, str(problem)
            wrong = surprise(state, life, cut)
            if wrong is None:
                settled = _compared(model, passes, request, decided, state, cut)
        if wrong is None:
            return _accepted(model, call, passes, request, settled)
        node, reason = wrong
        if not settling:
            settling = True
            again = record_passes(model, call)
            if [n.op for n in again.graph.nodes] != [n.op for n in passes.graph.nodes]:
                again.varied, passes = passes.varied, again
                continue
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
    model: nn.Module, passes: Passes, request: Request, decided: Plan, state: State, cut: Graph
) -> Settled:
    """What the cut network gives, beside what the uncut one gave."""
    worst = difference(cut.results, passes.graph.results)
    model.eval()
    varies, verified = math.nan, ["example"]
    for variation in passes.varied:
        ours = tensors_in(variation.call.run(model))
        worst = max(worst, difference(ours, variation.wanted))
        verified.append(variation.what)
        varies = _spread_of(ours, variation)
    return Settled(decided, state, worst, tuple(verified), varies=varies, unseen=passes.unseen)


def _accepted(
    model: nn.Module, call: Call, passes: Passes, request: Request, settled: Settled
) -> Settled:
    """The settled plan, if the outputs are the same but for rounding."""
    if request.ghosts == "drop":
        if settled.plan.dropped:
            exact = analyse(passes.graph, replace(request, ghosts="keep"), settled.state.trust)
            kept, _ = plan(exact, "keep", None, request.at_least)
            settled = replace(settled, params_with_ghosts=params_left(model, kept))
        return settled
    limit = LIMITS[precision(model)]
    if not settled.difference <= limit:
        moved = rounding(model, call)
        if not settled.difference <= 30 * moved:
            raise ValueError(
                f"no cut could be verified: the outputs changed by {settled.difference:.2g} of "
                f"their size, rounding alone moves them by {moved:.2g}"
            )
    if settled.plan.for_evaluation == 0:
        return replace(settled, differs_in_training=_differs_in_training(model, passes, settled))
    return settled


def _differs_in_training(model: nn.Module, passes: Passes, settled: Settled) -> bool:
    """Whether training gives other outputs, though nothing that is known says so."""
    batches = [variation.call for variation in passes.varied if "batch" in variation.what]
    for call in batches[:1]:
        try:
            with in_training(model):
                wanted = tensors_in(call.run(model))
        except Exception:  # it asks for targets, perhaps
            return False
        with cut_for_a_moment(model, settled.plan), in_training(model):
            ours = tensors_in(call.run(model))
        if not difference(ours, wanted) <= 10 * LIMITS[precision(model)]:
            return True
    return False


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
    left = total = 0
    for name, parameter in model.named_parameters():
        lengths = list(parameter.shape)
        total += parameter.numel()
        for axis in range(len(lengths)):
            if (name, axis) in decided.keep:
                lengths[axis] = decided.keep[name, axis].shape[-1]
        left += math.prod(lengths)
    return left / max(total, 1)
