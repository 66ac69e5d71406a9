"""batchnorm: the gain |γ| by which BatchNorm scales a kernel's output, or its input; no data."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ...layers import weight_name
from ...recording.graph import Graph, Node, Ref
from ...recording.noise import record_anyhow
from ..kind import Given, Layer, by_model


@by_model("batchnorm")
def batchnorm(layers: Mapping[str, Layer], given: Given) -> dict[str, Tensor]:
    """|γ| of the BatchNorm that reads a layer's outputs, or of the one that its inputs come from.

    Kernels with neither get the mean of all others: nothing speaks for or against them.
    """
    graph = record_anyhow(given.model, given.example, "which layer a BatchNorm belongs to")
    found = {path: _gains(graph, path, layer) for path, layer in layers.items()}
    known = [gains.mean() for gains in found.values() if gains is not None]
    if not known:
        raise ValueError(
            f"no BatchNorm with a gain is beside a layer of this {type(given.model).__name__}: "
            "choose another kind of saliency"
        )
    usual = float(torch.stack(known).mean())
    grids = {path: layer.weight.shape[:2] for path, layer in layers.items()}
    return {
        path: torch.full(grids[path], usual, dtype=torch.float64) if gains is None else gains
        for path, gains in found.items()
    }


def _gains(graph: Graph, path: str, layer: Layer) -> Tensor | None:
    """|γ| for every kernel of a layer."""
    name = weight_name(path)
    for node in graph.nodes:
        if node.training or name not in (graph.parameters.get(r.number) for r in node.inputs):
            continue
        first, second = layer.weight.shape[:2]
        turned = node.name == "convolution" and bool(node.args[6])
        groups = getattr(layer, "groups", 1)
        after = [_gain(graph, reader) for reader in graph.readers.get(node.outputs[0], ())]
        if (gain := next((each for each in after if each is not None), None)) is not None:
            if turned:  # (inputs, outputs of a group)
                by_group = gain.reshape(groups, 1, second)
                return by_group.expand(groups, first // groups, second).reshape(first, second)
            return gain[:, None].expand(first, second).clone()
        before = _gain_before(graph, node)
        if before is not None and groups == 1 and not turned:
            return before[None].expand(first, second).clone()
    return None


def _gain(graph: Graph, node: Node) -> Tensor | None:
    """The absolute gain of a BatchNorm."""
    if "batch_norm" not in node.name or node.training or not isinstance(node.args[1], Ref):
        return None
    return graph.tensors[node.args[1].number].detach().abs().double().cpu()


def _gain_before(graph: Graph, node: Node) -> Tensor | None:
    """The gain of the BatchNorm whose outputs a layer reads, with no more than points between."""
    makers = {ref: maker for maker in graph.nodes for ref in maker.outputs}
    at: Ref = node.inputs[0]
    while (maker := makers.get(at)) is not None:
        if (gain := _gain(graph, maker)) is not None:
            return gain
        alike = [ref for ref in maker.inputs if graph.shapes[ref.number] == graph.shapes[at.number]]
        if len(alike) != 1 or maker.name in ("convolution", "addmm", "mm"):
            return None
        at = alike[0]
    return None
