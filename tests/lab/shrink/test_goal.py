"""What is asked of a search, and which size it tries next."""

import math

import pytest

from explainfix.explanation.kind import list_saliencies
from explainfix.lab.shrink.goal import Asked, Done, End, Try, images_needed, next_move


def play(asked, good, measure=lambda knob: knob):
    """All rounds of a search in which `good(cost)` says whether a network loses little enough."""
    done = []
    while isinstance(move := next_move(asked, done), Try):
        cost = measure(move.knob) if asked.cost in ("latency", "memory") else move.aim
        done.append(Done(move.knob, cost, good(cost)))
        assert len(done) < 50
    return done, move


def test_equal_steps_lead_to_the_target():
    done, end = play(Asked(params=0.2, step=0.6), lambda cost: True)
    assert [each.cost for each in done] == pytest.approx([0.2 ** (n / 4) for n in range(1, 5)])
    assert end == End(True, "0.20 of the parameters, as was asked for")


def test_a_target_within_one_step_is_one_round():
    done, _ = play(Asked(macs=0.7), lambda cost: True)
    assert [each.cost for each in done] == [0.7]


def test_without_a_target_it_goes_on_while_the_loss_allows():
    done, end = play(Asked(max_loss=0.01), lambda cost: cost > 0.3)
    assert end.reached
    assert "more than 0.01 is lost" in end.why
    best = min(each.cost for each in done if each.good)
    assert 0.3 < best < 0.3 * 1.1 * 1.1


def test_a_failed_round_goes_half_way_back_and_begins_at_the_last_good_one():
    failed = [Done(0.6, 0.6, True), Done(0.36, 0.36, False)]
    move = next_move(Asked(max_loss=0.01, params=0.1), failed)
    assert move.parent == 0
    assert move.aim == pytest.approx(math.sqrt(0.6 * 0.36))


def test_a_target_beyond_what_may_be_lost_is_not_reached():
    done, end = play(Asked(max_loss=0.01, params=0.1), lambda cost: cost > 0.5)
    assert not end.reached
    assert min(each.cost for each in done if each.good) > 0.5


def test_what_is_measured_follows_multiply_adds_by_a_power_that_is_learned():
    """Half of the multiply-adds take 0.7 of the time: the target is met all the same."""
    done, end = play(Asked(latency=0.4), lambda cost: True, measure=lambda knob: knob**0.5)
    assert end.reached
    assert 0.36 < done[-1].cost <= 0.4
    assert len(done) <= 5


def test_time_that_does_not_change_does_not_go_on_for_ever():
    done, end = play(Asked(latency=0.4, rounds=6), lambda cost: True, measure=lambda knob: 0.9)
    assert not end.reached
    assert len(done) == 6
    assert end.why == "6 rounds were done (--rounds)"


def test_the_smallest_network_is_the_end():
    move = next_move(Asked(params=0.01), [Done(0.05, 0.05, True, smallest=True)])
    assert move == End(False, "no channel is left to go at 0.05 of the parameters")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "how far"),
        ({"latency": 0.3, "params": 0.2}, "one target, not latency and params"),
        ({"params": 1.5}, "params must be above 0 and below 1, .* not 1.5"),
        ({"max_loss": 0}, "max_loss must be above 0"),
        ({"max_loss": 0.01, "distil": 0.0}, "distil must be above 0 and at most 1, not 0.0"),
        ({"max_loss": 0.01, "step": 1.0}, r"step must be from 0.1 to 0.95, not 1.0"),
        ({"max_loss": 0.01, "epochs": 0}, "epochs must be at least 1, not 0"),
        ({"max_loss": 0.01, "rate": 0.0}, "rate must be above 0, a share .*, not 0.0"),
        ({"max_loss": 0.01, "ranking": "magnitud"}, "did you mean 'magnitude'"),
        ({"max_loss": 0.01, "runtime": "onx"}, "did you mean 'onnx'"),
    ],
)
def test_what_cannot_be_asked_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        Asked(**options)


def test_four_times_the_images_halve_an_interval():
    assert images_needed(100, 0.02, 0.01) == 400


def test_the_help_names_every_ranking():
    assert all(kind in Asked.__doc__ for kind in list_saliencies())
