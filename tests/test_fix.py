import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.fix import method_options, overflow_risk
from explainfix.recipe import can_regenerate, digest, recipe_of, regenerate
from explainfix.zoo.unetd import UNetD

METHODS = xf.list_filters()


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def frozen(model):
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def kernel_names(model):
    return {f"{path}.weight" for path in xf.spatial_layers(model)}


@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    def test_kernels_of_any_kind_are_set_frozen_and_reproduced(self, every_convolution, method):
        xf.fix_(every_convolution, method)
        xf.check_fixed(every_convolution)
        for layer in xf.spatial_layers(every_convolution).values():
            assert layer.weight.isfinite().all()
            assert not layer.weight.requires_grad
            if can_regenerate(recipe_of(layer)):
                assert torch.equal(regenerate(recipe_of(layer)), layer.weight)

    def test_nothing_else_is_touched(self, every_convolution, method):
        model = every_convolution
        model["norm"].weight.requires_grad_(False)
        model.eval()
        model["norm"].train()
        generator = torch.get_rng_state()
        before, modes = state(model), [module.training for module in model.modules()]
        xf.fix_(model, method)
        for name, tensor in model.state_dict().items():
            if name not in kernel_names(model):
                assert torch.equal(tensor, before[name])
        assert frozen(model) == kernel_names(model) | {"norm.weight"}
        assert [module.training for module in model.modules()] == modes
        assert torch.equal(torch.get_rng_state(), generator)
        assert list(model.state_dict()) == list(before)

    def test_kernels_depend_on_seed_and_path_alone(self, method):
        model = UNetD()
        whole = xf.fix_(copy.deepcopy(model), method, seed=3).digests
        part = copy.deepcopy(model)
        torch.manual_seed(99)
        late = xf.fix_(part, method, seed=3, layers="decoder.*").digests
        assert late.items() <= whole.items()
        again = copy.deepcopy(model)
        assert xf.fix_(again, method, seed=3).digests == whole

    def test_another_seed_gives_other_kernels(self, method):
        model = UNetD()
        first = xf.fix_(copy.deepcopy(model), method, seed=0).digests
        second = xf.fix_(copy.deepcopy(model), method, seed=1).digests
        differ = [first[path] != second[path] for path in first]
        assert not any(differ) if method in ("ones", "unchanged") else all(differ)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
    def test_other_precisions(self, method, dtype):
        model = UNetD().to(dtype)
        xf.fix_(model, method)
        xf.check_fixed(model)
        assert {p.dtype for p in model.parameters()} == {dtype}

    def test_channels_last_is_kept_and_changes_nothing(self, method):
        model = UNetD()
        other = copy.deepcopy(model).to(memory_format=torch.channels_last)
        first, second = xf.fix_(model, method), xf.fix_(other, method)
        assert first == second
        kernel = other.decoder[0].before[0].weight
        assert kernel.is_contiguous(memory_format=torch.channels_last)

    def test_scaled_kernels_keep_their_direction(self, every_convolution, method):
        plain = copy.deepcopy(every_convolution)
        xf.fix_(plain, method)
        xf.fix_(every_convolution, method, scale="fan_in")
        xf.check_fixed(every_convolution)
        for path, layer in xf.spatial_layers(every_convolution).items():
            gain = recipe_of(layer).gain
            assert 0 < gain < 10
            torch.testing.assert_close(layer.weight, plain[path].weight * gain)

    def test_training_leaves_the_kernels_alone(self, method):
        model = UNetD()
        for parameter in model.parameters():  # stale gradients and momentum
            parameter.grad = torch.ones_like(parameter)
        xf.fix_(model, method)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        before = state(model)
        for _ in range(2):
            optimizer.step()
            optimizer.zero_grad()
            model(torch.randn(2, 3, 32, 32)).square().mean().backward()
        xf.check_fixed(model)
        assert not torch.equal(before["head.weight"], model.head.weight)


