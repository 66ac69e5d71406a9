"""Saliency: how much each spatial kernel matters to the outputs, Eq. (7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ..layers import Convolution, Track, as_found, select_layers
from ..registry import Shown, unknown
from ..running import explained, first_not_finite, is_finite, map_tensors, tensors_in
from ..table import as_frame
from . import kinds as every_kind  # noqa: F401 (registers them)
from .batches import Inputs, plain, primary_output, split_batch
from .kind import ByGradient, Given, Layer, kinds
from .scores import all_outputs, by_shape

if TYPE_CHECKING:
    import pandas as pd

ScoreFunction = Callable[[Any, Any], Tensor]


@dataclass(frozen=True, eq=False)
class Saliency(Shown, Mapping[str, Tensor]):
    """One score per kernel, by module path, each of shape `weight.shape[:2]`.

    `error`, if asked for, has the standard error of each score; `skipped` the layers without scores
    and why; `batches` the number of minibatches.
    """

    scores: dict[str, Tensor]
    kind: str
    batches: int
    error: dict[str, Tensor] | None
    skipped: dict[str, str]

    def __getitem__(self, path: str) -> Tensor:
        return self.scores[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def silent(self) -> tuple[str, ...]:
        """The layers no score reaches: nothing that was counted depends on any of their kernels."""
        return tuple(path for path, score in self.scores.items() if not score.any())

    def __repr__(self) -> str:
        kernels = sum(score.numel() for score in self.scores.values())
        passes = f"over {self.batches} batch{'es' * (self.batches != 1)}"
        how = passes if self.batches else f"by {self.kind}"
        said = f"Saliency of {kernels:,} kernels in {len(self)} layers, {how}"
        if not self.silent:
            return said
        more = f" and {len(self.silent) - 3} more" if len(self.silent) > 3 else ""
        return f"{said}\nNo score reaches {', '.join(self.silent[:3])}{more}"

    def table(self) -> pd.DataFrame:
        """Per layer: kernels, total and mean saliency, its share, the share of its top 10%."""
        return as_frame(self.rows(), "layer")

    def rows(self) -> list[dict[str, Any]]:
        """What `table` holds, as plain numbers."""
        total = sum(float(score.sum()) for score in self.scores.values()) or 1.0
        rows = []
        for path, score in self.scores.items():
            ranked = score.flatten().sort(descending=True).values
            top = ranked[: max(1, len(ranked) // 10)].sum() / ranked.sum().clamp(min=1e-300)
            rows.append(
                {
                    "layer": path,
                    "kernels": score.numel(),
                    "saliency": float(score.sum()),
                    "mean": float(score.mean()),
                    "share": float(score.sum()) / total,
                    "top_10%": float(top),
                }
            )
        return rows


def saliency(
    model: nn.Module,
    batches: Iterable[Any] = (),
    *,
    score: ScoreFunction | None = None,
    kind: str = "weight_gradient",
    pointwise: bool = False,
    max_batches: int | None = None,
    error: bool = False,
    seed: int = 0,
    progress: Track | None = None,
) -> Saliency:
    """Score every spatial kernel f by Σ over minibatches of 1ᵀ|d(yᵀ ŷ/ŷ')/df ∘ f|, Eq. (7).

    `batches` yields `x`, `(x, y)` or dictionaries. A model of several inputs takes
    `((a, b), y)`, `({"name": a, ...}, y)`, or a dictionary with the names of its forward. y has
    the shape of the (first) output, or is class indices, or a mask; without it all outputs count,
    of whatever the model returns. `score(output, y)` may be any other scalar: it gets the output
    as the model returned it. `error=True` adds the standard error that a bootstrap over the
    minibatches would give. Frozen filters are scored too, and so are computed ones, as by
    weight_norm. The model runs in eval mode, on copies of the inputs, and is left exactly as it was
    found.

    Other kinds are "gradient", which leaves out "∘ f", and, without data, "magnitude", Σ|f|,
    "batchnorm", the gain of the BatchNorm beside a kernel, and "random", drawn from `seed`.
    `pointwise=True` scores 1x1 convolutions and linear layers as well, kernels of one weight.

    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 3))
    >>> scores = saliency(model, [(torch.randn(2, 1, 8, 8), torch.tensor([0, 2]))])
    >>> scores["0"].shape
    torch.Size([4, 1])
    """
    how = kinds.find(kind)
    scored, skipped = _layers_to_score(model, pointwise=pointwise)
    if how.of_model is not None:
        if error:
            raise ValueError(f"error=True needs a kind that sees batches, and {kind!r} sees none")
        first = next(iter(batches), None)
        given = Given(model, seed, None if first is None else _example(first, model))
        return Saliency(how.of_model(scored, given), kind, 0, None, skipped)
    assert how.of_gradient is not None
    total = {p: torch.zeros(_grid(layer), dtype=torch.float64) for p, layer in scored.items()}
    squares = {path: torch.zeros_like(value) for path, value in total.items()}
    count = 0
    limited = itertools.islice(batches, max_batches)
    with as_found(model), torch.enable_grad():
        model.eval()
        model.requires_grad_(False)
        for batch in progress(limited) if progress else limited:
            found = _batch_scores(model, scored, batch, score, how.of_gradient)
            for path, value in found.items():
                total[path] += value
                if error:
                    squares[path] += value.square()
            count += 1
    if count == 0:
        raise ValueError("there is no batch to compute saliency from: the data is empty")
    if not any(value.any() for value in total.values()):
        raise ValueError(
            "every score is zero: are the targets all zero, does the model run under no_grad, or "
            "do the outputs not depend on any spatial kernel?"
        )
    # Resampling M terms of a sum has the variance M·Var(term), with the terms' own variance.
    errors = {p: (squares[p] - total[p].square() / count).clamp(min=0).sqrt() for p in total}
    return Saliency(total, kind, count, errors if error else None, skipped)


def _layers_to_score(
    model: nn.Module, *, pointwise: bool
) -> tuple[dict[str, Layer], dict[str, str]]:
    """The layers whose kernels get scores, and those that get none, with the reason."""
    layers: dict[str, Layer] = dict(select_layers(model))
    if pointwise:
        every = dict(model.named_modules())
        layers |= {p: m for p, m in every.items() if isinstance(m, (Convolution, nn.Linear))}
        layers = {path: layers[path] for path in every if path in layers}
    for path, layer in layers.items():
        if is_lazy(layer.weight):
            raise ValueError(f"{path!r} has no weight yet; run the model once on an example first")
    skipped = {
        path: f"its weight is {layer.weight.dtype}, not real numbers"
        for path, layer in layers.items()
        if not layer.weight.is_floating_point()
    }
    scored = {path: layer for path, layer in layers.items() if path not in skipped}
    if not scored:
        reasons = "; ".join(f"{path!r}: {why}" for path, why in list(skipped.items())[:3])
        raise ValueError(f"no layer can be scored: {reasons}")
    return scored, skipped


def _example(batch: object, model: nn.Module) -> tuple[Any, ...] | dict[str, Any]:
    """What a model can be called with, of a batch."""
    inputs, _ = split_batch(batch, model)
    device = next(model.parameters()).device
    args, kwargs = map_tensors(
        (inputs.args, inputs.kwargs), lambda tensor: plain(tensor).detach().to(device)
    )
    return cast("tuple[Any, ...] | dict[str, Any]", kwargs if kwargs and not args else args)


def check_saliency(saliency: Mapping[str, Tensor], layers: Mapping[str, Convolution]) -> None:
    """Raise, naming the layer, unless these are scores for kernels of these layers."""
    for path, scores in saliency.items():
        if path not in layers:
            raise unknown("layer in the saliency", path, layers, "spatial_layers(model)")
        if tuple(scores.shape) != _grid(layers[path]):
            raise ValueError(
                f"the saliency of {path!r} has shape {tuple(scores.shape)}, the layer "
                f"{_grid(layers[path])}: is it of another model?"
            )
        if not bool((scores >= 0).all()):
            raise ValueError(f"the saliency of {path!r} has negative or NaN values")


def _batch_scores(
    model: nn.Module,
    layers: Mapping[str, Layer],
    batch: object,
    score: ScoreFunction | None,
    kind: ByGradient,
) -> dict[str, Tensor]:
    """1ᵀ|dscore/df ∘ f| of one minibatch, or another kind, per kernel."""
    device = next(iter(layers.values())).weight.device
    inputs, y = split_batch(batch, model)
    y = map_tensors(y, lambda tensor: plain(tensor).to(device))
    with _weights_in_use(layers) as used:
        with explained(inputs):
            output = inputs.run(model, device)
        value = _score(output, y, score)
        if not value.isfinite():
            raise ValueError(_not_finite(model, inputs, device, output))
        weights = [weight for several in used.values() for weight in several]
        found: tuple[Tensor | None, ...] = (None,) * len(weights)
        if value.requires_grad:
            found = _gradients(value, weights)
    gradients = dict(zip(map(id, weights), found, strict=True))
    scores: dict[str, Tensor] = {}
    for path, layer in layers.items():
        scores[path] = torch.zeros(_grid(layer), dtype=torch.float64)
        # More than one, if a layer that computes its weight at every call is called twice.
        pairs = [(weight, gradients[id(weight)]) for weight in used[path]]
        parts = [(weight, gradient) for weight, gradient in pairs if gradient is not None]
        if not parts:  # not reached by this pass, such as a head used in training only
            continue
        gradient = sum((part for _, part in parts[1:]), start=parts[0][1])
        each = kind(parts[0][0].detach(), gradient)
        summed = each.reshape(*_grid(layer), -1).sum(2).cpu().double()
        if not summed.isfinite().all():
            raise ValueError(f"the gradient of layer {path!r} is NaN or infinite")
        scores[path] = summed
    return scores


@contextmanager
def _weights_in_use(layers: Mapping[str, Layer]) -> Iterator[dict[str, list[Tensor]]]:
    """The tensors that a pass inside takes for kernels, by path: leaves that want gradients.

    A parametrized weight is computed once inside; a hook computes it at every call, and it is
    looked for then.
    """
    used: dict[str, list[Tensor]] = {path: [] for path in layers}
    others: list[tuple[Layer, Tensor, bool]] = []
    handles = []

    def look(weights: list[Tensor]) -> Callable[[nn.Module, Any], None]:
        def hook(layer: nn.Module, inputs: Any) -> None:
            weight = cast("Tensor", layer.weight).requires_grad_()
            if not any(weight is known for known in weights):
                weights.append(weight)

        return hook

    try:
        with parametrize.cached():
            for path, layer in layers.items():
                weight = layer.weight
                if isinstance(weight, nn.Parameter) or parametrize.is_parametrized(layer, "weight"):
                    used[path].append(weight.requires_grad_())
                else:
                    others.append((layer, weight, weight.requires_grad))
                    handles.append(layer.register_forward_pre_hook(look(used[path])))
            yield used
    finally:
        for handle in handles:
            handle.remove()
        for layer, weight, wanted in others:
            if "weight" in vars(layer):
                vars(layer)["weight"] = weight
            if weight.is_leaf:
                weight.requires_grad_(wanted)


def _score(output: object, y: Any, score: ScoreFunction | None) -> Tensor:
    """The scalar whose gradient is taken."""
    if score is None and y is None:
        tensors = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
        if not tensors:
            primary_output(output)  # raises if there is no tensor at all
            raise ValueError(f"the model returned {type(output).__name__} without real numbers")
        # What depends on no kernel, such as a mask of infinities, has nothing to say.
        counted = [tensor for tensor in tensors if tensor.requires_grad] or tensors[:1]
        return torch.stack([all_outputs(tensor).to(counted[0].device) for tensor in counted]).sum()
    given: object = score(output, y) if score else by_shape(primary_output(output), y)
    value = given if isinstance(given, Tensor) else torch.empty(0)
    if value.numel() != 1:
        shape = tuple(value.shape) if value is given else type(given).__name__
        raise ValueError(f"score(output, target) must give a tensor of one number, not {shape}")
    return value.reshape(())


def _gradients(value: Tensor, weights: list[Tensor]) -> tuple[Tensor | None, ...]:
    try:
        found = torch.autograd.grad(value, weights, allow_unused=True)
    except RuntimeError as problem:
        reason = str(problem).split("Hint:")[0].strip()
        if "inplace operation" in reason:
            raise ValueError(
                "the model changes a tensor in place that its own gradient needs, so nothing can "
                "be scored: write y = y * z for y *= z, mul for mul_, inplace=False for "
                f"inplace=True where that happens (PyTorch: {reason})"
            ) from problem
        raise ValueError(f"PyTorch finds no gradient of this model: {reason}") from problem
    return cast("tuple[Tensor | None, ...]", found)


def _not_finite(model: nn.Module, inputs: Inputs, device: torch.device, output: object) -> str:
    """Where NaN or infinity first appears, found by running the batch once more."""
    if is_finite(output):
        return "the score is NaN or infinite, though the model's output is not"
    if not is_finite((inputs.args, inputs.kwargs)):
        return "the model's output is NaN or infinite: the input is"
    first = first_not_finite(model, lambda: inputs.run(model, device))
    where = f", first at layer {first!r}" if first is not None else ""
    return f"the model's output is NaN or infinite{where}"


def _grid(layer: Layer) -> tuple[int, int]:
    return layer.weight.shape[0], layer.weight.shape[1]
