"""Words, numbers and sentences of contrasts, against SciPy's paired t test written out by hand."""

from dataclasses import dataclass
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from explainfix.paper.contrast import ABSENT, ANY, Measure, samples, say_all


@dataclass(frozen=True)
class Key:
    network: str
    method: str
    seed: int


DICE = Measure("Dice", Key)
ours = DICE.mean("ours", method=("a", "b"))
base = DICE.mean("the baseline", method="base")
each = DICE.each("each of ours", method=("a", "b"))


def random_scores(seed, *, lead=0.0, noise=0.02):
    """Two networks, three methods, four seeds."""
    rng = np.random.default_rng(seed)
    found = {}
    for network in ("small", "large"):
        for method in ("a", "base", "b"):
            for run in range(4):
                mean = 0.7 + (method != "base") * lead + (network == "large") * 0.1
                found[Key(network, method, run)] = float(rng.normal(mean, noise))
    return found


def by_hand(scores, difference):
    """SciPy's paired interval of a difference of (network, seed), both of which are paired by."""
    pairs = [(network, run) for network in ("small", "large") for run in range(4)]
    return stats.ttest_1samp([difference(scores, *pair) for pair in pairs], 0).confidence_interval()


def lead(scores, network, run):
    mine = fmean(scores[Key(network, method, run)] for method in ("a", "b"))
    return mine - scores[Key(network, "base", run)]


@pytest.mark.parametrize("seed", range(40))
def test_the_word_and_numbers_are_scipys(seed):
    scores = random_scores(seed, lead=(-0.03, 0.0, 0.03)[seed % 3], noise=0.01 + 0.01 * (seed % 4))
    low, high = by_hand(scores, lead)
    for bound in (0.0, -0.02):
        word = "agrees" if low > bound else "disagrees" if high < bound else "undecided"
        verdict = (ours - base > bound).judge(scores)
        assert verdict.word == word
        assert verdict.ours.endswith(f"({low:+.3f} to {high:+.3f})")
    inside = low > -0.02 and high < 0.02
    outside = low > 0.02 or high < -0.02
    word = "agrees" if inside else "disagrees" if outside else "undecided"
    assert (ours - base).within(0.02).judge(scores).word == word
    lead_word = "agrees" if low > 0 else "disagrees" if high < 0.02 else "undecided"
    assert (ours - base).exceeds(0.02).judge(scores).word == lead_word
    below = "agrees" if high < 0 else "disagrees" if low > 0 else "undecided"
    assert (ours - base < 0).judge(scores).word == below


@pytest.mark.parametrize("seed", range(10))
def test_a_difference_of_differences_is_paired_by_seed(seed):
    scores = random_scores(seed)
    grows = [lead(scores, "large", run) - lead(scores, "small", run) for run in range(4)]
    low, high = stats.ttest_1samp(grows, 0).confidence_interval()
    rule = (ours - base).at(network="large") - (ours - base).at(network="small") > 0
    assert rule.judge(scores).ours.endswith(f"({low:+.3f} to {high:+.3f})")


def test_every_group_must_agree_and_the_lowest_is_named():
    scores = random_scores(0, lead=0.2)
    rule = (each - base > 0).for_every("method")
    assert rule.judge(scores).word == "agrees"
    scores |= {key: 0.1 for key in scores if key == Key(key.network, "b", key.seed)}
    verdict = rule.judge(scores)
    assert verdict.word == "disagrees"
    assert verdict.ours.startswith("lowest: b -0.")
    said = rule.said(say_all).judge(scores).ours
    assert said.startswith("a +0.")
    assert ", b -0." in said


def test_the_mean_over_a_field_is_what_all_are_compared_with():
    scores = random_scores(1)
    mean = {
        network: fmean(scores[Key(network, "base", run)] for run in range(4))
        for network in ("small", "large")
    }
    low, high = by_hand(scores, lambda s, network, run: s[Key(network, "a", run)] - mean[network])
    rule = DICE.mean("a", method="a") - DICE.mean("baselines", method="base", seed=ANY) > 0
    assert rule.judge(scores).ours.endswith(f"({low:+.3f} to {high:+.3f})")


