"""Saliency: how much each spatial kernel matters to the outputs, Eq. (7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..layers import Convolution, as_found, select_layers
from ..registry import unknown
from .scores import by_shape

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["weight_gradient", "gradient"]
Score = Callable[[Tensor, Any], Tensor]
Progress = Callable[[Iterable[Any]], Iterable[Any]]

_INPUTS = ("x", "input", "inputs", "image", "images", "pixel_values")
_TARGETS = ("y", "target", "targets", "label", "labels", "mask", "masks")


@dataclass(frozen=True, eq=False)
class Saliency(Mapping[str, Tensor]):
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

    def table(self) -> pd.DataFrame:
        """Per layer: kernels, total and mean saliency, its share, the share of its top 10%."""
        import pandas as pd

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
        return pd.DataFrame(rows).set_index("layer")


def saliency(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    score: Score | None = None,
    kind: Kind = "weight_gradient",
    max_batches: int | None = None,
    error: bool = False,
    progress: Progress | None = None,
) -> Saliency:
    """Score every spatial kernel f by Σ over minibatches of 1ᵀ|d(yᵀ ŷ/ŷ')/df ∘ f|, Eq. (7).

    `batches` yields `x`, `(x, y)` or dictionaries. y has the output's shape, or is class indices,
    or a mask; without it all outputs count. `score(output, y)` may be any other scalar.
    `kind="gradient"` leaves out "∘ f". `error=True` adds the standard error that a bootstrap over
    the minibatches would give. Frozen filters are scored too. The model runs in eval mode and is
    left exactly as it was found.

    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 3))
    >>> scores = saliency(model, [(torch.randn(2, 1, 8, 8), torch.tensor([0, 2]))])
    >>> scores["0"].shape
    torch.Size([4, 1])
    """
    if kind not in ("weight_gradient", "gradient"):
        raise ValueError(f"kind must be 'weight_gradient' or 'gradient', not {kind!r}")
    layers = select_layers(model)
    skipped = {
        path: "its weight is computed by a parametrization"
        for path, layer in layers.items()
        if parametrize.is_parametrized(layer, "weight")
        or not isinstance(layer.weight, nn.Parameter)
    }
    scored = {path: layer for path, layer in layers.items() if path not in skipped}
    total = {p: torch.zeros(_grid(layer), dtype=torch.float64) for p, layer in scored.items()}
    squares = {path: torch.zeros_like(value) for path, value in total.items()}
    count = 0
    limited = itertools.islice(batches, max_batches)
    with as_found(model), torch.enable_grad():
        model.eval()
        model.requires_grad_(False)
        for layer in scored.values():
            layer.weight.requires_grad_(True)
        for batch in progress(limited) if progress else limited:
            for path, value in _batch_scores(model, scored, batch, score, kind).items():
                total[path] += value
                if error:
                    squares[path] += value.square()
            count += 1
    if count == 0:
        raise ValueError("there is no batch to compute saliency from: the data is empty")
    if not any(value.any() for value in total.values()):
        raise ValueError(
            "every score is zero: are the targets all zero, or do the outputs not depend on any "
            "spatial kernel?"
        )
    # Resampling M terms of a sum has the variance M·Var(term), with the terms' own variance.
    errors = {p: (squares[p] - total[p].square() / count).clamp(min=0).sqrt() for p in total}
    return Saliency(total, kind, count, errors if error else None, skipped)


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
    layers: Mapping[str, Convolution],
    batch: object,
    score: Score | None,
    kind: Kind,
) -> dict[str, Tensor]:
    """1ᵀ|dscore/df ∘ f| of one minibatch, per kernel."""
    weights = [layer.weight for layer in layers.values()]
    x, y = (_on_device(part, weights[0].device) for part in split_batch(batch))
    output = primary_output(_run(model, x))
    if not output.isfinite().all():
        raise ValueError(f"the model's output is NaN or infinite{_first_bad_layer(model, x)}")
    given: object = (score or by_shape)(output, y)
    value = given if isinstance(given, Tensor) else torch.empty(0)
    if value.numel() != 1:
        shape = tuple(value.shape) if value is given else type(given).__name__
        raise ValueError(f"score(output, target) must give a tensor of one number, not {shape}")
    if not value.requires_grad:
        return {
            path: torch.zeros(_grid(layer), dtype=torch.float64) for path, layer in layers.items()
        }
    found = torch.autograd.grad(value.reshape(()), weights, allow_unused=True)
    gradients = cast("tuple[Tensor | None, ...]", found)
    scores: dict[str, Tensor] = {}
    for (path, layer), gradient in zip(layers.items(), gradients, strict=True):
        if gradient is None:  # not reached by this pass, such as a head used in training only
            scores[path] = torch.zeros(_grid(layer), dtype=torch.float64)
            continue
        if kind == "weight_gradient":
            gradient = gradient * layer.weight.detach()
        summed = gradient.abs_().flatten(2).sum(2).cpu().double()
        if not summed.isfinite().all():
            raise ValueError(f"the gradient of layer {path!r} is NaN or infinite")
        scores[path] = summed
    return scores


def split_batch(batch: object) -> tuple[Tensor, Any]:
    """The input and the target, or `None`, of a batch: a tensor, a sequence or a dictionary."""
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        found = next((batch[key] for key in _INPUTS if key in batch), None)
        if not isinstance(found, Tensor):
            raise ValueError(
                f"a batch with the keys {', '.join(map(repr, batch))} has no input: name it "
                f"{' or '.join(map(repr, _INPUTS))}"
            )
        return found, next((batch[key] for key in _TARGETS if key in batch), None)
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], Tensor):
        return batch[0], batch[1] if len(batch) > 1 else None
    raise ValueError(
        f"a batch must be a tensor, (input, target) or a dictionary, not {type(batch).__name__}"
    )


def primary_output(output: object) -> Tensor:
    """The main tensor of whatever a model returns: itself, "out" or "logits", or the first one."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        ordered = [output[key] for key in ("out", "logits") if key in output]
        parts: Iterable[object] = [*ordered, *output.values()]
    else:
        parts = output if isinstance(output, (tuple, list)) else []
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise ValueError(f"the model returned {type(output).__name__}, in which there is no tensor")


def _run(model: nn.Module, x: Tensor) -> object:
    try:
        return model(x)
    except (RuntimeError, ValueError, IndexError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ValueError(
            f"the model does not run on a batch of shape {tuple(x.shape)}: {reason}"
        ) from problem


def _first_bad_layer(model: nn.Module, x: Tensor) -> str:
    """Where NaN or infinity first appears, found by running the batch once more."""
    found: list[str] = []
    if not x.isfinite().all():
        return ": the input is"

    def watch(name: str) -> Callable[[nn.Module, Any, object], None]:
        def hook(module: nn.Module, inputs: Any, output: object) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(name)

        return hook

    leaves = [(n, m) for n, m in model.named_modules() if not any(True for _ in m.children())]
    handles = [module.register_forward_hook(watch(name)) for name, module in leaves]
    try:
        with torch.no_grad():
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return f", first at layer {found[0]!r}" if found else ""


def _on_device(part: Any, device: torch.device) -> Any:
    return part.to(device) if isinstance(part, Tensor) else part


def _grid(layer: Convolution) -> tuple[int, int]:
    return layer.weight.shape[0], layer.weight.shape[1]
