import copy
import json

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.zoo.unetd import UNetD


@pytest.fixture
def fixed():
    model = UNetD()
    xf.fix_(model, "ghaar")
    return model


def test_a_network_and_its_copy_are_equal(fixed):
    difference = xf.compare(fixed, copy.deepcopy(fixed))
    assert all(change.changed == 0 for change in difference.layers.values())
    assert all(change.distance == 0 for change in difference.layers.values())
    assert difference.still_fixed
    assert difference.verdict == (
        "All 16 fixed layers are as they were fixed. No kernel of 16 layers changed."
    )
    assert difference.broken(require_fixed=True, max_change=0) == []


def test_training_changes_what_is_not_fixed_and_nothing_else(fixed):
    xf.unfix_(fixed, "decoder.*")
    after = copy.deepcopy(fixed)
    optimizer = torch.optim.SGD(after.parameters(), lr=0.5)
    after(torch.randn(2, 3, 32, 32)).square().mean().backward()
    optimizer.step()
    difference = xf.compare(fixed, after)
    for path, change in difference.layers.items():
        assert (change.changed > 0) == path.startswith("decoder"), path
        assert (change.moved > 0) == path.startswith("decoder"), path
    assert difference.still_fixed
    assert difference.fixed == 8
    first = next(iter(difference.layers))
    assert difference.verdict.startswith(
        "All 8 fixed layers are as they were fixed. 8 of 16 layers"
    )
    assert f"most: {first} by" in difference.verdict


def test_changed_kernels_are_counted_and_named(fixed):
    after = copy.deepcopy(fixed)
    with torch.no_grad():
        after.encoder[0][0][3].weight[:2] += 1
    difference = xf.compare(fixed, after)
    assert difference.layers["encoder.0.0.3"].changed == 2
    assert difference.still_fixed is False
    said = (
        "1 of 16 fixed layers is not as fixed: encoder.0.0.3 (kernels differ from 'ghaar', seed 0)"
    )
    assert difference.verdict.startswith(said)
    assert difference.broken() == []
    assert difference.broken(require_fixed=True) == [
        "encoder.0.0.3: kernels differ from 'ghaar', seed 0"
    ]


def test_a_layer_that_lost_its_recipe_or_got_another(fixed):
    after = copy.deepcopy(fixed)
    xf.unfix_(after, "encoder.0.0.3")
    unmarked = xf.compare(fixed, after)
    assert unmarked.still_fixed  # same kernels: no harm done yet
    assert "as they were fixed, but 1 no longer marked as fixed." in unmarked.verdict
    assert unmarked.broken(require_fixed=True) == ["encoder.0.0.3: no longer marked as fixed"]
    with torch.no_grad():
        after.encoder[0][0][3].weight.add_(1)
    assert "no longer marked as fixed" in xf.compare(fixed, after).verdict
    xf.fix_(after, "psine", layers="encoder.0.0.3", seed=2)
    assert "fixed anew by 'psine', seed 2" in xf.compare(fixed, after).verdict


def test_two_architectures():
    first = nn.ModuleDict(
        {"a": nn.Conv2d(3, 8, 3), "b": nn.Conv2d(8, 8, 3), "c": nn.Conv2d(8, 8, 5)}
    )
    second = nn.ModuleDict(
        {"a": nn.Conv2d(3, 16, 3), "c": nn.Conv2d(8, 8, 3), "d": nn.Conv2d(8, 8, 3)}
    )
    difference = xf.compare(first, second)
    assert list(difference.layers) == ["a"]
    assert difference.layers["a"].changed is None  # another width
    assert difference.not_compared == {
        "b": "only in before",
        "c": "kernels 5x5, now 3x3",
        "d": "only in after",
    }
    assert difference.still_fixed is None
    assert difference.broken(require_fixed=True) == ["no layer is fixed in either network"]
    assert [said.split(":")[0] for said in difference.broken(max_change=1)] == ["b", "c", "d"]


def test_layers_are_sorted_by_how_far_their_kernels_moved():
    """Against the norm of a difference that is known: a layer times 1 + s has moved by s."""
    before = nn.ModuleDict({name: nn.Conv2d(2, 3, 3) for name in "abcd"})
    after = copy.deepcopy(before)
    steps = {"a": 0.25, "b": 0.0, "c": 2.0, "d": 0.5}
    with torch.no_grad():
        for name, step in steps.items():
            after[name].weight.mul_(1 + step)
    difference = xf.compare(before, after)
    assert list(difference.layers) == ["c", "d", "a", "b"]
    for name, step in steps.items():
        assert difference.layers[name].moved == pytest.approx(step, abs=1e-6)
        assert difference.layers[name].distance == pytest.approx(0, abs=1e-6)
    assert "3 of 4 layers changed, most: c by 200%." in difference.verdict
    assert difference.broken(max_change=0.5001) == ["c: changed by 200%, more than 50.0%"]
    assert list(difference.table().index) == ["c", "d", "a", "b"]


def test_kernels_that_were_zero_and_weights_that_are_not_finite():
    before = nn.ModuleDict({name: nn.Conv2d(2, 3, 3) for name in "abc"})
    after = copy.deepcopy(before)
    with torch.no_grad():
        before["a"].weight.zero_()
        after["b"].weight[0, 0, 0, 0] = float("nan")
    difference = xf.compare(before, after)
    assert "most: a by all, from zero." in difference.verdict
    assert (
        json.loads(json.dumps(difference.as_dict(), allow_nan=False))["layers"][0]["moved"] is None
    )
    assert difference.not_compared == {"b": "its weights are NaN or infinite in after"}
    assert len(difference.broken(max_change=10)) == 2


def test_a_pruned_network_is_compared_by_its_energy():
    whole = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 1, 3))
    half = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 1, 3))
    with torch.no_grad():
        for layer in (*whole, *half):
            layer.weight.copy_(torch.ones(3, 3).expand_as(layer.weight))
        half[1].weight[:] = torch.tensor([1.0, 0.0, -1.0])  # all of its energy elsewhere
    difference = xf.compare(whole, half)
    assert difference.layers["0"].moved is None
    assert difference.layers["1"].change == pytest.approx(1, abs=1e-6)
    assert "most: 1 by 100% of its energy." in difference.verdict
    assert difference.broken(max_change=0.5) == ["1: changed by 100%, more than 50.0%"]


def test_distance_is_the_share_of_energy_that_moved():
    first, second = nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3)
    first.weight.data.fill_(1.0)
    second.weight.data.copy_(torch.tensor([1.0, 0.0, -1.0]).expand(1, 1, 3, 3))
    assert xf.compare(first, second).layers[""].distance == pytest.approx(1.0, abs=1e-6)


def test_random_weights_are_said_of_either_or_both():
    first, second = (xf.create_model("unetd") for _ in range(2))
    words = ": this shows the initialisation, not what was learned."
    both = xf.compare(first, second)
    assert both.warning == f"Random weights in both networks{words}"
    assert repr(both).splitlines()[1] == both.warning
    with torch.no_grad():
        second.head.weight.add_(1)
    assert xf.compare(first, second).warning == f"Random weights in before{words}"
    assert xf.compare(second, first, titles=("a", "b")).warning == f"Random weights in b{words}"
    assert xf.compare(second, second).warning is None
    assert both.as_dict()["warning"] == both.warning


def test_the_table(fixed):
    table = xf.compare(fixed, UNetD()).table()
    assert table.loc["encoder.0.0.3", "changed"] == 18
    assert table.loc["encoder.0.0.3", "fixed_by"] == "ghaar"