def test_the_largest_is_found_among_the_scores():
    named = {"small": "1", "large": "2"}
    sized = {Key(named[k.network], k.method, k.seed): v for k, v in random_scores(2).items()}
    found = ours.at(network=max).values(sized)
    assert found == ours.at(network="2").values(sized)
    assert len(found) == 4


def test_without_scores_nothing_is_decided():
    verdict = (ours - base > 0).judge({})
    assert (verdict.word, verdict.ours) == ("not tested", ABSENT)
    no_baseline = {k: v for k, v in random_scores(3).items() if k.method != "base"}
    assert (ours - base > 0).judge(no_baseline).word == "not tested"


def test_scores_of_another_kind_are_an_error():
    with pytest.raises(TypeError, match="'Dice' is scored by Key, not by Sample"):
        (ours > 0).judge(samples({"a": [0.1, 0.2]}))


def test_samples_are_judged_by_name():
    measure = Measure("seconds", words={"name": "network", "number": "round"})
    rule = (measure.each() > 1).for_every("name")
    assert rule.judge(samples({"a": [1.2, 1.3], "b": [1.4, 1.41]})).word == "undecided"
    assert rule.judge(samples({"a": [1.2, 1.21], "b": [1.4, 1.41]})).word == "agrees"
    assert str(rule).startswith("Seconds, for each round. Agrees if the 95% t interval lies above ")
    alone = (measure.each() > 1).for_every("name", alone=True)
    assert alone.judge(samples({"a": [1.2, 1.21], "b": [0.9]})).word == "disagrees"


def test_sentences():
    assert str(ours - base > -0.02) == (
        "Dice, for each network and seed: the mean of ours less the baseline. Agrees if the 95% t "
        "interval lies above -0.02, disagrees if it lies below, else undecided."
    )
    assert str((each - base).within(0.05).for_every("method")) == (
        "Dice, for each network and seed: each of ours less the baseline. Agrees if the 95% t "
        "interval lies within 0.05 of 0 for every method, disagrees if it lies wholly outside for "
        "one, else undecided."
    )
    assert str((ours - base).exceeds(0.02)) == (
        "Dice, for each network and seed: the mean of ours less the baseline. Agrees if the 95% t "
        "interval lies above 0, disagrees if it lies below 0.02, which is nothing that counts, "
        "else undecided."
    )
    large = (ours - base).at(network=max)
    assert str(large < 0) == (
        "Dice, for each seed: (the mean of ours less the baseline) on the largest network. Agrees "
        "if the 95% t interval lies below 0, disagrees if it lies above, else undecided."
    )


def test_one_run_has_no_interval():
    rule = (Measure("x").each() > 0).for_every("name")
    assert rule.judge(samples({"a": [1.0, 1.1], "b": [1.0]})).word == "not tested"


def test_a_difference_turned_round_is_its_negative():
    scores = random_scores(0)
    for coarse in (base, DICE.mean("the mean baseline", method="base", seed=ANY)):
        there, back = (ours - coarse).values(scores), (coarse - ours).values(scores)
        assert there == {unit: -value for unit, value in back.items()}
        assert len(there) == 8  # for each of the finer one's


def test_what_has_no_partner_has_no_difference():
    scores = random_scores(0)
    del scores[Key("large", "base", 3)]
    assert len((ours - base).values(scores)) == len((base - ours).values(scores)) == 7


def test_a_difference_of_quantities_of_other_things_is_an_error():
    seeds, networks = DICE.mean("a", method="a", network=ANY), DICE.mean("b", method="b", seed=ANY)
    with pytest.raises(TypeError, match="'b' is not for each"):
        _ = seeds - networks
