"""The verdicts of capacity on scores made by hand, and the runs it plans."""

from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import capacity
from explainfix.paper.experiments.capacity import ScoreKey
from explainfix.paper.networks import factory
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import Key


def judged(*leads):
    """Two seeds of three networks; a fixed method leads learned by so much on each."""
    scores = {}
    for size, (base, lead) in enumerate(zip((0.70, 0.75, 0.77), leads, strict=True)):
        for seed in range(2):
            scores[ScoreKey(size, "learned", seed)] = base + 0.01 * seed
            scores[ScoreKey(size, "psine", seed)] = base + 0.011 * seed + lead
    return judge_claims(capacity.CLAIMS, {"AUC": scores})


def words(found):
    return {key: verdict.word for key, verdict in found.items()}


def test_equal_at_all_sizes():
    assert words(judged(0.0, 0.0, 0.0)) == {"equal": "agrees", "trend": "agrees"}


def test_a_fall_with_size_is_seen():
    found = judged(0.05, -0.02, -0.09)
    assert found["trend"].word == "disagrees"
    assert found["trend"].ours.startswith("-0.140")


def test_worse_everywhere_but_no_trend():
    assert words(judged(-0.06, -0.06, -0.06)) == {"equal": "disagrees", "trend": "agrees"}


def test_b0_to_b5(tmp_path):
    runs = capacity.train(Setting("paper", folder=tmp_path, dry=True))
    assert {run.config.model for run in runs.values()} == {
        factory(f"efficientnet_b{size}") for size in range(6)
    }
    assert {run.config.fix for run in runs.values()} == {None, "unchanged", "psine", "guidedsteer"}
    guided = runs[Key("b3", "scratch", "guidedsteer", 0)].config
    assert guided.fix_guide == "timm:tf_efficientnet_b3.ap_in1k"


def test_the_networks_of_each_scale_grow(tmp_path):
    from explainfix import create_model

    for scale in ("smoke", "cpu"):
        sizes = [
            sum(p.numel() for p in create_model(start.options["model"]).parameters())
            for start in capacity.networks(Setting(scale, folder=tmp_path, dry=True))
        ]
        assert sizes == sorted(set(sizes))
        assert len(sizes) >= 2
