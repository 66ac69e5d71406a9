"""What `tune` chooses follows from what it measures; the model stays as it is."""

import copy
import json
import time

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.cli import main
from explainfix.lab.measure import compiling, tuning
from explainfix.lab.measure.compiling import Compiling
from explainfix.lab.measure.timing import Timing
from explainfix.lab.measure.tuning import tune
from explainfix.lab.measure.ways import Settings, Way
from explainfix.lab.run.config import make_config, read_config

PLAIN, LAST, BF16, BOTH = "as it is", "channels last", "bf16-mixed", "channels last, bf16-mixed"


def network():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Dropout(),
    )  # fmt: skip
    xf.fix_(model, "ghaar")
    return model


X = torch.randn(2, 3, 16, 16)


@pytest.fixture
def stopwatch(monkeypatch):
    """Let every step take as long as a table says, by its way's name; a list, race by race."""

    def set_times(*races, first_steps=None):
        first_steps, left = first_steps or {}, list(races)

        def race(steps, **_):
            times = left.pop(0) if len(left) > 1 else left[0]
            return Timing({name: [times[name]] * 9 for name in steps})

        monkeypatch.setattr(tuning, "take_turns", race)
        monkeypatch.setattr(Way, "time_step", lambda way: first_steps.get(str(way.settings), 1.0))

    return set_times


@pytest.mark.parametrize(
    ("times", "flags"),
    [
        ({}, []),
        ({LAST: 0.8}, ["--channels-last"]),
        ({LAST: 0.8, f"{LAST}, frugal": 0.81}, ["--channels-last", "--frugal"]),
        ({LAST: 0.8, f"{LAST}, frugal": 0.9}, ["--channels-last"]),
        ({LAST: 1.1, "frugal": 1.01}, ["--frugal"]),
        ({BF16: 0.95}, []),  # not worth the digits
        ({BF16: 0.6, BOTH: 0.7}, ["--precision bf16-mixed"]),
        ({LAST: 0.7, BOTH: 0.65}, ["--channels-last"]),
        ({LAST: 0.7, BOTH: 0.5}, ["--channels-last", "--precision bf16-mixed"]),
    ],
)
def test_the_choice_follows_from_the_times(stopwatch, times, flags):
    slow = dict.fromkeys(("frugal", *(f"{way}, frugal" for way in (LAST, BF16, BOTH))), 2.0)
    every = {PLAIN: 1.0, LAST: 1.0, BF16: 1.0, BOTH: 1.0} | slow | times
    stopwatch(every)
    found = tune(network(), X)
    assert found.flags == flags
    assert found.gain.middle == every[str(found.settings)]
    tried = {tried.name: tried for tried in found.tried}
    assert set(tried) >= {PLAIN, LAST, BF16, BOTH}
    assert all(one.step.middle == every[name] for name, one in tried.items())
    assert tried[PLAIN].kept_bytes == tried[LAST].kept_bytes > tried[BF16].kept_bytes
    [frugal] = [one for name, one in tried.items() if "frugal" in name]
    without = frugal.name.removesuffix("frugal").removesuffix(", ") or PLAIN
    assert frugal.kept_bytes < tried[without].kept_bytes
    assert any("8, 2 to 3 digits" in risk for risk in found.risks) == (
        "--precision bf16-mixed" in flags
    )


def test_luck_in_the_first_race_is_found_out(stopwatch):
    every = dict.fromkeys((PLAIN, BF16, BOTH, f"{LAST}, frugal"), 1.0)
    stopwatch({**every, LAST: 0.8}, {**every, LAST: 1.0})
    found = tune(network(), X)
    assert found.settings == Settings()
    assert "at first, but 1.00 (1.00-1.00) when tried again" in " ".join(found.why)


def test_the_hopeless_are_dropped_after_their_first_step(stopwatch):
    every = dict.fromkeys((PLAIN, LAST, "frugal"), 1.0)
    stopwatch(every, first_steps={BF16: 13.0})  # a race with it would fail: it has no time
    found = tune(network(), X)
    assert "Dropped bf16-mixed: its first step took 13 times as long." in found.why
    assert f"Dropped {BOTH}: bf16-mixed is too slow here." in found.why
    dropped = {one.name: one for one in found.tried if one.dropped}
    assert set(dropped) == {BF16, BOTH}
    assert dropped[BF16].seconds == 13.0


def test_what_does_not_run_is_dropped_too():
    class Picky(nn.Conv2d):
        def forward(self, x):
            y = super().forward(x)
            if y.dtype == torch.bfloat16:
                raise RuntimeError("picky is not implemented for BFloat16\nand so on")
            return y

    found = tune(nn.Sequential(Picky(3, 3, 1)), X, seconds=0.01, given={"channels_last": False})
    [dropped] = [one for one in found.tried if one.dropped]
    assert dropped.name == BF16
    assert dropped.dropped == "it does not run: picky is not implemented for BFloat16"


def test_what_is_given_stays(stopwatch):
    stopwatch({BF16: 1.0, BOTH: 0.5})
    found = tune(network(), X, given={"precision": "bf16-mixed", "frugal": False})
    assert found.settings == Settings(channels_last=True, precision="bf16-mixed")
    assert [one.name for one in found.tried] == [BF16, BOTH]
    assert found.gain.middle == 0.5
    assert not any("digits;" in risk for risk in found.risks)  # they were given


