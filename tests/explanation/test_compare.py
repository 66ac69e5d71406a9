import copy

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
    assert difference.answer.startswith("Yes: the filters of all 16 fixed layers")


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


def test_changed_kernels_are_counted_and_named(fixed):
    after = copy.deepcopy(fixed)
    with torch.no_grad():
        after.encoder[0][0][3].weight[:2] += 1
    difference = xf.compare(fixed, after)
    assert difference.layers["encoder.0.0.3"].changed == 2
    assert difference.still_fixed is False
    assert "No: 1 of 16 fixed layers changed: encoder.0.0.3 (kernels differ" in difference.answer


def test_a_layer_that_lost_its_recipe_or_got_another(fixed):
    after = copy.deepcopy(fixed)
    xf.unfix_(after, "encoder.0.0.3")
    assert xf.compare(fixed, after).still_fixed  # same kernels: no harm done
    with torch.no_grad():
        after.encoder[0][0][3].weight.add_(1)
    assert "no longer marked as fixed" in xf.compare(fixed, after).answer
    xf.fix_(after, "psine", layers="encoder.0.0.3", seed=2)
    assert "fixed anew by 'psine', seed 2" in xf.compare(fixed, after).answer


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
    assert difference.only_before == ["b", "c"]
    assert difference.only_after == ["c", "d"]
    assert difference.still_fixed is None


def test_distance_is_the_share_of_energy_that_moved():
    first, second = nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3)
    first.weight.data.fill_(1.0)
    second.weight.data.copy_(torch.tensor([1.0, 0.0, -1.0]).expand(1, 1, 3, 3))
    assert xf.compare(first, second).layers[""].distance == pytest.approx(1.0, abs=1e-6)


def test_the_table(fixed):
    table = xf.compare(fixed, UNetD()).table()
    assert table.loc["encoder.0.0.3", "changed"] == 18
    assert table.loc["encoder.0.0.3", "fixed_by"] == "ghaar"
