"""Outcomes on disk: whole, readable, and not written over by another version."""

import dataclasses
import io
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from explainfix.cli import main
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import Run
from explainfix.paper import reproduce as reproduction
from explainfix.paper.contrast import Measure, samples
from explainfix.paper.experiment import Claim, Evidence, Experiment
from explainfix.paper.figures import draw_picture
from explainfix.paper.results.document import write_results
from explainfix.paper.results.record import (
    judge_again,
    read_outcome,
    read_scores,
    render_page,
    write_outcome,
)  # fmt: skip
from explainfix.paper.setting import Setting
from explainfix.paper.verdict import InWords, Verdict


def above(scores):
    return Verdict("agrees" if max(scores.values()) > 0.8 else "disagrees", "0.87")


CLAIMS = (
    Claim("a", "Fixed <filters> do well.", "0.863", InWords("Agrees if above 0.8.", above)),
    Claim(
        "b",
        "They are fast.",
        "17%",
        InWords("Agrees if faster.", lambda _: Verdict("undecided", "+1% (-3% to +5%)")),
    ),
)
ABOUT = {
    "scale": "cpu",
    "command": "explainfix reproduce steering --scale cpu",
    "seconds": 2.0,
    "runs": ["x"],
    "training_seconds": 100.0,
}


def experiment():
    return Experiment(
        name="steering",
        title="A title",
        reference="Fig. 8",
        claims=CLAIMS,
        cost={"smoke": "1 s", "cpu": "1 s", "paper": "1 s"},
        train=lambda setting: {},
        judge=lambda setting, runs: evidence(),
    )


def drawing():
    figure = Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([0, 1], [0, 1], color="#c44e52", linewidth=5)
    return figure


def evidence(figures=("A line | bar",)):
    table = [{"method": "GHaar", "Dice": np.float32(0.5), "p": math.nan}]
    scores = {"AUC": samples({"ghaar": [0.87, 0.1 + 0.2]})}
    return Evidence(scores, {"Scores": table}, {name: drawing() for name in figures}, ["A note."])


@pytest.mark.parametrize("command", [True, False])
def test_the_command_alone_keeps_kernels_before_any_run(monkeypatch, tmp_path, command):
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # given back afterwards
        monkeypatch.delenv(name)
    seen = []

    def train(setting):
        seen.append(int(os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY", 0)))
        return {}

    one = dataclasses.replace(experiment(), train=train)
    monkeypatch.setattr(reproduction, "find_experiment", lambda name: one)
    if command:
        assert main(["reproduce", "steering", "--folder", str(tmp_path)]) == 0
    else:
        reproduction.reproduce("steering", Setting("smoke", folder=tmp_path))
    assert (seen[0] > 1024) == command


def test_what_is_written_is_read(tmp_path):
    record = write_outcome(tmp_path / "o", experiment(), evidence(), ABOUT)
    assert read_outcome(tmp_path / "o") == record
    assert record["tables"] == [
        {"caption": "Scores", "columns": ["method", "Dice", "p"], "rows": [["GHaar", 0.5, None]]}
    ]
    assert record["claims"][0]["word"] == "agrees"
    assert record["claims"][1]["rule"] == "Agrees if faster."
    assert read_outcome(tmp_path) is None


def test_a_row_may_lack_columns(tmp_path):
    found = evidence()
    found.tables = {"T": [{"layer": "a", "x": 1}, {"layer": "b", "y": np.float64(2)}]}
    record = write_outcome(tmp_path / "o", experiment(), found, ABOUT)
    assert record["tables"][0]["columns"] == ["layer", "x", "y"]
    assert record["tables"][0]["rows"] == [["a", 1, None], ["b", None, 2.0]]


def test_a_contrast_is_written_as_its_sentence(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Key:
        method: str
        seed: int

    dice = Measure("Dice", Key)
    rule = dice.mean("GHaar", method="ghaar") - dice.mean("learned", method="learned") > 0
    one = dataclasses.replace(experiment(), claims=(CLAIMS[0], Claim("b", "B.", "", rule)))
    found = evidence()
    found.scores = {"Dice": {Key(m, s): 0.8 + s / 9 for m in ("ghaar", "learned") for s in (0, 1)}}
    record = write_outcome(tmp_path / "o", one, found, ABOUT)
    assert judge_again(one, read_outcome(tmp_path / "o")) == []
    assert record["claims"][1]["rule"] == (
        "Dice, for each seed: GHaar less learned. Agrees if the 95% t interval lies above 0, "
        "disagrees if it lies below, else undecided."
    )


def test_old_figures_go(tmp_path):
    write_outcome(tmp_path, experiment(), evidence(("one", "two")), ABOUT)
    write_outcome(tmp_path, experiment(), evidence(("one",)), ABOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figure-1-dark.png", "figure-1.png", "outcome.json",
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"version": "9.9"}, {"format": 99}])
def test_another_version_is_an_error_and_stays(tmp_path, change):
    write_outcome(tmp_path, experiment(), evidence(), ABOUT)
    file = tmp_path / "outcome.json"
    text = json.dumps(json.loads(file.read_text()) | change)
    file.write_text(text)
    with pytest.raises(ValueError, match=r"outcome.json' is of explainfix .*--force"):
        read_outcome(tmp_path)
    assert file.read_text() == text


def test_damage_is_said(tmp_path):
    (tmp_path / "outcome.json").write_text('{"format": 1')
    with pytest.raises(ValueError, match="is damaged"):
        read_outcome(tmp_path)


def test_the_rules_can_be_applied_again(tmp_path):
    write_outcome(tmp_path, experiment(), evidence(), ABOUT)
    record = read_outcome(tmp_path)
    assert judge_again(experiment(), record) == []
    assert list(read_scores(record)["AUC"].values()) == [0.87, 0.1 + 0.2]  # to the last bit
    record["scores"]["AUC"]["rows"][0][-1] = 0.5  # somebody changed a score
    assert judge_again(experiment(), record) == ["'a' was agrees (0.87), and is disagrees (0.87)"]


def test_other_rules_and_claims_are_told(tmp_path):
    record = write_outcome(tmp_path, experiment(), evidence(), ABOUT)
    stricter = Claim("a", "A.", "", InWords("Agrees if above 0.9.", above))
    changed = dataclasses.replace(experiment(), claims=(stricter,))
    assert judge_again(changed, record) == [
        "the claim 'b' is no longer made",
        "'a' was judged by another rule: Agrees if above 0.8.",
    ]


def test_a_claim_that_is_not_tested_stays_so(tmp_path):
    found = evidence()
    found.untested = {"a": "no data"}
    record = write_outcome(tmp_path, experiment(), found, ABOUT)
    assert (record["claims"][0]["word"], record["claims"][0]["ours"]) == ("not tested", "no data")
    assert judge_again(experiment(), record) == []
    found.untested = {"z": "no data"}
    with pytest.raises(ValueError, match="no claim 'z'"):
        write_outcome(tmp_path / "o", experiment(), found, ABOUT)
    assert not (tmp_path / "o").exists()


def test_of_several_scores_a_claim_names_its_own(tmp_path):
    found = evidence()
    found.scores["seconds"] = samples({"ghaar": [1.0]})
    with pytest.raises(ValueError, match=r"one of \['AUC', 'seconds'\]"):
        write_outcome(tmp_path / "o", experiment(), found, ABOUT)


def test_the_dark_picture_has_light_ink_on_dark_and_the_same_colours():
    def pixels(data):
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).reshape(-1, 3).astype(int)

    figure = drawing()
    light, dark = pixels(draw_picture(figure)), pixels(draw_picture(figure, dark=True))
    assert light[0].tolist() == [255, 255, 255]
    assert dark[0].tolist() == [0x18, 0x1C, 0x24]
    assert light.sum(1).min() < 150  # black text
    assert dark.sum(1).max() > 550  # light text
    red = np.array([0xC4, 0x4E, 0x52])
    assert max(abs(light - red).sum(1).min(), abs(dark - red).sum(1).min()) < 12