def test_it_really_tries_and_leaves_the_model_alone():
    model = network()
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    found = tune(model, X, seconds=0.01)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))  # by dropout in the copies, for themselves
    assert all(tried.seconds > 0 for tried in found.tried if not tried.dropped)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model[:2]] == [True, False]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model[6].weight.is_contiguous()


def test_a_way_trains_as_it_says():
    seen = []
    model = network()
    model[6].register_forward_hook(lambda layer, args, output: seen.append(output))
    Way(model, X, Settings(channels_last=True, precision="bf16-mixed")).time_step()
    assert seen[0].dtype == torch.bfloat16
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    Way(model, X, Settings(precision="64-true")).time_step()
    assert seen[1].dtype == torch.float64


def test_signals_have_no_channels_last():
    model = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 1))
    given = {"precision": "32-true"}
    found = tune(model, torch.randn(2, 2, 16), seconds=0.01, given=given)
    assert not found.settings.channels_last
    assert [tried.name for tried in found.tried] == [PLAIN, "frugal"]
    assert found.why[1] == "Not frugal: there is nothing to save."


def test_nothing_to_learn_is_an_error():
    with pytest.raises(ValueError, match="no parameter left to learn"):
        tune(nn.Sequential(nn.Conv2d(1, 1, 3)).requires_grad_(False), torch.randn(1, 1, 8, 8))


def test_inputs_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match=r"no training step on inputs \(1, 9, 8, 8\): .*channels"):
        tune(network(), torch.randn(1, 9, 8, 8))


def compiled(monkeypatch, times, compile=lambda network: network, seconds=60.0):
    """What is said of torch.compile if steps take these times, compiled and not."""
    monkeypatch.setattr(compiling, "is_compiler_there", lambda device: True)
    monkeypatch.setattr(torch, "compile", compile)
    measured = Timing({name: [value] * 9 for name, value in times.items()})
    monkeypatch.setattr(compiling, "take_turns", lambda steps, **_: measured)
    return compiling.try_compiling(network(), X, Settings(), seconds=seconds, worth=0.9)


def test_compiling_must_prove_itself(monkeypatch):
    good = compiled(monkeypatch, {"plain": 1.0, "compiled": 0.8})
    assert good.chosen
    assert "Compiled: a step takes 0.80" in good.why
    bad = compiled(monkeypatch, {"plain": 1.0, "compiled": 0.95})
    assert not bad.chosen
    assert bad.step.middle == 0.95


def test_compiling_needs_time_and_a_compiler(monkeypatch):
    def slow(network):
        network.register_forward_hook(lambda *_: time.sleep(0.02))
        return network

    def broken(network):
        network.register_forward_hook(lambda *_: 1 / 0)
        return network

    times = {"plain": 1.0, "compiled": 0.5}
    assert "9 layers may take" in compiled(monkeypatch, times, seconds=1).why
    monkeypatch.setattr(compiling, "A_LAYER", 0)
    late = compiled(monkeypatch, times, slow, seconds=0.01)
    assert not late.chosen
    assert late.start > 0.01
    assert late.step is None
    assert compiled(monkeypatch, times, broken).why == "Not compiled: division by zero"


def test_what_was_compiled_is_an_option(monkeypatch):
    """It takes the place of frugality, which races with other ways of keeping less."""
    monkeypatch.setattr(tuning, "FREE", 100.0)  # frugal whatever it costs
    frugal = tune(network(), X, seconds=0.1, compiling=True)
    assert frugal.flags[-1:] == ["--frugal"]
    assert not frugal.options["compile"]
    monkeypatch.setattr(tuning, "try_compiling", lambda *_, **__: Compiling(True, "Compiled."))
    found = tune(network(), X, seconds=0.1, compiling=True)
    assert found.flags[-1] == "--compile"
    assert found.options["compile"]
    assert not found.options["frugal"]
    assert found.risks[-1].startswith("Compiled")


def test_the_command(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Conv2d(3, 8, 3), "
        "nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1))\n"
    )
    common = ["--size", "32", "--seconds", "0.1", "--accelerator", "cpu"]
    command = ["tune", "net.py:net", "--fix", "ghaar", *common, "--write", "new.toml"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "channels last" in shown
    assert "torch.compile not tried" in shown or "no compiler" in shown
    assert "Train with: explainfix train --config new.toml" in shown
    assert max(map(len, shown.splitlines())) <= 80
    written = read_config("new.toml")
    assert written.keys() == {
        "model", "fix", "batch_size", "channels_last", "precision", "frugal", "compile",
    }  # fmt: skip
    assert make_config(written).fix == "ghaar"
    (tmp_path / "mine.toml").write_text(
        "epochs = 3  # mine\nfrugal=true\n[data_options]\nsize = 32\n"
    )
    assert main(["tune", "net.py:net", *common, "--write", "mine.toml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= {"flags", "settings", "gain", "why", "risks", "tried", "compiling"}
    assert read_config("mine.toml") == {
        "epochs": 3, "data_options": {"size": 32}, **found["settings"], "compile": False,
    }  # fmt: skip
    assert "epochs = 3  # mine" in (tmp_path / "mine.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-size", "0"], "--batch-size must be at least 1, not 0"),
        (["--seconds", "0"], "--seconds must be above 0, not 0"),
        (["--write", "run.json"], "'run.json' must end in .toml"),
        (["--write", "bad.toml"], "unknown option 'epohcs'"),
    ],
)
def test_mistakes(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("epohcs = 3\n")
    assert main(["tune", "unetd", *arguments]) == 2
    assert message in capsys.readouterr().err