@pytest.mark.parametrize(
    ("method", "options"),
    [(m, {o: v}) for m in METHODS for o, values in method_options(m).items() for v in values],
)
def test_every_option_works_and_is_remembered(method, options):
    model = UNetD()
    recipe = xf.fix_(model, method, **options)
    assert recipe.options == options
    assert {r.options == options for r in xf.recipes(model).values()} == {True}


# Kernels must be the same for ever, on every machine, or the recipes in files are worth nothing.
GOLDEN = {
    "covariance": "7c248a7cc7d5eb9ea5075c5b1ba25045",
    "dct2": "1a95124055489b71b19e197d5d9c9e29",
    "ghaar": "978cd16e5ba6cfc1db10bf974c7cdfe8",
    "masterkeys": "c51611c533772c76685836e91ae2200b",
    "ones": "1c96ee5ca754d75ca1d794bf0d8d787f",
    "psine": "997adc63bcb5c0c0921584075dabed91",
}


@pytest.mark.parametrize("method", [m for m in METHODS if m in GOLDEN])
def test_bits_never_change(method):
    model = nn.ModuleDict({"a": nn.Conv2d(3, 300, 7), "b": nn.ConvTranspose3d(4, 5, (1, 2, 3))})
    xf.fix_(model.double(), method, seed=7)
    together = torch.cat([layer.weight.flatten() for layer in model.values()])
    assert digest(together) == GOLDEN[method]


def test_the_bits_of_the_guide_that_ships_never_change():
    model = nn.ModuleDict(
        {"a": nn.Conv2d(3, 300, 7), "b": nn.Conv2d(4, 5, 3), "c": nn.Conv2d(9, 9, 5, groups=9)}
    )
    xf.fix_(model.double(), "guidedsteer", guide="imagenet", seed=7)
    together = torch.cat([layer.weight.flatten() for layer in model.values()])
    assert digest(together) == "c9522d863a0ae138119b0749b23bc744"


def test_methods_that_start_from_a_model_are_the_ones_not_regenerated():
    model = nn.Conv2d(3, 3, 3)
    for method in METHODS:
        xf.fix_(model, method)
        assert can_regenerate(recipe_of(model)) == (method in GOLDEN)


