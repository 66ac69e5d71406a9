"""Changes of a part are known to the whole, and changes through a wrapper to what it wraps."""

import copy
import pickle

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.marks.changes import changes_of


def block(inputs: int, outputs: int) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), block(8, 8), block(8, 16), block(16, 16)).eval()


def comes_back(model: nn.Module, path) -> None:
    x = torch.randn(1, 3, 16, 16)
    xf.save(model, path)
    with torch.no_grad():
        assert torch.equal(xf.load(path, network()).eval()(x), model(x))


def kill_half(layer: nn.Conv2d) -> None:
    with torch.no_grad():
        layer.weight[::2] = 0


def steer_a_part(model):
    xf.steer_(model[1], "ghaar", filters=1)


def steer_through_a_wrapper(model):
    xf.steer_(nn.DataParallel(model), filters=2)


def mix_one_layer_of_a_part(model):
    xf.fix_(model[2], "ghaar")
    xf.mix_(model[2], layers="0")


def cut_a_part_then_steer_and_cut_the_whole(model):
    kill_half(model[2][0])
    xf.prune_(model[2], torch.randn(1, 8, 8, 8), ghosts="drop")
    xf.steer_(model, filters=3)
    kill_half(model[3][0].steering)
    xf.prune_(model, torch.randn(1, 3, 16, 16), ghosts="drop")
    assert (model[2][0].out_channels, model[3][0].out_channels) == (8, 8)


def cut_within_a_mixed_layer_that_is_merged(model):
    xf.fix_(model, "ghaar", layers="3.0")
    xf.mix_(model, layers="3.0")
    layer = model[3][0]
    kill_half(layer.spatial)
    xf.prune_(layer, torch.randn(1, 16, 8, 8))
    assert layer.spatial.out_channels == 8
    xf.merge_(model[3])


@pytest.mark.parametrize(
    "change_",
    [
        steer_a_part,
        steer_through_a_wrapper,
        mix_one_layer_of_a_part,
        cut_a_part_then_steer_and_cut_the_whole,
        cut_within_a_mixed_layer_that_is_merged,
    ],
)
def test_what_was_done_to_a_part_comes_back_from_the_file_of_the_whole(change_, tmp_path):
    model = network()
    change_(model)
    assert changes_of(model)
    comes_back(model, tmp_path / "whole.safetensors")


def test_a_part_that_is_taken_out_knows_what_was_done_through_the_whole(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()))
    xf.steer_(model, filters=2, layers="1.0")
    xf.save(model[1], tmp_path / "part.safetensors")
    again = xf.load(tmp_path / "part.safetensors", nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()))
    x = torch.randn(1, 8, 12, 12)
    assert torch.equal(again(x), model[1](x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_remembers(copied, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()))
    xf.steer_(model[1], filters=2)
    xf.steer_(model, layers="0")
    assert changes_of(copied(model)) == changes_of(model)
    assert [list(change.steered) for change in changes_of(model)] == [["1.0"], ["0"]]
