"""Every experiment there is, at the scale that takes seconds."""

import ast
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explainfix.lab.run.folder import read_run
from explainfix.paper import experiments, list_experiments
from explainfix.paper.reproduce import find_experiment, measure_finished, reproduce
from explainfix.paper.results.ledger import (
    MEASURED,
    Entry,
    ledger_name,
    read_ledger,
    read_measured,
    write_ledger,
)
from explainfix.paper.results.record import judge_again
from explainfix.paper.setting import Setting


@pytest.fixture(scope="session")
def smoke_folder(tmp_path_factory):
    """Shared, as experiments share runs."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.parametrize("name", list_experiments())
def test_smoke(name, smoke_folder):
    record = reproduce(name, Setting("smoke", folder=smoke_folder))
    folder = smoke_folder / f"{name}-smoke"
    assert json.loads((folder / "outcome.json").read_text()) == record
    words = {"agrees", "disagrees", "undecided", "not tested"}
    assert {claim["word"] for claim in record["claims"]} <= words
    assert record["claims"]
    assert judge_again(find_experiment(name), record) == []
    assert record["notes"], "what differs from the paper is said"
    assert record["tables"] or record["figures"]
    page = (folder / "page.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert page.count("<img ") == 2 * len(record["figures"])


@pytest.mark.parametrize("name", list_experiments())
def test_runs_that_are_known_are_done_for_their_weights_alone(name, smoke_folder, monkeypatch):
    """Whatever opens a model has asked for its weights."""
    setting = Setting("smoke", folder=smoke_folder)
    runs = find_experiment(name).train(setting).values()
    known = {ledger_name(run.config, runs): Entry(list(run.history), run.result) for run in runs}
    there = smoke_folder / "there"
    shutil.move(setting.runs, there) if runs else there.mkdir()

    def sweep(configs, **_):
        """Training, for this test: the run is put back in its place."""
        planned = replace(setting, dry=True)._planned
        folders = {label: planned(config).folder for label, config in configs.items()}
        for folder in set(folders.values()):
            unmeasured = shutil.ignore_patterns(MEASURED)
            shutil.copytree(there / folder.name, folder, ignore=unmeasured, dirs_exist_ok=True)
        return {label: read_run(folder) for label, folder in folders.items()}

    monkeypatch.setattr("explainfix.lab.sweep.sweep.sweep", sweep)
    try:
        record = reproduce(name, replace(setting, known=known))
    finally:
        shutil.rmtree(setting.runs, ignore_errors=True)
        shutil.move(there, setting.runs)
    assert record["runs"] == sorted(known)


def test_what_experiments_measure_is_measured_of_the_runs_that_are_there(tmp_path):
    setting = Setting("smoke", folder=tmp_path)
    planned = find_experiment("saliency-check").train(replace(setting, dry=True))
    key = next(iter(planned))
    [run] = setting.sweep({key: planned[key].config}).values()
    measure_finished(setting)
    assert [path.name for path in setting.runs.iterdir()] == [run.folder.name]
    found = read_measured(run.folder)
    assert {"saliency-check", "robustness", "spectra"} <= set(found)

    file = tmp_path / "runs.jsonl"
    write_ledger(file, [run])
    elsewhere = Setting("smoke", folder=tmp_path / "elsewhere", known=read_ledger(file))
    measured = find_experiment("saliency-check").measure(elsewhere, {key: planned[key]})
    assert measured == {key: found["saliency-check"]}
    assert not elsewhere.runs.exists()


@pytest.mark.parametrize("name", list_experiments())
@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_plan(name, scale, tmp_path):
    """The runs of every scale can be seen without doing them."""
    experiment = find_experiment(name)
    assert experiment.cost[scale]
    runs = experiment.train(Setting(scale, folder=tmp_path, dry=True))
    assert all(run.folder.parent == tmp_path / "runs" for run in runs.values())
    assert list(tmp_path.iterdir()) == []
    assert all(str(claim.rule) and claim.text.endswith(".") for claim in experiment.claims)
    beyond = experiment.reference == "Beyond the paper"
    assert not beyond or {claim.kind for claim in experiment.claims} == {"beyond"}


@pytest.mark.parametrize(
    "file", sorted(Path(experiments.__file__).parent.glob("*.py")), ids=lambda f: f.stem
)
def test_no_experiment_imports_another(file):
    """What they share is above them, so that one can be read, changed or left out alone."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level != 1, f"line {node.lineno}"
            assert "experiments" not in (node.module or ""), f"line {node.lineno}"
