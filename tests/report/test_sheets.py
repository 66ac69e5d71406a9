import numpy as np

from explainfix.report.sheets import plot_filters


def test_a_row_per_name_and_a_picture_per_kernel(tmp_path):
    kernels = {"two": np.random.default_rng(0).normal(size=(2, 3, 3)), "many": np.ones((50, 5, 5))}
    figure = plot_filters(kernels, columns=4)
    drawn = [len(axes.images) for axes in figure.axes]
    assert drawn == [1, 1, 0, 0, 1, 1, 1, 1]
    image = figure.axes[0].images[0]
    assert image.norm.vmin == -image.norm.vmax  # zero is white
    np.testing.assert_array_equal(image.get_array(), kernels["two"][0])
    figure.savefig(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size > 1000


def test_kernels_of_zeros_can_be_drawn():
    plot_filters({"zeros": np.zeros((3, 3, 3))}).canvas.draw()
