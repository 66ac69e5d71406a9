"""The verdicts of training and what it shares, on scores made by hand."""

from explainfix.paper.contrast import pick
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import classification, training
from explainfix.paper.networks import factory
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import finals
from explainfix.paper.zeroing import ZeroedKey, nearly_equal
from xray_runs import made_runs


def test_zeroed_networks_are_compared_seed_by_seed():
    zeroed, learned = ZeroedKey("a", "unchanged", 0.9, 0), ZeroedKey("a", "learned", 0.0, 0)
    runs = made_runs(learned, [0.80, 0.82, 0.84]) | made_runs(zeroed, [0.795, 0.816, 0.835])
    verdict = nearly_equal("a", 0.9).judge(finals(runs))
    assert verdict.word == "agrees"
    assert verdict.ours.startswith("-0.005")
    worse = runs | made_runs(zeroed, [0.70, 0.721, 0.74])
    assert nearly_equal("a", 0.9).judge(finals(worse)).word == "disagrees"
    assert nearly_equal("b", 0.9).judge(finals(runs)).word == "not tested"


def test_smoke_scale_has_no_densenet(tmp_path):
    runs = {}
    for family in ("resnet", "efficientnet"):
        runs |= made_runs(ZeroedKey(family, "learned", 0.0, 0), [0.8, 0.81])
        for share in (training.SHARES[family], training.TEXT[family]):
            runs |= made_runs(ZeroedKey(family, "unchanged", share, 0), [0.8, 0.811])
    evidence = training.judge(Setting("smoke", folder=tmp_path), runs)
    verdicts = judge_claims(training.CLAIMS, evidence.scores)
    assert {key: verdict.word for key, verdict in verdicts.items()} == {
        "resnet": "agrees",
        "densenet": "not tested",
        "efficientnet": "agrees",
        "text": "not tested",
    }
    assert len(next(iter(evidence.tables.values()))) == 4


def test_the_papers_shares(tmp_path):
    runs = training.train(Setting("paper", folder=tmp_path, dry=True))
    zeroed = {(r.config.model, r.config.zero) for r in runs.values() if r.config.zero}
    assert zeroed == {
        ("torchvision:resnet50", 0.90),
        ("torchvision:resnet50", 0.95),
        ("torchvision:densenet121", 0.85),
        ("torchvision:densenet121", 0.90),
        (factory("efficientnet_b0"), 0.80),
        (factory("efficientnet_b0"), 0.85),
    }
    for run in runs.values():
        assert run.config.weights is None  # never trained
        assert (run.config.fix == "unchanged") == (run.config.zero is not None)
        assert not run.config.prune


def test_which_kernels_go_is_decided_by_the_trained_network_of_the_seed(tmp_path):
    runs = training.train(Setting("paper", folder=tmp_path, dry=True))
    for seed in (0, 5):
        zeroed = runs[ZeroedKey("resnet", "unchanged", 0.90, seed)].config
        trained = runs[ZeroedKey("resnet", "learned", 0.0, seed)].folder
        assert zeroed.zero_from == str(trained)
        assert (zeroed.zero_by, zeroed.zero_batches, zeroed.batch_size) == ("gradient", 50, 4)


def test_the_baselines_are_those_of_classification(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    theirs = {run.folder for run in classification.train(setting).values()}
    learned = pick(training.train(setting), method="learned", seed=(0, 1))
    assert {run.folder for run in learned} <= theirs
