"""The folder of a run: how it is named, and what is said of one that lacks something."""

import json

import pytest

from explainfix.lab.run.folder import find_run, open_run_model, read_signature


def test_a_run_is_given_in_several_ways(tmp_path):
    (tmp_path / "config.toml").write_text('model = "unetd"\n')
    for text, which in (
        (f"{tmp_path}", "best"),
        (f"{tmp_path}@last", "last"),
        (f"{tmp_path}@best", "best"),
        (f"{tmp_path}/last.safetensors", "last"),
        (f"{tmp_path}/best.safetensors", "best"),
    ):
        assert find_run(text) == (tmp_path, which)
    for text in ("unetd", "unetd@w.pth", "elsewhere/best.safetensors", f"{tmp_path.parent}"):
        assert find_run(text) is None


def test_what_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no last.safetensors"):
        open_run_model(tmp_path, "last")
    good = {"model": "unetd", "task": "multiclass", "classes": ["a"], "preparation": {"mean": []}}
    for content in ("{", "[]", json.dumps({**good, "preparation": {"mean": [], "deviation": 3}})):
        (tmp_path / "data.json").write_text(content)
        with pytest.raises(ValueError, match=r"data.json' is damaged"):
            read_signature(tmp_path)
