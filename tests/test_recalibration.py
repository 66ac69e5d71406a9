"""BatchNorm's averages against a plain computation, and models that come back as they were."""

import pytest
import torch
from torch import nn

from explainfix.recalibration import recalibrate_


def make_batches(count=4):
    random = torch.Generator().manual_seed(0)
    return [5 + 2 * torch.randn(6, 3, 8, 8, generator=random) for _ in range(count)]


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.Dropout(0.5), nn.BatchNorm2d(4)
    )


def test_the_averages_are_those_of_the_batches():
    model, batches = make_model(), make_batches()
    assert recalibrate_(model, batches) == 2
    seen = [model[0](batch) for batch in batches]
    mean = torch.stack([x.mean((0, 2, 3)) for x in seen]).mean(0)
    variance = torch.stack([x.var((0, 2, 3)) for x in seen]).mean(0)
    assert torch.allclose(model[1].running_mean, mean, atol=1e-5)
    assert torch.allclose(model[1].running_var, variance, rtol=1e-5)
    # Dropout is off: what comes behind it is already of mean zero and variance one.
    assert torch.allclose(model[3].running_mean, torch.zeros(4), atol=1e-5)
    assert torch.allclose(model[3].running_var, torch.ones(4), atol=0.01)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_but_the_averages_changes(training):
    model = make_model().train(training)
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    numbers = torch.get_rng_state()
    recalibrate_(model, make_batches(), max_batches=2)
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"{i}.running_{what}" for i in (1, 3) for what in ("mean", "var")}
    assert [module.training for module in model.modules()] == modes
    assert (model[1].momentum, model[3].momentum) == (0.3, 0.1)
    assert torch.equal(torch.get_rng_state(), numbers)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "no batch"),
        ([torch.ones(2, 5, 8, 8)], "channels"),
        ([torch.full((2, 3, 8, 8), torch.inf)], "'1' over these batches are not finite"),
    ],
)
def test_on_an_error_nothing_has_changed(batches, words):
    model = make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        recalibrate_(model, batches)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model[1].momentum == 0.3


def test_layers_without_a_part_or_without_averages_stay():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
            self.plain = nn.BatchNorm2d(3, track_running_stats=False)

        def forward(self, x):
            return self.plain(self.used(x))

    model = Partly()
    model.unused.running_mean.fill_(7.0)
    assert recalibrate_(model, make_batches()) == 1
    assert model.unused.running_mean.tolist() == [7.0] * 3
    assert recalibrate_(nn.Conv2d(3, 4, 3), []) == 0
