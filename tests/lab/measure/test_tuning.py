"""What `tune` chooses follows from what it measures; the model stays as it is."""

import copy
import json

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.cli import main
from explainfix.lab.measure import tuning
from explainfix.lab.measure.timing import Timing
from explainfix.lab.measure.tuning import BOTH, FRUGAL, LAST, PLAIN, tune


def network():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16),
    )  # fmt: skip
    xf.fix_(model, "ghaar")
    return model


@pytest.mark.parametrize(
    ("times", "flags"),
    [
        ({PLAIN: 1.0, LAST: 0.8, FRUGAL: 1.0, BOTH: 0.81}, ["--channels-last", "--frugal"]),
        ({PLAIN: 1.0, LAST: 0.8, FRUGAL: 1.0, BOTH: 0.9}, ["--channels-last"]),
        ({PLAIN: 1.0, LAST: 1.1, FRUGAL: 1.0, BOTH: 0.9}, ["--frugal"]),
        ({PLAIN: 1.0, LAST: 1.1, FRUGAL: 1.1, BOTH: 0.9}, []),
    ],
)
def test_the_choice_follows_from_the_times(monkeypatch, times, flags):
    measured = Timing({name: [seconds] * 9 for name, seconds in times.items()})
    monkeypatch.setattr(tuning, "take_turns", lambda steps, **_: measured)
    found = tune(network(), torch.randn(2, 3, 16, 16))
    assert found.flags == flags
    assert [tried.name for tried in found.tried] == list(times)
    kept = {tried.name: tried.kept_bytes for tried in found.tried}
    assert kept[FRUGAL] < kept[PLAIN] == kept[LAST]
    assert len(found.why) == 2


def test_it_really_tries_and_leaves_the_model_alone():
    model = network()
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    found = tune(model, torch.randn(2, 3, 16, 16), seconds=0.1)
    assert all(tried.seconds > 0 for tried in found.tried)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model[:2]] == [True, False]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model[6].weight.is_contiguous()


def test_signals_have_no_channels_last():
    model = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 1))
    found = tune(model, torch.randn(2, 2, 16), seconds=0.1)
    assert not found.channels_last
    assert [tried.name for tried in found.tried] == [PLAIN, FRUGAL]
    assert found.why[1] == "Not frugal: there is nothing to save."


def test_nothing_to_learn_is_an_error():
    with pytest.raises(ValueError, match="no parameter left to learn"):
        tune(nn.Sequential(nn.Conv2d(1, 1, 3)).requires_grad_(False), torch.randn(1, 1, 8, 8))


def test_the_command(capsys):
    assert main(["tune", "unetd", "--fix", "ghaar", "--size", "32", "--seconds", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "channels last, frugal" in shown
    assert "Train with: " in shown
    assert max(map(len, shown.splitlines())) <= 80
    arguments = ["tune", "unetd", "--size", "32", "--seconds", "0.5", "--json"]
    assert main(arguments) == 0
    assert set(json.loads(capsys.readouterr().out)) >= {"flags", "why", "tried"}
    assert main(["tune", "unetd", "--batch-size", "0"]) == 2
    assert "--batch-size must be at least 1, not 0" in capsys.readouterr().err
