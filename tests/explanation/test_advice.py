import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.explanation.advice import stage_of, zeroing_curve


def blocks():
    """Three stages of six layers, as in a network of dense blocks."""
    torch.manual_seed(0)
    stage = {f"block{b}": nn.Sequential(*[nn.Conv2d(8, 8, 3) for _ in range(6)]) for b in range(3)}
    return nn.ModuleDict({"features": nn.ModuleDict(stage)})


def saliency(model, of):
    layers = xf.spatial_layers(model)
    return {p: of(n) * torch.rand(8, 8).add(0.5) for n, p in enumerate(layers)}


def said(why, kind):
    return [advice for advice in why.advice() if advice.kind == kind]


def test_stages_that_tail_off_are_named():
    model = blocks()
    why = xf.explain(model, saliency=saliency(model, lambda n: 4.0 ** -(n % 6)))
    (advice,) = said(why, "stages")
    assert "In 3 of 3 stages" in advice.text
    assert "features.block1" in advice.text
    assert advice.figure < advice.threshold == 0.5


def test_even_stages_are_not():
    model = blocks()
    why = xf.explain(model, saliency=saliency(model, lambda n: 1.0))
    assert not said(why, "stages")
    assert not said(why, "layers")


def test_idle_layers_are_named_with_their_share_and_parameters():
    model = blocks()
    why = xf.explain(model, saliency=saliency(model, lambda n: 0.001 if n in (3, 7) else 1.0))
    (advice,) = said(why, "layers")
    assert "2 of 18 spatial layers carry less than 1.4% of the saliency each" in advice.text
    assert "features.block0.3, features.block1.1" in advice.text
    assert "1,152 parameters" in advice.text


@pytest.mark.parametrize("basis", ["dct2", "haar", "pca"])
def test_a_network_that_passes_no_brightness_is_told(basis):
    model = nn.Sequential(nn.Conv2d(4, 8, 4), nn.Conv2d(8, 8, 4))
    xf.fix_(model, "psine", centre="mean")
    found = said(xf.explain(model, basis=basis), "brightness")
    assert len(found) == (basis != "pca")  # which has no constant filter
    xf.fix_(model, "psine", layers="1")
    assert not said(xf.explain(model, basis=basis), "brightness")


@pytest.mark.parametrize(
    ("method", "title"),
    [("ghaar", "Low frequencies are favoured"), ("dct2", "No frequency is favoured")],
)
def test_frequencies(method, title):
    model = blocks()
    xf.fix_(model, method)
    (advice,) = said(xf.explain(model), "frequency")
    assert advice.title == title
    assert f"{advice.figure:.0%} of a layer's energy" in advice.text
    assert advice.threshold == pytest.approx(1 / 3, abs=0.01)


def test_high_frequencies():
    model = nn.Sequential(nn.Conv2d(4, 4, 3))
    checkers = torch.tensor([[1.0, -1, 1], [-1, 1, -1], [1, -1, 1]])
    model[0].weight.data.copy_(checkers.expand(4, 4, 3, 3))
    (advice,) = said(xf.explain(model), "frequency")
    assert advice.title == "High frequencies are favoured"


def test_without_data_it_says_so():
    assert "Give data" in xf.explain(blocks()).advice()[-1].title
    model = blocks()
    assert not said(xf.explain(model, saliency=saliency(model, lambda n: 1.0)), "data")


class TestZeroing:
    def test_by_hand(self):
        scores = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor([[10.0] * 6])}
        half, *_, last = zeroing_curve(scores, {"a": (3, 3), "b": (5, 5)})
        assert (half.share, half.kernels) == (0.5, 5)
        assert half.parameters == 4 * 9 + 25
        assert half.saliency_lost == pytest.approx(20 / 70)
        assert half.empty_layers == 1
        assert (last.kernels, last.empty_layers) == (9, 1)

    def test_what_can_go_is_said_with_figures(self):
        model = blocks()
        scores = saliency(model, lambda n: 1.0)
        for value in scores.values():
            value.flatten()[:60] = 1e-6
        (advice,) = said(xf.explain(model, saliency=scores), "zeroing")
        assert advice.title == "Most kernels are not needed"
        assert "The least salient 90% of the kernels, 1,036 with 9,324 parameters" in advice.text
        assert advice.figure < 0.05

    def test_or_cannot(self):
        model = blocks()
        (advice,) = said(xf.explain(model, saliency=saliency(model, lambda n: 1.0)), "zeroing")
        assert advice.title == "Most kernels are in use"


