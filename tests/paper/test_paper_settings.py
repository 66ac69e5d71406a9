"""The runs of scale `paper` have the paper's settings, written here from its appendices A to C."""

import dataclasses
from collections import Counter

import pytest

from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.train import train
from explainfix.paper import list_experiments
from explainfix.paper.microscopy import Key
from explainfix.paper.reproduce import find_experiment
from explainfix.paper.setting import Setting, kind_of

SETTINGS = {
    "microscopy": {
        "optimizer": "adam",
        "weight_decay": 0.0,
        "schedule": "constant",
        "loss": "bce",
        "batch_size": 10,
        "accumulate": 1,
        "eval_batch_size": 1,
        "precision": "32-true",
    },
    "xrays": {
        "optimizer": "adam",
        "weight_decay": 0.0,
        "schedule": "constant",
        "loss": "focal",
        "batch_size": 4,
        "accumulate": 1,
        "precision": "32-true",
    },
}
DATA = {  # 256 and soft labels are the authors' code's: the text gives none
    "microscopy": {"crop": 256, "soft_labels": True},
    "xrays": {"crop": 320, "val_share": 0.3, "seed": 138, "samples_per_epoch": 15_000},
}
EPOCHS = {"microscopy": 300, "xrays": 40}
OTHER_EPOCHS = {"baselines": 150, "capacity": 80, "savings": 20}
RATES = {"microscopy": {0.008}, "xrays": {1e-4}}
MORE_RATES = {  # twice if pruned
    "learning-rate": {0.02}, "pruned": {2e-4}, "savings": {2e-4}, "landscape": {2e-4},
}  # fmt: skip
RUNS = {  # of each method or network, where the paper says how many
    "steering": 6,
    "distribution": 6,
    "learning-rate": 6,
    "baselines": 3,
    "saliency-check": 6,
    "training": 6,
    "inference": 6,
}


@pytest.mark.parametrize("name", list_experiments())
def test_settings(name, tmp_path):
    for key, run in (
        find_experiment(name).train(Setting("paper", folder=tmp_path, dry=True)).items()
    ):
        config, kind = run.config, kind_of(run.config.data)
        assert {k: getattr(config, k) for k in SETTINGS[kind]} == SETTINGS[kind], key
        assert config.data_options.items() >= DATA[kind].items(), key
        if config.train_share == 1:
            assert config.epochs == OTHER_EPOCHS.get(name, EPOCHS[kind]), key
        assert config.recalibrate == 0, key
        if config.zero is not None:
            assert (config.zero_by, config.zero_batches) == ("gradient", 50), key
        assert config.lr in RATES[kind] | MORE_RATES.get(name, set()), key


@pytest.mark.parametrize("name", [name for name in list_experiments() if name in RUNS])
def test_independent_runs(name, tmp_path):
    runs = find_experiment(name).train(Setting("paper", folder=tmp_path, dry=True))
    counts = Counter(str(dataclasses.replace(key, seed=0)) for key in runs)
    assert set(counts.values()) == {RUNS[name]}
    assert len({run.folder for run in runs.values()}) == len(runs)


def test_the_methods_of_steering(tmp_path):
    runs = find_experiment("steering").train(Setting("paper", folder=tmp_path, dry=True))
    methods = {run.config.fix for run in runs.values()}
    assert methods == {None, "ones", "dct2", "unchanged", "ghaar", "psine"}  # 36 models
    assert len(runs) == 36
    one = runs[Key("ghaar", 3)].config
    assert (one.seed, one.fix_seed, one.evaluate_every) == (3, 3, 1)
    assert one.evaluate_on == ("val", "test", "stage2")


def test_a_model_of_the_papers_size_takes_real_steps(tmp_path):
    """U-NetD with 256 pixels and batches of ten, as in `steering`, on drawn images."""
    runs = find_experiment("steering").train(Setting("paper", folder=tmp_path, dry=True))
    theirs = runs[Key("ghaar", 0)].config
    kept = {k: getattr(theirs, k) for k in ("model", "fix", "fix_seed", "batch_size", "lr", "seed")}
    drawn = {"data": "nuclei", "data_options": {"count": 20, "size": 256}}
    run = train(RunConfig(**kept, **drawn, epochs=1, evaluate_every=1), runs=tmp_path)
    assert run.result["parameters"] == 116_695
    assert run.result["parameters"] - run.result["learned_parameters"] == 12_744
    assert run.history[0]["loss"] > 0