def test_the_number_of_threads_changes_no_bit():
    """GuidedSteer multiplies matrices, large enough here that BLAS would share the work."""
    program = """
import torch, explainfix as xf
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 11), torch.nn.Conv2d(64, 64, 3))
print([xf.fix_(model, m, seed=1).digests for m in ("guidedsteer", "psine", "ghaar", "dct2")])
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "OPENBLAS_NUM_THREADS": n, "OMP_NUM_THREADS": n},
            capture_output=True, text=True, check=True,
        ).stdout
        for n in ("1", "2")
    }  # fmt: skip
    assert len(printed) == 1


class TestFixedStateSurvives:
    @pytest.fixture
    def model(self):
        model = UNetD()
        xf.fix_(model, "ghaar", seed=5, layers="encoder.*")
        xf.fix_(model, "unchanged", layers="decoder.*")
        return model

    def test_deepcopy(self, model):
        twin = copy.deepcopy(model)
        xf.check_fixed(twin)
        assert xf.recipes(twin) == xf.recipes(model)
        with torch.no_grad():
            twin.encoder[0][0][3].weight.add_(1)
        xf.check_fixed(model)
        with pytest.raises(ValueError, match=r"1 of 16 fixed layers changed: 'encoder.0.0.3'"):
            xf.check_fixed(twin)

    def test_a_twin_carries_its_own_recipe(self, model):
        twin = copy.deepcopy(model)
        xf.fix_(twin, "psine")
        twin.load_state_dict(model.state_dict())  # its hooks are its own: the twin is changed
        assert xf.recipes(twin) == xf.recipes(model)
        xf.check_fixed(twin)

    def test_state_dict_through_a_file(self, model, tmp_path):
        torch.save(model.state_dict(), tmp_path / "state.pth")
        loaded = torch.load(tmp_path / "state.pth", weights_only=True)
        fresh = xf.create_model("unetd")
        fresh.load_state_dict(loaded)
        assert xf.recipes(fresh) == xf.recipes(model)
        assert frozen(fresh) == kernel_names(fresh)
        xf.check_fixed(fresh)

    @pytest.mark.parametrize("wrap", [lambda m: m, lambda m: nn.Sequential(nn.ReLU(), m)])
    @pytest.mark.parametrize("wrong", ["missing", "unexpected", "shape", "raises"])
    def test_a_load_that_fails_fixes_nothing(self, model, wrap, wrong):
        fresh = xf.create_model("unetd", num_classes=3 if wrong == "shape" else 1)
        fresh, loaded = wrap(fresh), wrap(model).state_dict()
        if wrong == "missing":
            del loaded[list(loaded)[-1]]
        elif wrong == "unexpected":
            loaded["zzz"] = torch.zeros(1)
        elif wrong == "raises":
            last = list(fresh.modules())[-1]
            last.register_load_state_dict_pre_hook(lambda *_: 1 / 0)
        with pytest.raises((RuntimeError, ZeroDivisionError)):
            fresh.load_state_dict(loaded)
        assert not xf.recipes(fresh)
        assert all(parameter.requires_grad for parameter in fresh.parameters())
        if wrong in ("missing", "unexpected"):
            fresh.load_state_dict(loaded, strict=False)
            assert len(xf.recipes(fresh)) == 16
        elif wrong == "raises":  # what still waited does not come with the next load
            last._load_state_dict_pre_hooks.clear()
            fresh.load_state_dict(wrap(UNetD()).state_dict())
            assert not xf.recipes(fresh)

    def test_loading_a_part_or_by_a_loader_of_ones_own(self, model):
        fresh = xf.create_model("unetd")
        fresh.encoder.load_state_dict(model.encoder.state_dict())
        assert set(xf.recipes(fresh)) == {p for p in xf.recipes(model) if "encoder" in p}
        layer, loaded = fresh.decoder[0].before[3], model.decoder[0].before[3].state_dict()
        layer._load_from_state_dict(loaded, "", loaded._metadata[""], True, [], [], [])
        assert recipe_of(layer) == recipe_of(model.decoder[0].before[3])
        twin = copy.deepcopy(fresh)
        twin.load_state_dict(model.state_dict(), assign=True)
        xf.check_fixed(twin)
        assert frozen(twin) == kernel_names(twin)

    def test_state_dict_has_no_more_keys(self, model):
        assert list(model.state_dict()) == list(UNetD().state_dict())

    def test_a_state_without_recipes_is_checked_against_the_models_own(self, model):
        model.load_state_dict(UNetD().state_dict())
        with pytest.raises(ValueError, match=r"16 of 16 fixed layers changed.*and 11 more"):
            xf.check_fixed(model)

    def test_wrapping_and_taking_apart(self, model):
        xf.check_fixed(nn.Sequential(nn.Identity(), model))
        xf.check_fixed(model.encoder)

    def test_wider_floats_are_the_same_kernels_and_narrower_are_not(self, model):
        xf.check_fixed(model.double())
        with pytest.raises(ValueError, match="now float16, fixed in float32"):
            xf.check_fixed(model.half())

    def test_pickling_the_module(self, model, tmp_path):
        torch.save(model, tmp_path / "whole.pth")
        xf.check_fixed(torch.load(tmp_path / "whole.pth", weights_only=False))

    def test_unfix(self, model):
        kernels = state(model)
        xf.unfix_(model, "encoder.*")
        assert set(xf.recipes(model)) == {p for p in xf.spatial_layers(model) if "decoder" in p}
        assert frozen(model) == {n for n in kernel_names(model) if "decoder" in n}
        assert all(torch.equal(kernels[n], t) for n, t in model.state_dict().items())

    def test_an_exported_program_gives_the_same_numbers(self, model):
        image = torch.randn(1, 3, 32, 32)
        exported = torch.export.export(model.eval(), (image,)).module()
        torch.testing.assert_close(exported(image), model(image))


def test_fixing_again_replaces_the_recipe():
    model = nn.Conv2d(3, 3, 3)
    xf.fix_(model, "psine")
    xf.fix_(model, "ghaar", seed=2)
    assert recipe_of(model).method == "ghaar"
    xf.check_fixed(model)


def test_tied_weights_are_fixed_once():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    model[1].weight = model[0].weight
    assert list(xf.fix_(model, "ghaar").digests) == ["0"]
    xf.check_fixed(model)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (["gharr"], {}, ValueError, r"'gharr': did you mean 'ghaar'.*explainfix list filters"),
        (
            ["ghaar"],
            {"frequency": "shared"},
            ValueError,
            "'ghaar' option 'frequency': did you mean",
        ),
        (["ghaar"], {"frequencies": "share"}, ValueError, "value 'share': did you mean 'shared'"),
        (["guidedsteer"], {"centred": "yes"}, ValueError, "'yes'"),
        (["guidedsteer"], {"centred": 1}, ValueError, "1"),
        (["ones"], {"anything": 1}, ValueError, "'anything'"),
        (["ghaar"], {"scale": "fanin"}, ValueError, "'fanin': did you mean 'fan_in'"),
        (["ghaar"], {"seed": 1.5}, TypeError, "seed must be an integer, not 1.5"),
        (["ghaar"], {"seed": "0"}, TypeError, "seed must be an integer, not '0'"),
        (["ghaar"], {"seed": None}, TypeError, "seed must be an integer, not None"),
        (["ghaar"], {"guide": nn.Conv2d(1, 1, 3)}, ValueError, "'ghaar' takes no guide"),
        (["ghaar"], {"layers": ["encodr.*"]}, ValueError, "'encodr.*'"),
        (["guidedsteer"], {"guide": nn.Conv2d(1, 1, 5)}, ValueError, "no 3x3 kernels.*it has 5x5"),
        (["guidedsteer"], {"own": 1}, ValueError, "'own'"),
        (["guidedsteer"], {"guide": "imagnet"}, ValueError, "'imagnet': did you mean 'imagenet'"),
        (["ghaar"], {"guide": "imagenet"}, ValueError, "'ghaar' takes no guide"),
        (
            ["guidedsteer"],
            {"guide": "imagenet", "sampling": "kde"},
            ValueError,
            "samples jointly, not by sampling='kde'",
        ),
    ],
)
def test_mistakes_are_told_and_change_nothing(arguments, options, error, message):
    model = UNetD()
    before = state(model)
    with pytest.raises(error, match=message):
        xf.fix_(model, *arguments, **options)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert not frozen(model)
    assert not xf.recipes(model)


def test_a_failure_in_a_late_layer_changes_no_early_one():
    model = UNetD()
    with torch.no_grad():
        model.decoder[3].after[3].weight[0] = float("nan")
    with pytest.raises(ValueError, match=r"'unchanged' gives layer 'decoder.3.after.3' NaN"):
        xf.fix_(model, "unchanged")
    assert not frozen(model)
    assert not xf.recipes(model)


def test_checking_a_model_that_is_not_fixed_is_a_mistake():
    with pytest.raises(ValueError, match="no layer of this UNetD is fixed: call fix_ first"):
        xf.check_fixed(UNetD())


def test_numpy_integers_are_integers():
    import numpy as np

    assert xf.fix_(nn.Conv2d(1, 1, 3), "ghaar", seed=np.int64(3)).seed == 3


def test_progress_sees_every_layer():
    seen = []

    def watch(paths):
        for path in paths:
            seen.append(path)
            yield path

    model = UNetD()
    xf.fix_(model, "ones", progress=watch)
    assert seen == list(xf.spatial_layers(model))


class TestOverflowRisk:
    def test_what_it_says(self):
        convolution = nn.Conv2d(3, 4, 3)
        assert "no normalisation" in overflow_risk(nn.Sequential(convolution, nn.ReLU()))
        fresh = nn.Sequential(convolution, nn.BatchNorm2d(4))
        assert "has not seen data" in overflow_risk(fresh)
        fresh(torch.randn(2, 3, 8, 8))
        assert overflow_risk(fresh) == ""
        for norm in (
            nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False),
        ):  # fmt: skip
            assert overflow_risk(nn.Sequential(convolution, norm)) == ""