def test_stages_of_real_networks():
    stages = stage_of(list(xf.spatial_layers(xf.create_model("torchvision:densenet121"))))
    assert stages["features.denseblock2.denselayer3.conv2"] == "features.denseblock2"
    stages = stage_of(list(xf.spatial_layers(xf.create_model("torchvision:resnet18"))))
    assert stages["layer3.1.conv2"] == "layer3"
    assert stage_of(["conv"]) == {"conv": "conv"}


def test_little_is_left_to_learn_in_a_network_of_dense_layers():
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(2, 2))
    (advice,) = said(xf.explain(model), "learning")
    assert "2 dense spatial layers hold" in advice.text
    assert "would be left to learn" in advice.text
    xf.fix_(model, "ghaar")
    (advice,) = said(xf.explain(model), "learning")
    assert "as they are fixed" in advice.text
    mixed = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 64, 1), nn.Linear(2, 2))
    assert not said(xf.explain(mixed), "learning")
    depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False))
    assert not said(xf.explain(depthwise), "learning")


def test_what_steering_would_save():
    layer = nn.Conv2d(8, 64, 3)
    model = nn.Sequential(layer)
    assert not said(xf.explain(model), "steering")  # random kernels use all frequencies
    layer.weight.data.copy_(torch.randn(64, 8, 1, 1).expand(64, 8, 3, 3))
    why = xf.explain(model)
    (advice,) = said(why, "steering")
    assert why.layers["0"].needed == 1
    assert why.layers["0"].steered == 8 * 9 + 64 * 8
    kept = xf.steer_(model, energy=0.95).params_kept
    assert f"would have {kept:.0%} of their weights" in advice.text


class TestWhatIsNotAdvised:
    @pytest.mark.parametrize("method", ["ghaar", "guidedsteer"])
    def test_a_rule_to_a_network_that_was_fixed(self, method):
        model = blocks()
        xf.fix_(model, method)
        why = xf.explain(model)
        assert not any("suit" in each.text for each in why.advice())
        assert not said(why, "chance")  # a rule is no chance
        (advice,) = said(why, "frequency")
        assert f"That is how they were fixed, by {method}." in advice.text

    def test_learned_layers_are_judged_without_the_fixed(self):
        model = blocks()
        xf.fix_(model, "ghaar", layers="features.block0.*")
        (advice,) = said(xf.explain(model), "frequency")
        assert advice.title == "No frequency is favoured"
        assert "a learned layer's energy" in advice.text
        (advice,) = said(xf.explain(model), "chance")
        assert "of 12 learned layers" in advice.text

    def test_a_rule_by_noise(self):
        """One layer of low frequencies beside many of noise."""
        model = blocks()
        model.features.block0[0].weight.data.fill_(1.0)
        for _, layer in zip(range(3), model.features.block1, strict=False):
            layer.weight.data.fill_(1.0)
        (advice,) = said(xf.explain(model), "frequency")
        assert advice.title == "Low frequencies are favoured"
        assert "layers look like noise: no rule is to be had from that" in advice.text
        assert "suit" not in advice.text

    def test_a_rule_by_what_is_learned(self):
        model = blocks()
        for layer in xf.spatial_layers(model).values():
            layer.weight.data += 0.2
        (advice,) = said(xf.explain(model), "frequency")
        assert "ghaar or guidedsteer, suit this network" in advice.text

    def test_anything_by_random_weights(self):
        model = xf.create_model("unetd")
        why = xf.explain(model, saliency=scores_of(model))
        assert why.untrained
        assert [each.kind for each in why.advice()] == ["untrained"]
        assert str(why.advice()[0]).startswith(
            "Random weights. This shows the initialisation, not what was learned."
        )
        with torch.no_grad():
            model.head.weight += 1
        assert not xf.explain(model).untrained

    def test_to_empty_most_layers(self):
        model = blocks()
        scores = saliency(model, lambda n: 10.0**-n)
        why = xf.explain(model, saliency=scores)
        (advice,) = said(why, "zeroing")
        assert advice.title == "The saliency is in few layers"
        assert "but empty 9 of 18 layers" in advice.text
        (advice,) = said(why, "layers")
        assert "no candidates for pruning" in advice.text

    def test_to_empty_no_layers(self):
        model = blocks()
        scores = saliency(model, lambda n: 1.0)
        for value in scores.values():
            value.flatten()[:60] = 1e-6
        (advice,) = said(xf.explain(model, saliency=scores), "zeroing")
        assert "empty" not in advice.text


def scores_of(model):
    return {p: torch.rand(each.weight.shape[:2]) for p, each in xf.spatial_layers(model).items()}
