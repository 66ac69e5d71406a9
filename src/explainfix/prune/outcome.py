"""What pruning did, layer by layer and in all: PruneReport."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from torch import nn

from ..layers import Convolution
from ..recording.graph import Graph, Ref
from ..registry import Shown
from .state import Barrier

SILENT = 1e-4  # outputs that vary less than this between inputs, relative to their size

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Size:
    """How large a layer or a network is. Multiply-adds are those of one pass of the example."""

    parameters: int
    bytes: int
    multiply_adds: int


@dataclass(frozen=True)
class LayerSize(Size):
    """A layer's size, and its channels."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class PruneReport(Shown):
    """What pruning did. Layers are keyed by module path."""

    before: Size
    after: Size
    layers_before: Mapping[str, LayerSize]
    layers_after: Mapping[str, LayerSize]
    folded_by_layer: Mapping[str, int]  # constant inputs that each layer took over
    dropped_by_layer: Mapping[str, int]  # its constant outputs that went without a trace
    for_evaluation: int  # removed constants that have another value in training
    barriers: tuple[Barrier, ...]
    difference: float  # the largest change of an output, relative to their root mean square
    seconds: float
    zeroed: Mapping[str, int] = field(default_factory=dict)  # kernels, per layer
    filled: Mapping[str, int] = field(default_factory=dict)  # weights, per layer
    zero_share: float | None = None
    verified: tuple[str, ...] = ()  # what the outputs were compared on
    rewritten: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # attribute: from, to
    differs_in_training: bool = False  # found by trying
    params_with_ghosts: float = math.nan  # the share left if dropped ghosts had been kept
    constants_kept: int = 0  # constant channels that nothing could take over
    warnings: tuple[str, ...] = ()

    @property
    def parameters_before(self) -> int:
        return self.before.parameters

    @property
    def parameters_after(self) -> int:
        return self.after.parameters

    @property
    def params_kept(self) -> float:
        """The share of the parameters that is left."""
        return self.after.parameters / self.before.parameters

    @property
    def folded(self) -> int:
        """How many constant channels were folded into what reads them."""
        return sum(self.folded_by_layer.values())

    @property
    def ghosts_dropped(self) -> int:
        """How many constant channels went as in the paper, without being folded."""
        return sum(self.dropped_by_layer.values())

    @property
    def exact_in_training(self) -> bool:
        """Whether the pruned network computes the same in training mode as well."""
        return not (self.for_evaluation or self.ghosts_dropped or self.differs_in_training)

    def table(self) -> pd.DataFrame:
        """A row per convolution and linear layer: what it lost."""
        import pandas as pd

        return pd.DataFrame(self._rows()).set_index("layer")

    def as_dict(self) -> dict[str, Any]:
        """Everything, as numbers and words that JSON can hold."""
        return {
            "zero_share": self.zero_share,
            "params_kept": self.params_kept,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "zeroed": sum(self.zeroed.values()),
            "folded": self.folded,
            "ghosts_dropped": self.ghosts_dropped,
            "exact_in_training": self.exact_in_training,
            "difference": self.difference,
            "verified": list(self.verified),
            "rewritten": {name: list(pair) for name, pair in self.rewritten.items()},
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "constants_kept": self.constants_kept,
            "barriers": [asdict(barrier) for barrier in self.barriers],
            "layers": self._rows(),
        }

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for path, before in self.layers_before.items():
            row: dict[str, Any] = {"layer": path}
            for when, size in (("before", before), ("after", self.layers_after[path])):
                row |= {f"{name.name}_{when}": getattr(size, name.name) for name in fields(size)}
            row["kernels_zeroed"] = self.zeroed.get(path, 0)
            row["outputs_pruned"] = row["outputs_before"] - row["outputs_after"]
            row["constants_folded"] = self.folded_by_layer.get(path, 0)
            row["ghosts_dropped"] = self.dropped_by_layer.get(path, 0)
            row["weights_filled"] = self.filled.get(path, 0)
            rows.append(row)
        return rows

    def __repr__(self) -> str:
        exact = "in training too" if self.exact_in_training else "in evaluation"
        said = (
            f"{self.ghosts_dropped:,} ghosts dropped" if self.ghosts_dropped else f"exact {exact}"
        )
        return (
            f"PruneReport: {self.after.parameters:,} of {self.before.parameters:,} parameters "
            f"kept ({self.params_kept:.1%}), {said}"
        )

    def __str__(self) -> str:
        before, after = self.before, self.after
        name, unit = ("megabytes", 1e6) if before.bytes >= 1e6 else ("kilobytes", 1e3)
        rows = [
            ("parameters", f"{before.parameters:,}", f"{after.parameters:,}", self.params_kept),
            (name, f"{before.bytes / unit:,.2f}", f"{after.bytes / unit:,.2f}",
             after.bytes / before.bytes),
            ("million multiply-adds", f"{before.multiply_adds / 1e6:,.1f}",
             f"{after.multiply_adds / 1e6:,.1f}",
             after.multiply_adds / max(before.multiply_adds, 1)),
        ]  # fmt: skip
        lines = [f"{'':22}{'before':>14}{'after':>14}{'kept':>8}"]
        lines += [f"{name:22}{old:>14}{new:>14}{share:>8.1%}" for name, old, new, share in rows]
        moved = f"Largest change of an output: {self.difference:.1e}"
        if len(self.verified) > 1:
            moved += f", on the example and on other {self.verified[1]}"
        lines.append(f"{moved}.")
        if self.folded:
            lines.append(f"{self.folded:,} constant channels were folded into what reads them.")
        if self.for_evaluation:
            lines.append(
                f"This is for evaluation: {self.for_evaluation:,} constants differ in training."
            )
        if self.differs_in_training:
            lines.append("This is for evaluation: in training the outputs differ.")
        if self.ghosts_dropped:
            lines.append(
                f"{self.ghosts_dropped:,} constant channels (ghosts) were dropped; keeping them "
                f"would have kept {self.params_with_ghosts:.1%} of the parameters."
            )
        for name, (old, new) in self.rewritten.items():
            lines.append(f"{name} was {old} and is {new}.")
        lines += [f"Warning: {warning}" for warning in self.warnings]
        if self.constants_kept and not self.ghosts_dropped:
            lines.append(
                f"{self.constants_kept:,} constant channels stay: a gate, a sum or a padded "
                "convolution that reads them cannot take them over."
            )
        for barrier in sorted(self.barriers, key=lambda b: -b.channels)[:5]:
            lines.append(f"{barrier.channels:,} channels stay because of {barrier}.")
        return "\n".join(lines)


