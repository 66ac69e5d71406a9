"""Networks that Torch-Pruning cut, so that our training can train them: same loop, same budget.

Its network is kept as numbers alone. A file beside them names what builds it, as FILE.py:network
does for any network of one's own: the whole network is built, and every tensor gets the shape and
the numbers that Torch-Pruning left it with.
"""

import copy
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import explainfix as xf
from explainfix.layers import own_tensors
from explainfix.prune.cut import _count, _hold


def rebuilt(spec, weights, num_classes, in_channels):
    """The network of a name, with tensors as in a file of Torch-Pruning's network."""
    model = xf.create_model(spec, num_classes=num_classes, in_channels=in_channels)
    kept = load_file(weights)
    for path, module in model.named_modules():
        for key, tensor in own_tensors(module).items():
            new = kept[f"{path}.{key}" if path else key]
            parameter = isinstance(tensor, nn.Parameter)
            _hold(module, key, nn.Parameter(new) if parameter else new)
        if getattr(module, "groups", 1) > 1:  # its networks here are depthwise where grouped
            module.groups = module.weight.shape[0]
        if own_tensors(module):
            _count(module)
    return model


def keep(model, spec, folder):
    """Write a network that Torch-Pruning cut, and the file that builds it; what a run names."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = (folder / "pruned.safetensors").absolute()
    save_file({k: v.detach().contiguous().clone() for k, v in model.state_dict().items()}, weights)
    here = str(Path(__file__).parent)
    program = (
        f"import sys\nsys.path.insert(0, {here!r})\nfrom torch_pruned import rebuilt\n\n"
        "def network(num_classes, in_channels):\n"
        f"    return rebuilt({spec!r}, {str(weights)!r}, num_classes, in_channels)\n"
    )
    (folder / "pruned.py").write_text(program)
    return f"{folder / 'pruned.py'}:network"


def cut(model, example, ratio, *, importance, batches, loss):
    """One step of Torch-Pruning's pruner, by its own importance, over the whole network.

    As its authors do: all layers compete, those of like shape among themselves (isomorphic), and
    of none goes more than 0.95, as in ours. Taylor's importance needs gradients of the loss on a
    few batches.
    """
    import torch_pruning as tp

    model = copy.deepcopy(model).eval()
    kinds = {
        "taylor": tp.importance.GroupTaylorImportance,
        "magnitude": tp.importance.GroupMagnitudeImportance,
    }
    last = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))][-1]
    with warnings.catch_warnings(action="ignore"):  # of parameters that no layer holds
        pruner = tp.pruner.BasePruner(
            model,
            example,
            importance=kinds[importance](),
            global_pruning=True,
            isomorphic=True,
            pruning_ratio=ratio,
            max_pruning_ratio=0.95,
            ignored_layers=[last],
        )
    if importance == "taylor":
        model.zero_grad()
        for images, targets in batches:
            loss(model(images), targets).backward()
    pruner.step()
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        model(example)
    return model
