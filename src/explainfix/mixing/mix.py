"""mix_: a learned 1x1 behind fixed convolutions that nothing learned mixes.

Fixed filters only look; what they see must be combined by weights that are learned. Networks with
1x1 convolutions between their spatial layers have them. In others, a ResNet18, a VGG or a plain
U-Net, next to nothing is left to learn once the filters are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from torch import nn

from ..layers import (
    PLAIN_CONVOLUTIONS,
    Convolution,
    attributes_as_found,
    matching,
    spatial_layers,
    weight_name,
)
from ..marks.changes import remember
from ..marks.untrained import teaches_nothing
from ..recipe import recipe_of, recipes
from ..recording.graph import Graph, Node, Ref
from ..recording.noise import Example, record_anyhow
from .steered import Split, Steered, is_dense, require_original

# Products with a weight, which combine channels if it is learned.
_WITH_SUMMAND = ("addmm", "baddbmm", "addbmm", "addmv")  # their first argument is a bias
_PRODUCTS = ("mm", "bmm", "mv", "linear", *_WITH_SUMMAND)


@teaches_nothing
def mix_(
    model: nn.Module,
    *,
    layers: str | Iterable[str] | None = None,
    example_inputs: Example | None = None,
) -> list[str]:
    """Put a learned 1x1 behind every fixed dense convolution that nothing learned mixes.

    Each begins as the identity: outputs are what they were. Which layers need one is seen in a
    pass of the model, those that `unmixed_layers` gives; `layers` names others, by path or pattern,
    needed or not. `example_inputs` is what the model runs on; without it images of a few sizes are
    tried. Gives the paths of the layers. `merge_` takes the 1x1 into the kernels again.

    >>> import explainfix as xf
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    >>> recipe = xf.fix_(model, "ghaar")
    >>> mix_(model)
    ['0', '2']
    >>> model[0]
    Steered(
      (spatial): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
      (steering): Conv2d(8, 8, kernel_size=(1, 1), stride=(1, 1), bias=False)
    )
    """
    if not recipes(model):
        raise ValueError(f"no layer of this {type(model).__name__} is fixed: call fix_ first")
    if layers is None:
        chosen = layers_to_mix(model, example_inputs)
    else:
        fixed = _mixable(model)
        if not fixed:
            raise ValueError(
                f"no dense convolution of this {type(model).__name__} is fixed and without a 1x1"
            )
        chosen = list(matching(fixed, layers, "fixed dense layer"))
    if chosen:
        with attributes_as_found(model, on_error_only=True):
            change = Split(mixed=chosen)
            change.again_(model)
            remember(model, change)
    return chosen


def layers_to_mix(
    model: nn.Module,
    example_inputs: Example | None = None,
    *,
    suppose_fixed: Collection[str] = (),
) -> list[str]:
    """Those of the `unmixed_layers` behind which `mix_` would put a 1x1."""
    mixable = _mixable(model, suppose_fixed)
    if not mixable:
        return []
    unmixed = unmixed_layers(model, example_inputs, suppose_fixed=suppose_fixed)
    return [path for path in unmixed if path in mixable]


def unmixed_layers(
    model: nn.Module,
    example_inputs: Example | None = None,
    *,
    suppose_fixed: Collection[str] = (),
) -> list[str]:
    """The fixed dense layers that nothing learned mixes before the next spatial one, or the output.

    `suppose_fixed` names layers that are to be fixed: they count as if they were.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 3))
    >>> unmixed_layers(model, suppose_fixed=["0", "2"])  # a 1x1 mixes what the first one sees
    ['2']
    """
    layers = {path: layer for path, layer in spatial_layers(model).items() if is_dense(layer)}
    graph = record_anyhow(model, example_inputs, "which layers need mixing")
    fixed = {
        weight_name(path)
        for path, layer in spatial_layers(model).items()
        if path in suppose_fixed or not layer.weight.requires_grad
    }
    learned, weights = _weight_values(graph, fixed)
    bare = _bare_values(graph, learned, weights)
    unmixed = {
        name
        for node in graph.nodes
        if any(out.number in bare for out in node.outputs)
        for ref in node.inputs
        if ref.number not in learned
        for name in weights.get(ref.number, ())
    }
    return [path for path in layers if weight_name(path) in unmixed & fixed]


def _mixable(model: nn.Module, suppose_fixed: Collection[str] = ()) -> dict[str, Convolution]:
    """Fixed dense convolutions that are not part of a steered layer."""
    require_original(model)
    inside = {id(m.spatial) for m in model.modules() if isinstance(m, Steered)}
    found = {
        path: layer
        for path, layer in spatial_layers(model).items()
        if isinstance(layer, PLAIN_CONVOLUTIONS)
        and (recipe_of(layer) or path in suppose_fixed)
        and is_dense(layer)
        and id(layer) not in inside
    }
    if "" in found:
        raise ValueError("the model itself is a convolution: put it into an nn.Sequential")
    return found


def _bare_values(graph: Graph, learned: set[int], weights: Collection[int]) -> set[int]:
    """The values that reach a spatial layer or an output with nothing learned in between."""
    bare = {ref.number for ref in graph.outputs}
    for node in reversed(graph.nodes):
        data = [ref.number for ref in node.inputs if ref.number not in weights]
        weight = _weight(graph, node, learned)
        if weight is not None and weight.number in learned and _sums_channels(graph, node):
            continue
        kernel = graph.shapes[weight.number][2:] if weight is not None else ()
        if math.prod(kernel) > 1 or any(out.number in bare for out in node.outputs):
            bare.update(data)
    return bare


def _weight_values(graph: Graph, fixed: set[str]) -> tuple[set[int], dict[int, set[str]]]:
    """The values that are learned weights, and those made of any weights and buffers alone.

    Of the latter the names of what they are made of. Fixed kernels that are standardised or scaled
    at every step, by a gain that is learned perhaps, stay what they were; those that a product
    with something learned combines do not.
    """
    weights = {number: {name} for number, name in graph.parameters.items()}
    learned = {
        number
        for number, name in graph.parameters.items()
        if name not in fixed and graph.tensors[number].requires_grad
    }
    for node in graph.nodes:
        numbers = {ref.number for ref in node.inputs}
        if numbers and numbers <= weights.keys():
            names = set[str]().union(*(weights[number] for number in numbers))
            made = {ref.number: names for ref in node.outputs}
            weights |= made
            only_fixed = [n for n in numbers - learned if weights[n] & fixed]
            if numbers & learned and (node.name in _PRODUCTS or not only_fixed):
                learned |= made.keys()
    return learned, weights


def _weight(graph: Graph, node: Node, learned: set[int]) -> Ref | None:
    """What a convolution or a product multiplies channels by: of a product, what is learned."""
    if node.name == "convolution":
        return node.inputs[1]
    for ref in node.inputs:  # an operation of somebody's own, deformable perhaps
        if graph.parameters.get(ref.number) in graph.kernels:
            return ref
    if node.name in _PRODUCTS:
        factors = node.inputs[1:] if node.name in _WITH_SUMMAND else node.inputs
        return next((ref for ref in factors if ref.number in learned), None)
    return None


def _sums_channels(graph: Graph, node: Node) -> bool:
    if node.name != "convolution":
        return True
    channels, groups = graph.shapes[node.inputs[0].number][1], node.args[8]
    return bool(groups == 1 or channels > groups)
