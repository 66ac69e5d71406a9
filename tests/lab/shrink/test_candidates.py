"""Ways to make a network smaller: each reaches the size, and is tried as it will be."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import open_data
from explainfix.lab.shrink.candidates import Bench, make_candidates, ways
from explainfix.mixing.steered import steered_layers

CONFIG = RunConfig(data_options={"count": 24, "size": 32}, batch_size=4)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 1, 1),
    )  # fmt: skip


def make_bench(model, share=0.5, counted="parameters"):
    data = open_data(CONFIG)
    example = torch.randn(1, 3, 32, 32)
    config = CONFIG.resolved(data.task, len(data.classes))
    bench = Bench(model, example, config, data, "weight_gradient", counted, 1.0, 3, 0.5)
    return replace(bench, amount=share * bench.size(model))


@pytest.mark.parametrize("counted", ["parameters", "multiply_adds"])
def test_every_way_reaches_the_size_and_a_trial_leaves_no_trace(counted):
    model = network()
    before = copy.deepcopy(model.state_dict())
    bench = make_bench(model, 0.5, counted)
    for each in make_candidates(bench):
        assert 0.35 * bench.size(model) < bench.size(each.network) <= bench.amount
        assert not each.smallest
        untrained = bench.loss(each.network, bench.unseen)
        assert each.loss != untrained
        assert bench.trial(each.network) == each.loss  # the same whenever it is made
        assert bench.loss(each.network, bench.unseen) == untrained
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_trial_is_a_few_steps_of_fine_tuning():
    """Adam at half the rate, four times over the batches, then the loss on the others."""
    bench = make_bench(network())
    model = copy.deepcopy(bench.network).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.5 * bench.config.lr)
    for x, y in bench.seen * 4:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()
    bench.settle_(model)
    assert bench.trial(bench.network) == pytest.approx(bench.loss(model, bench.unseen), rel=1e-5)


def test_what_does_not_learn_has_no_hope():
    model = network()
    with torch.no_grad():
        model[9].bias.fill_(torch.inf)
    bench = make_bench(model)
    assert bench.trial(model) == 1e9


def test_rankings_and_trials_see_different_images():
    bench = make_bench(network())
    assert len(bench.seen) == len(bench.unseen) == 3
    assert not any(torch.equal(x, z) for x, _ in bench.seen for z, _ in bench.unseen)


def test_statistics_are_those_of_the_cut_network():
    """As BatchNorm would find them on the batches that rankings saw."""
    bench = make_bench(network())
    [candidate] = [each for each in make_candidates(bench) if each.way == "even"]
    first = candidate.network[0](torch.cat([x for x, _ in bench.seen]))
    torch.testing.assert_close(
        candidate.network[1].running_mean, first.mean((0, 2, 3)), rtol=1e-4, atol=1e-5
    )


def smooth(model):
    """Filters that are even: one frequency holds all they have."""
    with torch.no_grad():
        for layer in xf.spatial_layers(model).values():
            layer.weight.copy_(layer.weight.mean((2, 3), keepdim=True).expand_as(layer.weight))
    return model


def test_frequencies_that_are_not_needed_go_and_the_channels_may_stay():
    """A ninth of the multiply-adds, and next to nothing else, is what even filters need."""
    bench = make_bench(smooth(network()), 0.5, "multiply_adds")
    found = {each.way: each for each in make_candidates(bench)}
    steered = found["frequencies"]
    assert list(steered_layers(steered.network)) == ["0", "3", "6"]
    assert bench.size(steered.network) <= bench.amount
    x = torch.randn(2, 3, 32, 32)
    whole = copy.deepcopy(bench.network)
    bench.settle_(whole)
    torch.testing.assert_close(steered.network.eval()(x), whole.eval()(x), rtol=1e-3, atol=1e-4)
    assert "frequencies" not in {e.way for e in make_candidates(bench, steer=False)}


def test_steered_networks_can_be_cut_further():
    bench = make_bench(smooth(network()), 0.08, "multiply_adds")
    steered = {each.way: each for each in make_candidates(bench)}["frequencies"]
    assert bench.size(steered.network) <= bench.amount
    again = make_bench(steered.network, 0.6, "multiply_adds")
    later = {each.way for each in make_candidates(again)}
    assert later == {"salient", "worth", "even", "sensitive"}  # once is enough


def test_random_filters_need_all_frequencies():
    assert ways["frequencies"](make_bench(network(), 0.5)) is None


def test_the_papers_way_is_for_fixed_filters():
    model = network()
    assert ways["kernels"](make_bench(model, 0.6)) is None
    xf.fix_(model, "ghaar")
    bench = make_bench(model, 0.6)
    pruned = ways["kernels"](bench)
    xf.check_fixed(pruned)
    assert bench.size(pruned) <= bench.amount
    assert not any((layer.weight == 0).any() for layer in xf.spatial_layers(pruned).values())


def test_what_is_too_small_goes_as_far_as_it_can():
    bench = make_bench(network(), 0.0001)
    found = list(make_candidates(bench))
    assert all(each.smallest for each in found)
    for each in found:
        assert 0 < bench.size(each.network) < 0.1 * bench.size(bench.network)


def test_a_layer_on_which_little_hangs_loses_more():
    """Half of the last layer's inputs are not used: that is what goes, before anything else."""
    model = network()
    with torch.no_grad():
        model[7].weight[:12] = 0
        model[9].weight[0, :12] = 0
    bench = make_bench(model, 0.6)
    losses = []
    for way in ("sensitive", "even"):
        cut = ways[way](bench)
        xf.prune_(cut, bench.example)
        bench.settle_(cut)
        losses.append(bench.loss(cut, bench.unseen))
    assert losses[0] < losses[1]
