"""The verdicts of steering on scores made by hand."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import Run
from explainfix.paper import microscopy
from explainfix.paper.contrast import pick
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import distribution, learning_rate, steering
from explainfix.paper.microscopy import METHODS, STEERED, Key, train_steering
from explainfix.paper.scores import late_mean, late_means, part
from explainfix.paper.setting import Setting
from explainfix.paper.verdict import Verdict

EVEN = {Key(method, seed): 0.80 + 0.01 * seed for method in METHODS for seed in range(3)}


def scored(methods, *scores):
    """These scores of these methods, a seed each."""
    return {Key(method, seed): score for method in methods for seed, score in enumerate(scores)}


def made_run(label, scores, *, every=1, epochs=None):
    """A run whose test and val scores are these, at every so many epochs."""
    history = [
        {"epoch": every * (i + 1), "seconds": 1.0, "val dice": s, "test dice": s}
        for i, s in enumerate(scores)
    ]
    epochs = epochs or every * len(scores)
    return Run(Path(label), RunConfig(epochs=epochs, evaluate_every=every), history, {})


def test_the_second_half_of_the_epochs_counts():
    # of 18 epochs, scored at 3, 6, ... 18: those after 9 are 12, 15 and 18
    run = made_run("a", [0.1, 0.2, 0.3, 0.4, 0.5, 0.9], every=3)
    assert late_mean(run, "test dice") == pytest.approx((0.4 + 0.5 + 0.9) / 3)
    with pytest.raises(ValueError, match="no 'stage2 dice': it has seconds, val dice, test dice"):
        late_mean(run, "stage2 dice")


def test_where_the_rate_falls_the_last_quarter_counts():
    run = made_run("a", [0.1, 0.2, 0.3, 0.4], every=3)
    falling = dataclasses.replace(run.config, schedule="onecycle")
    assert late_mean(dataclasses.replace(run, config=falling), "test dice") == 0.4


def test_methods_and_seeds_are_told_apart():
    runs = {Key("ones", 0): made_run("a", [0.1]), Key("ones", 1): made_run("b", [0.2])}
    runs[Key("dct2", 0)] = made_run("c", [0.3])
    scores = late_means(runs, "test dice")
    assert pick(scores, method="ones") == [0.1, 0.2]
    assert pick(scores, method=("ones", "dct2"), seed=0) == [0.1, 0.3]


def words(scores, claims=steering.CLAIMS):
    return {key: verdict.word for key, verdict in judge_claims(claims, {"Dice": scores}).items()}


def test_clear_differences_are_seen():
    better = words(EVEN | scored(STEERED, 0.85, 0.862, 0.871))
    assert better == dict.fromkeys(("steered", "ghaar", "equal"), "agrees")
    worse = words(EVEN | scored(STEERED, 0.75, 0.762, 0.771))
    assert worse == dict.fromkeys(("steered", "ghaar", "equal"), "disagrees")


def test_one_poor_steered_method_is_enough_to_disagree():
    scores = EVEN | scored(["psine"], 0.70, 0.712, 0.72)
    found = judge_claims(steering.CLAIMS, {"Dice": scores})
    assert found["equal"].word == "disagrees"
    assert found["equal"].ours.startswith("lowest: Psine -0.099")


def test_noise_is_undecided():
    assert set(words(EVEN | scored(STEERED, 0.70, 0.95, 0.80)).values()) == {"undecided"}


def test_the_best_run_is_chosen_on_validation_and_the_papers_way_on_test():
    runs = {}
    for method in METHODS:
        for seed, (val, test) in enumerate([(0.9, 0.5), (0.8, 0.7)]):
            history = [{"epoch": 1, "val dice": val, "test dice": test}]
            runs[Key(method, seed)] = Run(Path(method), RunConfig(epochs=1), history, {})
    table = steering.best_runs(runs, "test")
    assert {row["chosen on val"] for row in table} == {0.5}
    assert {row["chosen on test (the paper's way)"] for row in table} == {0.7}


def test_runs_with_and_without_averaged_statistics_differ_in_nothing_else(tmp_path):
    runs = steering.train(Setting("cpu", folder=tmp_path, dry=True))
    assert len(runs) == 6 * microscopy.SEEDS + 2 * 3
    for seed in range(3):
        raw, anew = (runs[Key(m, seed)].config for m in (steering.RAW, steering.ANEW))
        assert (raw.recalibrate, anew.recalibrate) == (0, 25)
        assert dataclasses.replace(raw, recalibrate=25) == anew


def test_averaging_statistics_changes_no_weight(tmp_path):
    """So that two runs that differ in it have been trained alike."""
    setting = Setting("smoke", folder=tmp_path)
    found = []
    for recalibrate in (0, 1):
        options = microscopy.options(setting) | {"recalibrate": recalibrate}
        key = Key("ghaar", 0)
        [run] = setting.sweep({key: microscopy.configure(key, **options)}).values()
        found.append(dict(run.model("last").named_parameters()))
    first, second = found
    assert all(second[name].equal(value) for name, value in first.items())


def test_learning_rate_reads_the_same_epochs_of_both():
    run = made_run("x", [0.5, 0.7, 0.9], every=3, epochs=9)
    assert part(run, "test dice", to=6).mean() == pytest.approx(0.6)


def test_the_rate_falls_in_what_steering_compares_and_not_in_what_is_about_rates(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    settled = {run.config.schedule for run in train_steering(setting).values()}
    assert settled == {"onecycle"}
    mine = learning_rate.train(setting)
    assert {run.config.schedule for run in mine.values()} == {"constant"}
    for rate in learning_rate.RATES:
        found = [run.config for run in pick(mine, rate=rate)]
        assert {(c.lr, c.epochs, c.evaluate_every) for c in found} == {(rate, 6, 1)}
        assert len(found) == 5 * 6


def test_short_runs_are_compared_on_images_that_are_held_out(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    assert microscopy.compared_on(setting) == "val"
    for runs in (train_steering(setting), learning_rate.train(setting)):
        [share] = {run.config.data_options["val_share"] for run in runs.values()}
        assert share == microscopy.HELD_OUT
    assert microscopy.compared_on(Setting("paper", {"microscopy": "bbbc038v1:x"})) == "stage2"
    assert microscopy.compared_on(Setting("smoke")) == "test"


def test_distribution_without_stage2_cannot_decide_about_it():
    scores = {
        distribution.ScoreKey(images, key.method, key.seed): score + lead + jitter * key.seed
        for images, lead, jitter in (("like", 0.0, 0.0), ("other", 0.1, 0.001))
        for key, score in EVEN.items()
    }
    found = words(scores, distribution.CLAIMS)
    assert found == {"higher": "agrees", "equal": "agrees", "transfer": "agrees"}
    left = judge_claims(distribution.CLAIMS, {"Dice": scores}, {"higher": "no stage2"})
    assert left["higher"] == Verdict("not tested", "no stage2")


def test_images_far_from_all_known_ones_come_last():
    known = np.array([[0.0, 1.0], [1.0, 0.0], [0.2, 0.9]])
    rows = np.array([[9.0, 9.0], [0.0, 1.0], [0.5, 0.5]])
    assert distribution.order_by_distance(rows, known) == [1, 2, 0]


def test_a_look_has_the_right_numbers():
    image = np.zeros((3, 2, 4))
    image[0, :, 2:] = 0.6  # the right half is red
    grey, spread, colour, detail, size = distribution.look(image)
    assert (grey, spread, colour) == pytest.approx((0.1, 0.1, 0.3))
    assert detail == pytest.approx(0.2 / 3)  # one step of 0.2 in three across
    assert size == pytest.approx(np.log(8))
