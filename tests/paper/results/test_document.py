"""docs/results.md: what is counted, the table of methods, and that the committed data makes it."""

import shutil
from pathlib import Path

import pytest

from explainfix.paper.reproduce import check_outcomes
from explainfix.paper.results.document import (
    MARK,
    compare_methods,
    count_words,
    write_results,
)
from explainfix.paper.results.record import read_kept

DOCS = Path(__file__).parents[3] / "docs"
KEPT = sorted((DOCS / "results").glob("*.json"))


def record(name, scores, trained, **changes):
    return {"name": name, "scale": "cpu", "scores": scores, "trained": trained, **changes}


def test_the_table_of_methods_is_paired_by_seed():
    fields = ["family", "begin", "method", "seed"]
    score = {"learned": (0.70, 0.72, 0.9), "ghaar": (0.71, 0.74)}
    rows = [
        ["resnet", "scratch", method, seed, value]
        for method, values in score.items()
        for seed, value in enumerate(values)
    ]
    trained = [
        [
            *row[:-1],
            1000,
            1000 if row[2] == "learned" else 550,
            60.0 if row[2] == "learned" else 45.0,
        ]
        for row in rows
    ]
    text = compare_methods(
        [
            record(
                "classification",
                {"test AUC": {"fields": fields, "rows": rows}},
                {"fields": [*fields, "parameters", "learned", "seconds"], "rows": trained},
            )
        ],
        {("ResNet26, from scratch", "ghaar"): "0.75 (0.74-0.76)"},
    )
    # +0.01 and +0.02: the third seed of learned has no pair; t is 12.7 with one degree of freedom
    assert (
        "| ResNet26, from scratch | GHaar | 2 | test AUC | +0.015 (-0.049 to +0.079) "
        "| 100% | 55% | 0.75 (0.74-0.76) |" in text
    )
    assert "Learned" not in text
    assert compare_methods([], {}) == ""


def test_kinds_are_counted_apart():
    claims = [
        {"kind": kind, "word": word}
        for kind, word in (
            ("finding", "agrees"), ("finding", "not tested"), ("construction", "agrees"),
            ("beyond", "disagrees"),
        )
    ]  # fmt: skip
    records = [{"claims": claims}]
    assert count_words(records, "finding") == (
        "2 findings of the paper: 1 agrees, 0 disagree, 0 are undecided, 1 is not tested."
    )
    assert count_words(records, "construction").startswith("1 checks that hold by construction")
    assert count_words(records, "beyond").startswith("1 claims of ours: 0 agree, 1 disagrees")


def test_the_committed_outcomes_are_as_judged():
    if not KEPT:
        pytest.skip("docs/results holds no outcome yet")
    assert {file: found for file, found in check_outcomes(DOCS / "results").items() if found} == {}


def test_the_page_is_what_the_committed_outcomes_make(tmp_path):
    if not KEPT:
        pytest.skip("docs/results holds no outcome yet")
    shutil.copytree(DOCS / "results", tmp_path / "results")
    shutil.copy(DOCS / "results.md", tmp_path)
    page = write_results(None, tmp_path)
    assert page.read_text() == (DOCS / "results.md").read_text()
    assert MARK in page.read_text()
    assert not any("/" in entry["command"] for entry in read_kept(DOCS / "results"))  # no paths
