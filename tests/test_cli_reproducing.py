"""The command reproduce, as a user sees it."""

import json

import pytest

from explainfix.cli import main
from explainfix.cli.reproducing import WORDS


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_reproduce_then_list_then_another_version(tmp_path, capsys):
    assert main(["reproduce", "baselines"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for words in ("App. B, Table B.1, scale smoke", "agrees", "not tested", "39,756,705"):
        assert words in out, words
    assert out.splitlines()[-1] == "Wrote reproduced/baselines-smoke/page.html"
    runs = sorted((tmp_path / "reproduced" / "runs").iterdir())
    before = [(run / "result.json").stat().st_mtime_ns for run in runs]

    assert main(["reproduce", "baselines", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["command"] == "explainfix reproduce baselines --scale smoke"
    assert [claim["key"] for claim in record["claims"]] == ["parameters", "mobilenet", "resnet"]
    assert [(run / "result.json").stat().st_mtime_ns for run in runs] == before

    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert max(map(len, listed.splitlines())) <= 80
    words = [claim["word"] for claim in record["claims"]]  # that on Dice depends on the processor
    counts = {word: words.count(word) for word in WORDS if word in words}
    done = ", ".join(f"{word} {count}" for word, count in counts.items())
    assert (words[0], words[2]) == ("agrees", "not tested")
    assert f"done, smoke: {done}" in listed
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["baselines"]["done"] == {"smoke": done}
    assert listed["baselines"]["needs"] == ["microscopy"]

    assert main(["reproduce", "--check"]) == 0
    assert capsys.readouterr().out == "reproduced/baselines-smoke/outcome.json: as judged\n"
    file = tmp_path / "reproduced" / "baselines-smoke" / "outcome.json"
    whole = file.read_text()
    file.write_text(whole.replace('"word": "agrees"', '"word": "disagrees"', 1))
    assert main(["reproduce", "--check"]) == 1
    out = capsys.readouterr().out
    assert "outcome.json: differs\n  'parameters' was disagrees (116,695;" in out
    file.write_text(whole)

    file = tmp_path / "reproduced" / "baselines-smoke" / "outcome.json"
    file.write_text(file.read_text().replace('"version": "', '"version": "9.'))
    theirs = file.read_text()
    assert main(["reproduce", "baselines"]) == 2
    assert "choose another --folder, or --force" in capsys.readouterr().err
    assert file.read_text() == theirs
    assert main(["reproduce", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baselines"]["done"] == {"smoke": "another version"}
    assert main(["reproduce", "baselines", "--force", "--json"]) == 0
    assert file.read_text() != theirs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which experiment?"),
        (["sterring"], "did you mean 'steering'"),
        (["steering", "--scale", "huge"], "--scale"),
        (["steering", "--scale", "cpu"], "'steering': --scale cpu needs microscopy images"),
        (["steering", "--scale", "cpu", "--data", "bbbc038v1:no"], "'no' is not there"),
        (["steering", "--scale", "cpu", "--data", "chexpert:x"], "needs microscopy images"),
        (["steering", "--data", "nuclei"], "takes no --data"),
        (["steering", "--workers", "0"], "at least 1"),
        (["steering", "--folder", "file"], "'file' is a file"),
        (["steering", "--address", "x"], "needs engine='ray'"),
        (["--check", "--folder", "empty"], "'empty' holds no outcome"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(arguments, message, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["reproduce", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.startswith("error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
