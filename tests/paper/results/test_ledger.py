"""The scores of runs that were done elsewhere."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import Run
from explainfix.paper.results.ledger import Entry, ledger_name, read_ledger, write_ledger
from explainfix.paper.setting import Setting


@dataclass(frozen=True)
class Key:
    seed: int


@pytest.fixture
def configs():
    plain = RunConfig(
        data="nuclei", data_options={"count": 4, "size": 32}, epochs=2, batch_size=4, seed=5
    )
    return {Key(seed): replace(plain, seed=seed) for seed in (5, 6)}


def test_a_known_run_is_not_done_again_until_its_weights_are_wanted(tmp_path, configs):
    there = Setting("smoke", folder=tmp_path / "there")
    runs = there.sweep(configs)
    file = tmp_path / "runs.jsonl"
    write_ledger(file, runs.values())

    here = Setting("smoke", folder=tmp_path / "here", known=read_ledger(file))
    told = here.sweep(configs)
    assert not here.runs.exists()
    for key, run in runs.items():
        assert told[key].config == run.config
        assert told[key].result["learned_parameters"] == run.result["learned_parameters"]
        for ours, theirs in zip(told[key].history, run.history, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-6)

    one = {Key(5): told[Key(5)]}
    assert here.with_weights(one)[Key(5)].model("last")
    assert [path.name for path in here.runs.iterdir()] == [runs[Key(5)].folder.name]


def test_a_run_that_is_there_is_read_whatever_is_known_of_it(tmp_path, configs):
    setting = Setting("smoke", folder=tmp_path)
    runs = setting.sweep(configs)
    other = {ledger_name(run.config): Entry([{"loss": 99.0}], {}) for run in runs.values()}
    assert replace(setting, known=other).sweep(configs) == runs


def test_a_known_run_does_without_the_weights_that_it_began_with(tmp_path, configs):
    def train_on(setting, *seeds):
        first = setting.sweep({key: configs[key] for key in map(Key, seeds)})
        later = {
            key: replace(run.config, model=str(run.folder), weights=None)
            for key, run in first.items()
        }
        return first, setting.sweep(later, after=first)

    there = Setting("smoke", folder=tmp_path / "there")
    first, later = train_on(there, 5)
    file = tmp_path / "runs.jsonl"
    write_ledger(file, [*first.values(), *later.values()])

    here = Setting("smoke", folder=tmp_path / "here", known=read_ledger(file))
    told = train_on(here, 5)[1][Key(5)]
    assert not here.runs.exists()
    assert told.history[-1]["val dice"] == pytest.approx(later[Key(5)].history[-1]["val dice"])

    both = train_on(here, 5, 6)[1]  # of the other seed, the first run is trained, then the later
    assert len(list(here.runs.iterdir())) == 2
    assert both[Key(5)] == told
    assert both[Key(6)].model("last")


def test_a_run_that_begins_with_another_is_another(configs):
    config = configs[Key(5)]
    first, other = (
        Run(Path("runs") / name, replace(config, seed=seed), [], {})
        for name, seed in (("a-1", 1), ("a-2", 2))
    )
    names = {
        ledger_name(config),
        ledger_name(replace(config, model="runs/a-1"), [first, other]),
        ledger_name(replace(config, model="runs/a-2"), [first, other]),
        ledger_name(replace(config, fix="ghaar", zero=0.5), [first, other]),
        ledger_name(replace(config, fix="ghaar", zero=0.5, zero_from="runs/a-1"), [first, other]),
        ledger_name(replace(config, model="weights/cut-a-1.safetensors"), [first, other]),
    }
    assert len(names) == 6


def test_what_is_measured_is_kept_and_travels(tmp_path, configs):
    there = Setting("smoke", folder=tmp_path / "there")
    runs = there.sweep(configs)
    one = {Key(5): runs[Key(5)]}
    assert there.measure(one, "size", lambda _, run: [run.config.seed, 0.5]) == {Key(5): [5, 0.5]}
    assert there.measure(one, "other", lambda *_: 1) == {Key(5): 1}
    file = tmp_path / "runs.jsonl"
    write_ledger(file, runs.values())

    here = Setting("smoke", folder=tmp_path / "here", known=read_ledger(file))
    told = here.sweep(configs)
    measured = []

    def measure(_, run):
        assert run.model("last")
        measured.append(run.config.seed)
        return [run.config.seed, 0.5]

    found = here.measure(told, "size", measure)
    assert found == {Key(5): [5, 0.5], Key(6): [6, 0.5]}
    assert measured == [6]  # the only one whose weights were needed
    assert [path.name for path in here.runs.iterdir()] == [runs[Key(6)].folder.name]
    assert here.measure(told, "size", measure) == found
    assert measured == [6]


def test_entries_are_added_and_replaced_and_what_is_no_number_is_left_out(tmp_path, configs):
    runs = list(Setting("smoke", folder=tmp_path, dry=True).sweep(configs).values())
    result = {"parameters": 10, "learned_parameters": 5, "torch": "2"}
    first, second = (replace(run, result=result) for run in runs)
    file = tmp_path / "runs.jsonl"
    write_ledger(file, [replace(first, history=[{"epoch": 1, "loss": 0.1}])])
    write_ledger(
        file,
        [
            replace(first, history=[{"epoch": 1, "loss": math.nan}, {"epoch": 2, "dice": 1 / 3}]),
            replace(second, history=[]),
        ],
    )
    found = read_ledger(file)
    assert set(found) == {ledger_name(run.config) for run in runs}
    name = ledger_name(first.config)
    assert found[name].history == [{"epoch": 1}, {"epoch": 2, "dice": 0.333333}]
    assert found[name].result == result


def test_a_damaged_line_is_named(tmp_path):
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name": "x", "columns": ["a"], "rows": [[1, 2]]}\n')
    with pytest.raises(ValueError, match=r"line 1 of .*runs\.jsonl"):
        read_ledger(file)
    file.write_text("")
    (tmp_path / "runs-measured.jsonl").write_text('{"name": "x"}\n')
    with pytest.raises(ValueError, match=r"line 1 of .*runs-measured\.jsonl"):
        read_ledger(file)
