"""The verdicts of capacity on scores made by hand, and the runs it plans."""

import pytest

from explainfix.paper.experiments import capacity
from explainfix.paper.setting import Setting


def scores(*leads):
    """Two seeds of three networks; a fixed method leads learned by so much on each."""
    base = (0.70, 0.75, 0.77)
    return {
        f"b{i}": {"learned": [b, b + 0.01], "ghaar": [b + lead, b + 0.011 + lead]}
        for i, (b, lead) in enumerate(zip(base, leads, strict=True))
    }


def words(found):
    return {key: verdict.word for key, verdict in found.items()}


def test_equal_at_all_sizes():
    found = capacity.verdicts(scores(0.0, 0.0, 0.0))
    assert words(found) == {"equal": "agrees", "trend": "agrees"}


def test_a_fall_with_size_is_seen():
    found = capacity.verdicts(scores(0.05, -0.02, -0.09))
    assert found["trend"].word == "disagrees"
    assert found["trend"].ours.startswith("-0.140")


def test_worse_everywhere_but_no_trend():
    found = capacity.verdicts(scores(-0.06, -0.06, -0.06))
    assert words(found) == {"equal": "disagrees", "trend": "agrees"}


def test_b0_to_b5(tmp_path):
    runs = capacity.train(Setting("paper", folder=tmp_path, dry=True))
    assert {run.config.model for run in runs.values()} == {
        f"timm:tf_efficientnet_b{size}" for size in range(6)
    }
    assert {run.config.fix for run in runs.values()} == {
        None, "unchanged", "ghaar", "psine", "guidedsteer"
    }  # fmt: skip
    guided = runs["tf_efficientnet_b3 scratch guidedsteer 0"].config
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


def test_the_table_has_means():
    found = capacity.table(scores(0.0, 0.1, 0.2), {"b0": 1, "b1": 2, "b2": 3})
    assert found["GHaar"].tolist() == pytest.approx([0.7055, 0.8555, 0.9755])
