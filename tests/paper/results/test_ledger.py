"""The scores of runs that were done elsewhere."""

import math
from dataclasses import dataclass, replace

import pytest

from explainfix.lab.run.config import RunConfig
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
