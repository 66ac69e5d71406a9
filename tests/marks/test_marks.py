"""What explainfix leaves on a module is what `marks` lists, and nothing else."""

import torch
from torch import nn

import explainfix as xf
from explainfix import marks
from explainfix.backward.recompute import make_frugal_

ATTRIBUTES = {name for kind, name in vars(marks).items() if kind.isupper()}


def traces(model):
    """Attributes and hooks of every module, by path."""
    return {
        path: (
            {name for name in vars(module) if not name.startswith("_")},
            {
                kind: len(hooks)
                for kind, hooks in vars(module).items()
                if kind.endswith("_hooks") and hooks
            },
        )
        for path, module in model.named_modules()
    }


def test_what_is_left_is_listed():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 3))
    before, keys = traces(model), set(model.state_dict())
    xf.fix_(model, "ghaar", layers="0")
    with torch.no_grad():
        model[0].weight[4:] = 0
    make_frugal_(model)
    xf.prune_(model, torch.randn(2, 1, 16, 16), ghosts="drop")
    model.load_state_dict(model.state_dict())
    assert set(model.state_dict()) == keys
    for path, (attributes, hooks) in traces(model).items():
        assert attributes - before[path][0] <= ATTRIBUTES
        assert set(hooks) - set(before[path][1]) <= {
            "_forward_hooks",
            "_state_dict_hooks",
            "_load_state_dict_pre_hooks",
            "_load_state_dict_post_hooks",
        }
    named = traces(model)
    assert marks.CHANGES in named[""][0]
    assert marks.RECIPE in named["0"][0]
    assert marks.WAITING not in named["0"][0]
    assert "_forward_hooks" in named["0"][1]
    assert type(model[0]) is nn.Conv2d
