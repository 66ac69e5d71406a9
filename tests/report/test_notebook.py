"""Results show themselves: a short repr, a card in a notebook, a figure that is drawn once."""

import re
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.explanation import Thresholds, check
from explainfix.watch import Watch

HOSTILE = "<script>alert(1)</script>"


def results():
    """One of every kind."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    other = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    image = torch.randn(1, 1, 9, 9)
    scores = xf.saliency(model, [image])
    yield "Saliency", scores
    yield "Explanation", xf.explain(model, saliency=scores, title="small")
    yield "Comparison", xf.compare(model, other)
    yield "CheckReport", check(model, thresholds=Thresholds(idle=0, idle_norm=1))
    yield "PruneReport", xf.channel_prune_(model, image, scores, zero=0.5)
    yield "Recipe", xf.fix_(other, "ghaar", seed=3)
    yield "Timeline", Watch(other).timeline
    yield "SteerReport", xf.steer_(nn.Sequential(nn.Conv2d(4, 4, 3)), energy=0.9)


class Balanced(HTMLParser):
    """Fails if a tag is closed that is not open, and knows what is left open."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("place", range(8))
def test_every_result_shows_itself(place):
    name, result = list(results())[place]
    assert type(result).__name__ == name
    said = repr(result)
    assert len(said.splitlines()) <= 3
    assert max(map(len, said.splitlines())) <= 140
    assert "tensor(" not in said
    parser = Balanced()
    parser.feed(result._repr_html_())
    assert parser.open == []
    assert parser.seen >= {"div", "style", "p", "table"}
    assert not parser.seen & {"script", "iframe", "html", "link"}


def test_styles_reach_nothing_outside_the_card():
    _, result = next(results())
    style = re.search(r"<style>(.*?)</style>", result._repr_html_(), flags=re.DOTALL)[1]
    rules = re.findall(r"([^{}]+)\{", style)
    assert rules
    assert all(rule.strip().startswith(".xf-card") for rule in rules)


def test_names_stay_text():
    model = nn.ModuleDict({HOSTILE.replace(".", ""): nn.Conv2d(1, 2, 3), "b": nn.Conv2d(1, 2, 3)})
    for result in (
        xf.explain(model, title=HOSTILE),
        xf.compare(model, model, titles=(HOSTILE, "b")),
    ):
        shown = result._repr_html_()
        assert "<script" not in shown
        assert "&lt;script&gt;alert(1)" in shown


def test_a_long_table_is_cut_and_it_is_said():
    model = nn.Sequential(*[nn.Conv2d(2, 2, 3) for _ in range(40)])
    shown = xf.explain(model)._repr_html_()
    assert shown.count("<tr>") == 1 + 12
    assert "and 28 more; .table() has all" in shown
    assert len(shown) < 60_000


def test_colours_part_at_chance():
    """A layer of one filter: its row is orange, those it does not use are blue."""
    model = nn.Sequential(nn.Conv2d(1, 3, 3))
    model[0].weight.data.fill_(1.0)
    colours = re.findall(r'fill="(#\w+)"', xf.explain(model)._repr_html_())
    assert colours == ["#d6601c"] + ["#2669b2"] * 8


def test_a_plot_is_shown_once():
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    figure = xf.explain(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3))).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == before  # pyplot would draw it a second time