def test_the_page_escapes_and_holds_everything(tmp_path):
    record = write_outcome(tmp_path, experiment(), evidence(), ABOUT)
    page = render_page(tmp_path, record)
    assert "Fixed &lt;filters&gt; do well." in page
    for text in ("0.863", "0.87", "17%", "Agrees if faster.", "A note.", ABOUT["command"]):
        assert text in page, text
    assert page.count("data:image/png;base64,") == 2
    assert "agrees" in page


def test_the_document_has_every_outcome_and_its_pictures(tmp_path):
    write_outcome(tmp_path / "r" / "steering-cpu", experiment(), evidence(), ABOUT)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "old-1.png").write_bytes(b"")
    text = write_results(tmp_path / "r", tmp_path / "docs").read_text()
    assert "2 findings of the paper: 1 agrees, 0 disagree, 1 is undecided" in text
    assert "Not run yet: distribution, " in text
    assert "| Fixed <filters> do well. | 0.863 | 0.87 | agrees |" in text
    assert "![A line | bar](results/steering-1.png)" in text
    assert "| GHaar | 0.5000 | – |" in text
    assert sorted(p.name for p in (tmp_path / "docs" / "results").iterdir()) == [
        "runs.jsonl", "steering-1.png", "steering.json",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no outcome at scale 'paper'"):
        write_results(tmp_path / "r", tmp_path / "docs", "paper")


def test_what_is_written_by_hand_stays_in_the_document(tmp_path):
    write_outcome(tmp_path / "r" / "steering-cpu", experiment(), evidence(), ABOUT)
    page = write_results(tmp_path / "r", tmp_path)
    first = page.read_text()
    assert first.startswith("# Results")
    page.write_text(first.replace("# Results", "# Results\n\nOur words.", 1))
    second = write_results(tmp_path / "r", tmp_path).read_text()
    assert second == first.replace("# Results", "# Results\n\nOur words.", 1)


def test_a_pause_does_not_count_as_training():
    paused = [{"epoch": n, "seconds": 900.0 if n == 2 else 10.0} for n in range(1, 6)]
    run = Run(Path(), RunConfig(model="unetd", data="nuclei"), paused, {})
    assert reproduction.training_seconds(run) == 50
