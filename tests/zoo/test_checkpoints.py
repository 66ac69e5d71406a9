"""Weights as training programs leave them: whatever nests them and whatever prefix they have."""

import argparse
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import explainfix as xf
from explainfix.zoo.unetd import UNetD

FACTORY = """
from torch import nn

def net(num_classes=2):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, num_classes, 1))
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "nets.py").write_text(FACTORY)
    return f"{tmp_path / 'nets.py'}:net"


@pytest.fixture
def state(spec):
    torch.manual_seed(5)
    return xf.create_model(spec).state_dict()


def renamed(state, prefix):
    return OrderedDict((f"{prefix}{name}", value) for name, value in state.items())


def lightning(state, prefix="model."):
    """The layout of a Lightning checkpoint, with a loss that has weights and a metric."""
    beside = {"loss.weight": torch.ones(2), "val_f1.tp": torch.zeros(())}
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.ones(3), "exp_avg_sq": torch.ones(3)}
    stopping = {"wait_count": 0, "best_score": torch.tensor(0.5), "patience": 3}
    return {
        "epoch": 3,
        "global_step": 120,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": renamed(state, prefix) | beside,
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4}}}},
        "callbacks": {"EarlyStopping{'monitor': 'val_loss'}": stopping},
        "optimizer_states": [{"state": {0: moments}, "param_groups": [{"lr": 1e-3}]}],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 1e-3, "arch": "net"},
    }


LAYOUTS = {
    "plain": lambda s: s,
    "lightning": lightning,
    "lightning, compiled": lambda s: lightning(s, "model._orig_mod."),
    "lightning, another name": lambda s: lightning(s, "student.net.backbone."),
    "lightning, the module itself": lambda s: {"state_dict": dict(s), "epoch": 1},
    "DDP": lambda s: {"model": renamed(s, "module.")},
    "DDP of a compiled one": lambda s: {"model_state_dict": renamed(s, "module._orig_mod.")},
    "net": lambda s: {"net": dict(s), "acc": 91.2, "epoch": 7},
    "compiled inside": lambda s: {n.replace("0.", "0._orig_mod."): v for n, v in s.items()},
    "deep": lambda s: {"checkpoint": {"trainer": {"model": {"weights": dict(s)}}}},
    "averaged": lambda s: renamed(s, "module.") | {"n_averaged": torch.tensor(4)},
    "parts": lambda s: {  # a state_dict for each part of the network
        part: {n.partition(".")[2]: v for n, v in s.items() if n.startswith(f"{part}.")}
        for part in ("0", "1", "2")
    },
}  # fmt: skip


def test_plain_data_beside_the_weights(spec, state, tmp_path):
    content = lightning(state) | {
        "best_acc": np.float64(0.9),
        "counts": [np.int64(3), np.bool_(True), np.float32(0.1)],
        "hyper_parameters": argparse.Namespace(lr=1e-3, data=tmp_path),
    }
    torch.save(content, tmp_path / "last.ckpt")
    with torch.serialization.safe_globals([]):
        before = set(torch.serialization.get_safe_globals())
        model = xf.create_model(spec, weights=tmp_path / "last.ckpt")
        assert set(torch.serialization.get_safe_globals()) == before
    assert torch.equal(model[0].weight, state["0.weight"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout, spec, state, tmp_path):
    torch.save(LAYOUTS[layout](state), tmp_path / "last.ckpt")
    model = xf.create_model(spec, weights=tmp_path / "last.ckpt")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_safetensors_have_prefixes_too(spec, state, tmp_path):
    save_file(renamed(state, "model._orig_mod."), tmp_path / "w.safetensors")
    model = xf.create_model(spec, weights=tmp_path / "w.safetensors")
    assert torch.equal(model[0].weight, state["0.weight"])


@pytest.mark.parametrize("copy", ["state_dict_ema", "model_ema", "ema", "shadow"])
def test_of_weights_and_their_average_the_weights_are_taken(copy, spec, state, tmp_path):
    average = {name: value + 1 for name, value in state.items()}
    torch.save({copy: average, "state_dict": renamed(state, "module.")}, tmp_path / "both.pth")
    model = xf.create_model(spec, weights=tmp_path / "both.pth")
    assert torch.equal(model[0].weight, state["0.weight"])
    model = xf.create_model(spec, weights=f"{tmp_path / 'both.pth'}#{copy}")
    assert torch.equal(model[0].weight, average["0.weight"])
    with pytest.raises(ValueError, match=r"part of .*both\.pth': 'other': .*'state_dict'"):
        xf.create_model(spec, weights=f"{tmp_path / 'both.pth'}#other")


def test_a_copy_alone_will_do(spec, state, tmp_path):
    torch.save({"ema": dict(state)}, tmp_path / "ema.pth")
    assert torch.equal(
        xf.create_model(spec, weights=tmp_path / "ema.pth")[0].weight, state["0.weight"]
    )


def test_the_stem_and_the_head_are_still_adapted(tmp_path):
    trained = xf.create_model("torchvision:resnet18")
    torch.save(lightning(trained.state_dict()), tmp_path / "last.ckpt")
    model = xf.create_model(
        "torchvision:resnet18", weights=tmp_path / "last.ckpt", in_channels=1, num_classes=5
    )
    torch.testing.assert_close(model.conv1.weight, trained.conv1.weight.sum(1, keepdim=True))
    assert model.fc.out_features == 5


class TestMistakes:
    def test_what_fits_under_which_prefix(self, spec, state, tmp_path):
        del state["2.bias"]
        content = lightning(state) | {"ema": {"0.weight": state["0.weight"]}}
        torch.save(content, tmp_path / "last.ckpt")
        with pytest.raises(ValueError, match=r"does not fit the model: '2\.bias' is missing") as e:
            xf.create_model(spec, weights=tmp_path / "last.ckpt")
        assert "(names that fit: 8 of 9 under 'state_dict.model.', 1 under 'ema.')" in str(e.value)

    def test_nothing_fits(self, spec, tmp_path):
        torch.save({"state_dict": {"stem.kernel": torch.ones(3)}}, tmp_path / "w.pth")
        with pytest.raises(ValueError, match=r"none under any prefix: it has 'state_dict\.stem"):
            xf.create_model(spec, weights=tmp_path / "w.pth")

    def test_a_class_that_is_not_read_is_named_with_a_remedy(self, spec, state, tmp_path):
        content = lightning(state) | {"hyper_parameters": {"share": Fraction(1, 3)}}
        torch.save(content, tmp_path / "last.ckpt")
        with pytest.raises(ValueError, match=r"fractions\.Fraction.*content\['state_dict'\]"):
            xf.create_model(spec, weights=tmp_path / "last.ckpt")

    def test_a_model_that_does_not_fit_is_not_changed(self, state):
        from explainfix.zoo.adapt import load_weights_

        model = UNetD()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(ValueError, match="does not fit"):
            load_weights_(model, state, "w", UNetD)
        assert all(torch.equal(value, before[n]) for n, value in model.state_dict().items())


def test_a_model_of_one_layer(tmp_path):
    (tmp_path / "one.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Conv2d(3, 8, 3)"
    )
    layer = nn.Conv2d(3, 8, 3)
    torch.save(lightning(layer.state_dict()), tmp_path / "w.ckpt")
    model = xf.create_model(f"{tmp_path / 'one.py'}:make", weights=tmp_path / "w.ckpt")
    assert torch.equal(model.weight, layer.weight)
