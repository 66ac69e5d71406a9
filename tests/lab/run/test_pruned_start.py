"""Runs that begin with a zeroed or pruned network."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import explainfix as xf
from explainfix.lab.data.loader import Share, training_steps
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import build_model, open_data
from explainfix.lab.run.train import train

NETWORKS = """
from torch import nn

def small(num_classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, num_classes, 1),
    )
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "networks.py").write_text(NETWORKS)
    return RunConfig(
        model=f"{tmp_path / 'networks.py'}:small",
        data_options={"count": 12, "size": 32},
        fix="ghaar",
        zero=0.6,
        epochs=2,
        batch_size=4,
        checkpoint_seconds=0.0,
        accelerator="cpu",
    )


def zeroed_kernels(model):
    """Which kernels are zero, by layer."""
    return {
        path: layer.weight.detach().flatten(2).abs().sum(2) == 0
        for path, layer in xf.spatial_layers(model).items()
    }


def size_of(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_least_salient_kernels_are_zero_and_stay_so(config, tmp_path):
    plain = build_model(replace(config, zero=None), open_data(config))
    # Eq. (7) by hand, in double precision: all three batches of the epoch
    plain.double().eval().requires_grad_(True)
    scores = torch.zeros(18 + 36, dtype=torch.float64)
    layers = [plain[0], plain[3]]
    steps = training_steps(open_data(config), "train", Share(4), seed=0, epoch=0)
    for [(x, y)] in steps:
        output = plain(x.double())
        size = output.detach().abs()
        least = 0.01 * output.detach().square().mean().sqrt()
        held = size.clamp(min=least) * torch.where(output < 0, -1.0, 1.0)
        (y * output / held).sum().backward()
        parts = [(c.weight * c.weight.grad).abs().flatten(2).sum(2).flatten() for c in layers]
        scores += torch.cat(parts).detach()
        plain.zero_grad()
    wanted = set(scores.argsort()[:32].tolist())  # 60% of 54

    run = train(config, runs=tmp_path / "runs")
    model = run.model("last")
    found = torch.cat([part.flatten() for part in zeroed_kernels(model).values()])
    assert set(found.nonzero().flatten().tolist()) == wanted
    xf.check_fixed(model)
    assert run.result["fixed_layers"] == 2
    assert torch.equal(model[0].weight == 0, run.model("best")[0].weight == 0)


def test_a_pruned_run_has_less_to_learn_and_nothing_zero(config, tmp_path):
    whole = train(config, runs=tmp_path / "runs")
    run = train(replace(config, zero=0.8, prune=True), runs=tmp_path / "runs")
    assert run.folder != whole.folder
    assert run.result["parameters"] < whole.result["parameters"]
    model = run.model("last")
    assert size_of(model) == run.result["parameters"]
    assert not any(part.any() for part in zeroed_kernels(model).values())
    xf.check_fixed(model)


@pytest.mark.parametrize("changes", [{}, {"zero": 0.8, "prune": True}])
def test_stopped_it_goes_on_with_the_same_network(config, tmp_path, changes):
    def stop(moment):
        if (moment.epoch, moment.step) == (1, 2):
            raise KeyboardInterrupt

    config = replace(config, **changes)
    whole = train(config, runs=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, runs=tmp_path / "stopped", report=stop)
    run = train(config, runs=tmp_path / "stopped")
    one, other = (load_file(each.folder / "last.safetensors") for each in (whole, run))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_threads_do_not_matter_and_are_as_before(config):
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(build_model(config, open_data(config)).state_dict())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_saved_model_that_is_fixed_already_will_do(config, tmp_path):
    model = xf.create_model("unetd", num_classes=1, in_channels=3)
    xf.save(model, tmp_path / "learned.safetensors")
    xf.fix_(model, "psine", layers="*")
    xf.save(model, tmp_path / "fixed.safetensors")
    saved = replace(config, model=str(tmp_path / "fixed.safetensors"), fix=None)
    zeroed = zeroed_kernels(build_model(saved, open_data(saved)))
    count = sum(part.numel() for part in zeroed.values())
    assert sum(int(part.sum()) for part in zeroed.values()) == int(0.6 * count)
    learned = replace(saved, model=str(tmp_path / "learned.safetensors"))
    with pytest.raises(ValueError, match=r"zero needs fixed filters: .*learned\.safetensors' has"):
        build_model(learned, open_data(learned))


def test_only_fixed_layers_are_zeroed(config):
    part = replace(config, fix_layers=("3",))
    found = zeroed_kernels(build_model(part, open_data(part)))
    assert (int(found["0"].sum()), int(found["3"].sum())) == (0, int(0.6 * 36))


def test_the_saliency_of_another_network_decides(config, tmp_path):
    """A trained one, say: its kernels that matter least are zero in a fresh network."""
    trained = train(replace(config, zero=None, epochs=1, seed=7, fix_seed=7), runs=tmp_path / "a")
    data = open_data(config)
    own, theirs = (
        zeroed_kernels(build_model(replace(config, zero_from=source), data))
        for source in (None, str(trained.folder))
    )
    assert any(not own[path].equal(theirs[path]) for path in own)
    # zeroed by that network's own scores on the same batches
    known = [batch for [batch] in training_steps(data, "train", Share(4), seed=0, epoch=0)]
    scores = xf.saliency(trained.model("best").double(), [(x.double(), y) for x, y in known])
    order = torch.cat([scores[path].flatten() for path in theirs]).argsort()
    found = torch.cat([part.flatten() for part in theirs.values()])
    assert set(found.nonzero().flatten().tolist()) == set(order[:32].tolist())
    fresh = build_model(replace(config, zero=None), data)
    kept = {path: ~zero for path, zero in theirs.items()}
    model = build_model(replace(config, zero_from=str(trained.folder)), data)
    for path, layer in xf.spatial_layers(model).items():
        whole = xf.spatial_layers(fresh)[path].weight
        assert layer.weight[kept[path]].equal(whole[kept[path]])


def test_by_gradient_and_over_fewer_batches(config):
    data = open_data(config)
    plain = build_model(replace(config, zero=None), data)
    first, *_ = training_steps(data, "train", Share(4), seed=0, epoch=0)
    [(x, y)] = first
    scores = xf.saliency(plain.double(), [(x.double(), y)], kind="gradient")
    order = torch.cat([part.flatten() for part in scores.values()]).argsort()
    model = build_model(replace(config, zero_by="gradient", zero_batches=1), data)
    found = torch.cat([part.flatten() for part in zeroed_kernels(model).values()])
    assert set(found.nonzero().flatten().tolist()) == set(order[:32].tolist())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zero": None, "zero_from": "x"}, "zero_from needs zero"),
        ({"train_share": 0.0}, "train_share must be above 0"),
        ({"train_share": 1.5}, "at most 1"),
        ({"zero_batches": 0}, "zero_batches must be at least 1"),
    ],
)
def test_mistakes(config, changes, message):
    with pytest.raises(ValueError, match=message):
        replace(config, **changes)


def test_a_network_without_those_layers_cannot_decide(config, tmp_path):
    other = train(RunConfig(data_options={"count": 12, "size": 32}, epochs=1), runs=tmp_path / "b")
    with pytest.raises(ValueError, match="has no spatial layer '0'"):
        build_model(replace(config, zero_from=str(other.folder)), open_data(config))
