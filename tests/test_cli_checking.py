"""explainfix check, as a machine of continuous integration runs it."""

import json
from xml.etree import ElementTree

import pytest
import torch

import explainfix as xf
from explainfix.cli import main
from explainfix.explanation import check


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A network as it should be, its explanation, and one in which three things are wrong."""
    monkeypatch.chdir(tmp_path)
    model = xf.create_model("unetd")
    xf.fix_(model, "ghaar", layers="encoder.*")
    xf.save(model, "good.safetensors")
    with torch.no_grad():
        model.encoder[0][0][3].weight[0] += 0.1
        model.decoder[0].before[3].weight.zero_()
        model.decoder[1].after[3].weight.fill_(0.1)
    xf.save(model, "bad.safetensors")
    assert main(["explain", "good.safetensors", "-o", "good.json"]) == 0


def test_exit_codes_and_what_is_printed(files, capsys):
    capsys.readouterr()
    assert main(["check", "good.safetensors", "--baseline", "good.json"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Random weights: this shows the initialisation")
    assert "All 56 checks passed (dead 16, idle 16, fixed 8, drift 16)." in printed
    assert main(["check", "good.safetensors"]) == 0
    assert "Drift was not checked: no baseline was given." in capsys.readouterr().out
    assert main(["check", "bad.safetensors", "--baseline", "good.json"]) == 1
    printed = capsys.readouterr().out
    assert "Random weights" not in printed  # something has changed them
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    for said in ("encoder.0.0.3", "all 192 kernels are zero", "of its energy at other frequencies"):
        assert said in printed


def test_json_and_junit_say_the_same(files, capsys):
    capsys.readouterr()
    words = ["check", "bad.safetensors", "--baseline", "good.json", "--junit", "out.xml", "--json"]
    assert main(words) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is False
    found = {(finding["check"], finding["layer"]) for finding in printed["failures"]}
    assert found >= {
        ("fixed", "encoder.0.0.3"),
        ("dead", "decoder.0.before.3"),
        ("drift", "decoder.1.after.3"),
    }
    cases = ElementTree.parse("out.xml").getroot().iter("testcase")
    broken = {(c.get("classname"), c.get("name")) for c in cases if c.find("failure") is not None}
    assert broken == {(f"explainfix.{check}", layer) for check, layer in found}
    assert main(words) == 2  # the file is there
    assert main([*words, "--force"]) == 1


def test_thresholds_from_a_file(files, tmp_path, capsys):
    (tmp_path / "check.toml").write_text('drift = 1\nignore = ["encoder.0.0.3", "decoder.0.*"]\n')
    words = ["check", "bad.safetensors", "--baseline", "good.json", "--config", "check.toml"]
    assert main(words) == 0
    (tmp_path / "check.toml").write_text("idle_nrom = 1e-2\n")
    assert main(words) == 2
    assert "'check.toml': unknown threshold 'idle_nrom': did you mean 'idle_norm'" in (
        capsys.readouterr().err
    )
    (tmp_path / "check.toml").write_text("idle = \n")
    assert main(words) == 2
    assert "'check.toml': " in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["json", "csv", "parquet"])
def test_every_kind_of_baseline(files, ending):
    assert main(["explain", "good.safetensors", "-o", f"kept.{ending}", "--force"]) == 0
    (finding, *_) = (
        f
        for f in check(
            xf.load("good.safetensors"), baseline=xf.Explanation.load(f"kept.{ending}")
        ).findings
        if f.check == "drift"
    )
    assert finding.figure == 0  # read back to the last bit
    assert main(["check", "good.safetensors", "--baseline", f"kept.{ending}"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("check good.safetensors --baseline nothing.json", "'nothing.json': No such file"),
        ("check good.safetensors --baseline good.safetensors", "holds no explanation"),
        ("check good.safetensors --config nothing.toml", "'nothing.toml': No such file"),
        ("check good.safetensors --junit out.txt", "'out.txt' must end in .xml"),
        ("check nothing.safetensors", "'nothing.safetensors': No such file"),
    ],
)
def test_mistakes(files, arguments, message, capsys):
    capsys.readouterr()
    assert main(arguments.split()) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
