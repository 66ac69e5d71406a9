import numpy as np
import pytest
import torch

import explainfix as xf
from explainfix.report.heatmap import main_shapes, plot_frequencies
from explainfix.report.sheets import (
    filters_at,
    plot_basis,
    plot_ghaar_construction,
    plot_psine_steering,
    plot_resolutions,
)


@pytest.fixture(scope="module")
def efficientnet():
    model = xf.create_model("torchvision:efficientnet_b0")
    return xf.explain(model, title="EfficientNet-b0")


def test_two_shapes_share_the_columns(efficientnet, tmp_path):
    figure = efficientnet.plot()
    pictures = [image for axes in figure.axes for image in axes.images]
    three, five = (np.ma.filled(image.get_array().astype(float), np.nan) for image in pictures[:2])
    assert (three.shape, five.shape) == ((9, 17), (25, 17))
    has_three = [layer.shape == (3, 3) for layer in efficientnet.layers.values()]
    assert (~np.isnan(three).any(0)).tolist() == has_three
    assert np.isnan(five).all(0).tolist() == has_three
    first = next(iter(efficientnet))
    np.testing.assert_allclose(three[:, 0], efficientnet[first].ed)
    for suffix in (".png", ".svg", ".pdf"):
        figure.savefig(tmp_path / f"figure{suffix}")
        assert (tmp_path / f"figure{suffix}").stat().st_size > 5000


def test_per_layer_columns_sum_to_one(efficientnet):
    figure = efficientnet.plot(per_layer=True)
    pictures = [image.get_array() for axes in figure.axes for image in axes.images][:2]
    sums = np.nansum(np.ma.filled(np.ma.concatenate(pictures).astype(float), np.nan), axis=0)
    np.testing.assert_allclose(sums, 1)


def test_names_below_the_columns_leave_room_for_them():
    """Networks that nest their modules, such as MONAI's U-Net, name a layer in sixty letters."""
    why = xf.explain(xf.create_model("monai:UNet/2d"))
    labels = [label.get_text() for label in why.plot().axes[2].get_xticklabels()]
    assert labels == ["model.0", "model.1", "model.2"]
    nested = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.Conv2d(1, 1, 3))
    why = xf.explain(torch.nn.ModuleDict({"a_long_name_for_the_trunk": nested}))
    assert [label.get_text() for label in why.plot().axes[2].get_xticklabels()] == ["0", "1"]


def test_a_single_stem_is_left_out_unless_asked_for():
    why = xf.explain(xf.create_model("torchvision:resnet18"))
    assert main_shapes(why) == [(3, 3)]
    assert why.plot(shapes=[(7, 7)]).axes[2].images[0].get_array().shape == (49, 1)


def test_bars_of_frequencies_per_model(efficientnet):
    axes = plot_frequencies([efficientnet, efficientnet]).axes[0]
    heights = [bar.get_height() for bar in axes.patches if bar.get_height()]
    assert sum(heights[:3]) == pytest.approx(1)
    with pytest.raises(ValueError, match="none of the explanations has 9x9 kernels"):
        plot_frequencies([efficientnet], (9, 9))


@pytest.mark.parametrize("shape", [(3, 3), (5, 5), (2, 4)])
def test_the_basis_is_numbered_low_to_high(shape):
    figure = plot_basis(shape)
    numbers = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert sorted(map(int, numbers)) == list(range(shape[0] * shape[1]))
    if shape == (3, 3):
        assert numbers == ["0", "1", "3", "2", "5", "6", "4", "7", "8"]  # in raster order


@pytest.mark.parametrize("method", ["ghaar", "psine"])
def test_a_kernel_samples_its_fine_filter(method):
    """Three of 19 fine points fall on the kernel's places; psine is normalised apart."""
    import explainfix.report.sheets as sheets

    coarse = filters_at(method, 3, 5, seed=1)
    kept, sheets._FINE = sheets._FINE, 19
    try:
        fine = filters_at(method, 3, 5, seed=1, fine=True)[:, ::9, ::9]
    finally:
        sheets._FINE = kept
    if method == "psine":
        fine = fine - (fine.max((1, 2), keepdims=True) + fine.min((1, 2), keepdims=True)) / 2
        fine /= np.sqrt((fine**2).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(fine, coarse, atol=1e-9)


def test_the_figures_of_the_methods_draw():
    for figure in (
        plot_resolutions("ghaar"),
        plot_resolutions("psine"),
        plot_psine_steering(),
        plot_ghaar_construction(),
    ):
        assert all(len(axes.images) == 1 for axes in figure.axes)


def test_the_explanation_plots_with_saliency():
    model = xf.create_model("unetd")
    why = xf.explain(model, saliency=xf.saliency(model, [torch.randn(1, 3, 32, 32)]))
    assert "Weighted by saliency over 1 batch" in why.plot().axes[0].get_title(loc="left")
