"""The page of a search: what is in its text, and how it behaves in a real browser."""

import json
import re
from pathlib import Path

import pytest

from explainfix.lab.measure.timing import Ratio
from explainfix.lab.run.metrics import Score
from explainfix.lab.shrink.cost import Costs
from explainfix.lab.shrink.goal import Asked, End
from explainfix.lab.shrink.outcome import OnTest, Shrunk
from explainfix.lab.shrink.page import page_data, render
from explainfix.lab.shrink.rounds import Layer, Round, read_round, write_round

HOSTILE = """</script><script>alert(1)</script><!-- "quoted" & 'single' <b>"""


def network(number, share, change, parent=0, path="encoder.0"):
    shares = {"latency": share**0.5, "params": share, "macs": share, "memory": share**0.8}
    costs = Costs(
        Ratio(share, share, share), 0.01 * share, 0.01, int(1000 * share), 10, 100, shares
    )
    left = max(1, round(16 * share))
    spectrum = tuple(1 / 9 for _ in range(9))
    layers = {path: Layer(3, left, 27 * left, spectrum), "head": Layer(left, 1, left)}
    return Round(
        number, parent, f"runs/net-{number}", "even" if number else "as it is", share, share,
        0.8 + change, Score("dice", change, change - 0.01, change + 0.01), costs, layers,
        {"even": 0.5, "worth": 0.6} if number else {}, seconds=3.0,
    )  # fmt: skip


def search(**changes):
    rounds = (
        network(0, 1.0, 0.0), network(1, 0.6, 0.01), network(2, 0.36, -0.004, 1),
        network(3, 0.2, -0.05, 2),
    )  # fmt: skip
    tested = OnTest("test", 50, Score("dice", 0.8, 0.7, 0.9), Score("dice", 0.79, 0.7, 0.9),
                    Score("dice", -0.01, -0.02, 0.003))  # fmt: skip
    given = {"folder": Path("runs/x"), "title": "unetd-nuclei", "lr": 0.008, "rounds": rounds,
             "chosen": 2, "asked": Asked(max_loss=0.01), "end": End(True, "more is lost"),
             "tested": tested}  # fmt: skip
    return Shrunk(**given | changes)


def embedded(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script', page)[1]
    )


def test_it_says_what_was_found():
    said = str(search())
    assert said == (
        "0.60 of the latency, 0.36 of the parameters, 0.36 of the multiply-adds, 0.44 of the "
        "memory, Dice -0.010 (-0.020 to +0.003) on test"
    )
    assert repr(search()) == f"Shrunk: {said}"
    page = render(page_data(search()))
    assert said in page
    assert "explainfix shrink runs/net-2 --epochs 10 --lr 0.008 --max-loss 0.01" in page
    taught = search(asked=Asked(max_loss=0.01, distil=0.5))
    assert "--lr 0.008 --distil 0.5 --max-loss 0.01" in render(page_data(taught))
    assert "0.5 of its loss being the distance to the original" in render(page_data(taught))
    doubled = render(page_data(search(asked=Asked(max_loss=0.01, rate=2.0))))
    assert "--lr 0.008 --rate 2 --max-loss 0.01" in doubled
    assert "10 epochs at 2 times the rate of training" in doubled
    missed = search(end=End(False, "latency 0.3 was not reached"))
    assert "Not all that was asked for" in render(page_data(missed))
    nothing = search(chosen=0, tested=None)
    assert str(nothing) == "No smaller network was found: more is lost."
    assert not nothing.reached


def test_hostile_names_stay_text():
    hostile = search(title=HOSTILE, rounds=(network(0, 1.0, 0.0, path=HOSTILE),), chosen=0)
    page = render(page_data(hostile))
    assert "<script>alert" not in page
    assert HOSTILE in embedded(page)["rounds"][0]["layers"]


def test_nothing_is_fetched():
    page = render(page_data(search()))
    assert [u for u in re.findall(r"https?://[^\s\"'<>%]+", page) if "w3.org" not in u] == []


def test_a_round_comes_back_from_disk_as_it_was(tmp_path):
    one = network(2, 0.3, -0.01, 1)
    write_round(tmp_path / "round-02", one)
    assert read_round(tmp_path / "round-02") == one
    assert read_round(tmp_path / "round-03") is None


@pytest.fixture
def page(open_file, tmp_path):
    search().to_html(tmp_path / "page.html")
    return open_file(tmp_path / "page.html")


def middle(page, number):
    box = page.locator(f"[data-point='{number}'] circle").nth(1).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_points_lie_at_their_costs_and_scores(page):
    places = [middle(page, number) for number in range(4)]
    assert [x for x, _ in places] == sorted((x for x, _ in places), reverse=True)
    assert places[1][1] < places[0][1] < places[2][1] < places[3][1]  # better is higher
    latency = places[3][0] - places[0][0]
    page.locator("#cost").get_by_text("parameters").click()
    assert page.locator("#cost-name").inner_text() == "parameters"
    smaller = middle(page, 3)[0] - middle(page, 0)[0]
    assert smaller / latency == pytest.approx((1 - 0.2) / (1 - 0.2**0.5), rel=0.03)


def test_the_chosen_one_is_marked_and_what_lost_too_much_too(page):
    kinds = [page.locator(f"[data-point='{n}']").get_attribute("class") for n in range(4)]
    assert kinds == ["point good", "point good", "point chosen", "point bad"]
    assert page.locator("tr", has_text="chosen").get_attribute("data-round") == "2"


def test_a_point_opens_what_went_and_how_to_go_on(page):
    detail = page.locator("#detail")
    assert detail.is_hidden()
    page.locator("[data-point='2']").click()
    text = detail.inner_text()
    assert "Round 2" in text
    assert 'cut by "even" from round 1' in text
    assert "6 of 16" in text
    assert "explainfix shrink runs/net-2" in text
    assert detail.locator(".bars").count() == 2  # before and after
    assert page.evaluate("document.activeElement.id") == "detail"
    page.keyboard.press("Escape")
    assert detail.is_hidden()
    assert page.evaluate("document.activeElement.dataset.point") == "2"


def test_keys_and_the_table_open_it_as_well(page):
    page.locator("[data-point='3']").focus()
    page.keyboard.press("Enter")
    assert page.locator("#detail-title").inner_text() == "Round 3"
    page.locator("[data-open='0']").click()
    assert page.locator("#detail-title").inner_text() == "The original"
    page.locator("#close").click()
    assert page.locator("#detail").is_hidden()


@pytest.mark.parametrize("width", [1280, 380])
def test_it_does_not_scroll_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("[data-open='2']").click()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
