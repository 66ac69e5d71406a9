"""What inference plans: zeroed networks go on from trained fixed ones."""

from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import inference
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import best_starts
from explainfix.paper.zeroing import ZeroedKey
from xray_runs import made_runs


def test_both_go_on_from_the_trained_run_of_their_seed(tmp_path):
    runs = inference.train(Setting("paper", folder=tmp_path, dry=True))
    assert len(runs) == 3 * 4 * 6
    for family, share in (("resnet", 0.99), ("densenet", 0.95), ("efficientnet", 0.85)):
        for seed in (0, 5):
            for method, zero in (("unchanged", share), ("learned", None)):
                later = runs[ZeroedKey(family, method, zero or 0.0, seed)].config
                trained = runs[ZeroedKey(family, f"{method} before", 0.0, seed)]
                assert later.model == str(trained.folder)
                assert (later.zero, later.prune, later.fix, later.weights) == (
                    zero, False, None, None
                )  # fmt: skip
                assert later.epochs == trained.config.epochs
                assert later.seed == trained.config.seed == seed


def test_without_weights_networks_start_from_scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    setting = Setting("cpu", folder=tmp_path, dry=True)
    found = best_starts(setting)
    assert [(s.title, s.begin) for s in found] == [
        ("ResNet26, from scratch", "scratch"), ("DenseNet121, from scratch", "scratch"),
        ("MobileNetV2, from scratch", "scratch"),
    ]  # fmt: skip
    assert inference.train(setting) == {}
    evidence = inference.judge(setting, {})
    verdicts = judge_claims(inference.CLAIMS, evidence.scores, evidence.untested)
    assert {verdict.word for verdict in verdicts.values()} == {"not tested"}


def test_each_network_has_its_verdict(tmp_path):
    runs = made_runs(ZeroedKey("efficientnet", "learned", 0.0, 0), [0.8, 0.81, 0.82])
    runs |= made_runs(ZeroedKey("efficientnet", "unchanged", 0.85, 0), [0.7, 0.711, 0.72])
    evidence = inference.judge(Setting("smoke", folder=tmp_path / "none", dry=True), runs)
    verdicts = judge_claims(inference.CLAIMS, evidence.scores, evidence.untested)
    assert {key: verdict.word for key, verdict in verdicts.items()} == {
        "resnet": "not tested", "densenet": "not tested", "efficientnet": "disagrees",
    }  # fmt: skip
    assert verdicts["resnet"].ours == "no ImageNet weights of it are at hand"