def warnings_of(
    before: Mapping[str, LayerSize],
    after: Mapping[str, LayerSize],
    varies: float,
    unseen: tuple[str, ...],
) -> tuple[str, ...]:
    """What a user should know before using a pruned network; `varies` may be NaN for unknown."""
    found = []
    single = [path for path in after if after[path].outputs == 1 < before[path].outputs]
    if single:
        found.append(f"{_some(single)} left with a single channel.")
    if varies < SILENT:
        found.append(f"the outputs hardly depend on the input: they vary by {varies:.0e}.")
    if unseen:
        found.append(f"{_some(unseen)} took no part in any pass, and may not fit any more.")
    return tuple(found)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def measure(model: nn.Module, positions: Mapping[str, int]) -> tuple[Size, dict[str, LayerSize]]:
    """The size of a network and of its layers; `positions` as `count_positions` gives them."""
    layers: dict[str, LayerSize] = {}
    for path, module in model.named_modules():
        if isinstance(module, Convolution):
            channels = module.in_channels, module.out_channels
        elif isinstance(module, nn.Linear):
            channels = module.in_features, module.out_features
        else:
            continue
        own = list(module.parameters(recurse=False))
        number = sum(p.numel() for p in own)
        volume = sum(p.numel() * p.element_size() for p in own)
        work = positions.get(path, 0) * module.weight.numel()
        layers[path] = LayerSize(number, volume, work, *channels)
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    whole = Size(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        sum(layer.multiply_adds for layer in layers.values()),
    )
    return whole, layers


def count_positions(graph: Graph) -> dict[str, int]:
    """How often each layer's weight is applied in a recorded pass, by module path."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.training:
            continue
        if node.name == "convolution":
            turned = node.args[6]
            image = graph.shapes[(node.args[0] if turned else node.outputs[0]).number]
            times = math.prod(image) // image[1]
        elif node.name in ("addmm", "mm") and isinstance(node.args[-1], Ref):
            times = graph.shapes[node.outputs[0].number][0]
        else:
            continue
        # The module that was running is the layer, however its weight came about.
        counts[node.module] = counts.get(node.module, 0) + times
    return counts
