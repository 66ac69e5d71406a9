"""What a step takes: which networks race, and what is written."""

import json

from explainfix.paper import list_experiments
from explainfix.paper.experiment import find_experiment
from explainfix.paper.results import steps
from explainfix.paper.results.methods import SOURCES, compare_methods
from explainfix.paper.results.record import FORMAT
from explainfix.paper.results.steps import read_steps, write_steps
from explainfix.paper.setting import Setting


def keep_outcome(folder, name, table, seeds=2):
    """An outcome that has a score for every run of an experiment, as if all were done."""
    runs = find_experiment(name).train(Setting("smoke", dry=True))
    fields = list(vars(next(iter(runs))))
    rows = [[*vars(key).values(), 0.7 + key.seed / 100] for key in runs if key.seed < seeds]
    trained = [[*row[:-1], 1000, 500, 1.0] for row in rows]
    record = {
        "format": FORMAT, "name": name, "scale": "smoke",
        "scores": {table: {"fields": fields, "rows": rows}},
        "trained": {"fields": [*fields, "parameters", "learned", "seconds"], "rows": trained},
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(record))
    return record


def test_every_row_of_the_table_is_timed_against_learned(tmp_path):
    record = keep_outcome(tmp_path, "forms", "test AUC")
    assert read_steps(tmp_path) == {}
    write_steps(tmp_path, [])
    found = read_steps(tmp_path)
    assert set(found) == {
        ("ResNet18, from scratch", form) for form in ("fixed", "mixed", "steered")
    }
    cells = [line.split(" | ") for line in compare_methods([record], found).splitlines()]
    shown = {row[1]: row[-1].removesuffix(" |") for row in cells if "ResNet18" in row[0]}
    assert shown == {form: found["ResNet18, from scratch", form] for form in shown}
    assert len(shown) == 3


def test_a_network_of_two_experiments_is_timed_once(tmp_path, monkeypatch):
    keep_outcome(tmp_path, "classification", "test AUC")
    keep_outcome(tmp_path, "methods", "test AUC")
    raced = []
    monkeypatch.setattr(steps, "race", lambda configs: raced.append(configs) or iter([]))
    write_steps(tmp_path, [])
    methods = [list(configs) for configs in raced]
    assert len(methods) == 3  # ResNet, EfficientNet from scratch and pretrained
    assert all(len(set(names)) == len(names) and "learned" in names for names in methods)
    assert {"covariance", "ghaar"} <= set(methods[0])


def test_the_sources_are_experiments_and_their_scores():
    assert {experiment for experiment, _, _ in SOURCES} <= set(list_experiments())
