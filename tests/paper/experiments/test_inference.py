"""What inference plans: zeroed networks go on from trained fixed ones."""

from explainfix.paper.experiments import inference
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import best_starts
from explainfix.paper.zeroing import ZeroedKey
from xray_runs import made_runs


def test_zeroed_networks_go_on_from_the_trained_run_of_their_seed(tmp_path):
    runs = inference.train(Setting("paper", folder=tmp_path, dry=True))
    assert len(runs) == 3 * 3 * 6
    for family, share in (("resnet", 0.99), ("densenet", 0.95), ("efficientnet", 0.85)):
        for seed in (0, 5):
            zeroed = runs[ZeroedKey(family, "unchanged", share, seed)].config
            trained = runs[ZeroedKey(family, "unchanged", 0.0, seed)]
            assert zeroed.model == str(trained.folder / "best.safetensors")
            assert (zeroed.zero, zeroed.prune, zeroed.fix) == (share, False, None)
            assert trained.config.weights == "pretrained"
            assert zeroed.seed == trained.config.seed == seed


def test_without_weights_networks_start_from_scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    found = best_starts(Setting("cpu", folder=tmp_path, dry=True))
    assert [(s.family, s.begin) for s in found] == [
        ("resnet", "scratch"), ("densenet", "scratch"), ("efficientnet", "scratch")
    ]  # fmt: skip


def test_each_network_has_its_verdict(tmp_path):
    runs = {}
    for family, lead in (("resnet", 0.0), ("efficientnet", -0.1)):
        zeroed = ZeroedKey(family, "unchanged", inference.SHARES[family], 0)
        runs |= made_runs(ZeroedKey(family, "learned", 0.0, 0), [0.8, 0.81, 0.82])
        runs |= made_runs(zeroed, [0.8 + lead, 0.811 + lead, 0.82 + lead])
    evidence = inference.judge(Setting("smoke", folder=tmp_path / "none", dry=True), runs)
    words = {key: verdict.word for key, verdict in evidence.verdicts.items()}
    assert words == {"resnet": "agrees", "densenet": "undecided", "efficientnet": "disagrees"}
