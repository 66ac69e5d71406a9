"""The verdicts of training and what it shares, on scores made by hand."""

from explainfix.paper.experiments import classification, training
from explainfix.paper.setting import Setting
from xray_runs import made_runs


def test_zeroed_networks_are_compared_seed_by_seed():
    runs = made_runs("learned", [0.80, 0.82, 0.84]) | made_runs("zeroed", [0.795, 0.816, 0.835])
    pair = training.Pair("A", 0.9, "zeroed", "learned")
    verdict = training.compare(runs, pair)
    assert verdict.word == "agrees"
    assert verdict.ours.startswith("-0.005")
    worse = runs | made_runs("zeroed", [0.70, 0.721, 0.74])
    assert training.compare(worse, pair).word == "disagrees"
    assert training.compare(runs, None).word == "undecided"


def test_smoke_scale_has_no_densenet(tmp_path):
    runs = {}
    for family in ("resnet", "efficientnet"):
        runs |= made_runs(f"{family} scratch learned", [0.8, 0.81])
        for share in (training.SHARES[family], training.TEXT[family]):
            runs |= made_runs(f"{family} scratch unchanged {share}", [0.8, 0.811])
    outcome = training.judge(Setting("smoke", folder=tmp_path), runs)
    words = {key: verdict.word for key, verdict in outcome.verdicts.items()}
    assert words == {
        "resnet": "agrees",
        "densenet": "undecided",
        "efficientnet": "agrees",
        "text": "undecided",
    }
    assert len(next(iter(outcome.tables.values()))) == 4


def test_the_papers_shares(tmp_path):
    runs = training.train(Setting("paper", folder=tmp_path, dry=True))
    zeroed = {(r.config.model, r.config.zero) for r in runs.values() if r.config.zero}
    assert zeroed == {
        ("torchvision:resnet50", 0.90),
        ("torchvision:resnet50", 0.95),
        ("torchvision:densenet121", 0.85),
        ("torchvision:densenet121", 0.90),
        ("timm:tf_efficientnet_b0", 0.80),
        ("timm:tf_efficientnet_b0", 0.85),
    }
    for run in runs.values():
        assert run.config.weights is None  # never trained
        assert (run.config.fix == "unchanged") == (run.config.zero is not None)
        assert not run.config.prune


def test_the_baselines_are_those_of_classification(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    theirs = {run.folder for run in classification.train(setting).values()}
    learned = {k: r.folder for k, r in training.train(setting).items() if " learned " in k}
    assert {folder for label, folder in learned.items() if label[-1] in "01"} <= theirs
