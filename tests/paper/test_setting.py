"""Scales and data."""

import pytest

from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.train import train
from explainfix.paper.setting import Setting, sort_data


def test_smoke_needs_no_data_and_takes_none():
    setting = Setting("smoke")
    assert (setting.data("microscopy"), setting.data("xrays")) == ("nuclei", "xray-like")
    with pytest.raises(ValueError, match="takes no --data"):
        Setting("smoke", {"microscopy": "nuclei"})


def test_missing_data_is_said_with_where_to_get_it():
    with pytest.raises(ValueError, match=r"chest x-rays: --data chexpert:.*https:.*--scale smoke"):
        Setting("cpu", {"microscopy": "nuclei"}).data("xrays")


def test_data_is_sorted_by_what_it_shows():
    with pytest.raises(ValueError, match="both microscopy"):
        sort_data(["nuclei", "bbbc038v1:x"])
    with pytest.raises(ValueError, match="did you mean 'chexpert'"):
        sort_data(["chexprt:x"])


def test_a_wrong_scale_is_named():
    with pytest.raises(ValueError, match="'smok': did you mean 'smoke'"):
        Setting("smok")


def test_a_dry_run_has_the_name_of_the_real_one(tmp_path):
    config = RunConfig(
        data="nuclei", data_options={"count": 4, "size": 32}, epochs=1, batch_size=4, seed=5
    )
    planned = Setting("smoke", folder=tmp_path, dry=True).sweep({"x": config})["x"]
    assert not planned.folder.exists()
    real = train(config, runs=tmp_path / "runs")
    assert (planned.folder, planned.config) == (real.folder, real.config)
