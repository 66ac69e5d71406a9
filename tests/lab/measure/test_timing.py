"""Races tell ratios, and when they are known well enough."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from explainfix.lab.measure import timing
from explainfix.lab.measure.timing import Timing, take_turns, time_training


def test_ratios_are_paired_by_round():
    # A slow spell in round 2 hits both: the ratio stays 2.
    done = Timing({"base": [1.0, 9.0, 1.0], "other": [2.0, 18.0, 2.0]})
    assert (done.ratio("other").middle, done.ratio("other").low, done.ratio("other").high) == (
        2,
        2,
        2,
    )
    assert done.ratio("base", to="other").middle == 0.5
    assert done.seconds("other") == 2.0


def test_an_interval_holds_the_median_and_widens_with_the_spread():
    def width(spread):
        ratios = [1 + spread * (k % 5 - 2) for k in range(20)]
        ratio = Timing({"base": [1.0] * 20, "other": ratios}).ratio("other")
        assert ratio.low <= ratio.middle <= ratio.high
        return ratio.high - ratio.low

    assert width(0.0) == 0 < width(0.01) < width(0.1)


def test_contestants_take_turns_and_the_first_round_does_not_count():
    log = []
    done = take_turns(
        {"a": lambda: log.append("a"), "b": lambda: log.append("b")}, rounds=5, narrow=0
    )
    assert len(log) == 12
    assert all({*log[2 * k : 2 * k + 2]} == {"a", "b"} for k in range(6))
    assert log[:2] * 6 != log  # not always in the same order
    assert [len(times) for times in done.times.values()] == [5, 5]


def test_it_ends_when_ratios_are_narrow_or_time_is_up(monkeypatch):
    now = [0.0]

    def nap(seconds):
        now[0] += seconds

    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(timing, "time", clock)
    naps = {"short": lambda: nap(0.001), "long": lambda: nap(0.004)}
    done = take_turns(naps, rounds=40, narrow=2.0)
    assert len(done.times["long"]) == 7
    assert done.ratio("long").middle == pytest.approx(4)
    assert len(take_turns(naps, rounds=1000, narrow=0, seconds=0.022).times["long"]) == 4


def test_networks_race_and_learn_by_it():
    networks = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)}
    x = torch.rand(3, 4)

    def losses():
        with torch.no_grad():
            return [float(network(x).square().mean()) for network in networks.values()]

    before = losses()
    done = time_training(networks, x, rounds=9, narrow=0)
    assert [len(times) for times in done.times.values()] == [9, 9]
    assert all(after < once for after, once in zip(losses(), before, strict=True))
