import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.prune.state import Barrier
from explainfix.report.pruning import describe_exactness, pruning_data
from explainfix.report.write import page_data, write_page


@pytest.fixture
def why():
    model = xf.create_model("unetd")
    xf.fix_(model, "psine", layers="encoder.*")
    scores = xf.saliency(model, [torch.randn(1, 3, 32, 32)])
    return xf.explain(model, saliency=scores, title="U-NetD")


def test_the_data_of_the_page_is_plain_json(why):
    data = json.loads(json.dumps(page_data(why, None)))
    assert data["title"] == "U-NetD"
    assert data["summary"] == {
        "parameters": 116695, "spatial_parameters": 12744, "layers": 16, "kernels": 1416,
        "fixed_layers": 8,
    }  # fmt: skip
    (shape,) = data["shapes"]
    assert shape["layers"] == list(range(16))
    assert len(shape["basis"]) == len(shape["basis"][0]) == 9
    assert sum(layer["saliency_share"] for layer in data["layers"]) == pytest.approx(1)
    first = data["layers"][0]
    assert (first["path"], first["stage"], first["fixed"]) == ("encoder.0.0.3", "encoder", "psine")
    assert first["ed"] == pytest.approx(why["encoder.0.0.3"].ed.tolist())
    assert len(first["samples"]) == 18
    assert first["band"][0] < first["band"][1]


def test_the_most_salient_kernels_are_shown_first(why):
    model = xf.create_model("unetd")
    scores = {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(model).items()}
    scores["encoder.1.0.3"][5, 0] = 9.0
    samples = xf.explain(model, saliency=scores).layers["encoder.1.0.3"].samples
    torch.testing.assert_close(samples[0], model.encoder[1][0][3].weight[5, 0])


def test_writing_keeps_an_existing_file_unless_asked(why, tmp_path):
    file = tmp_path / "why.html"
    why.to_html(file)
    assert "encoder.0.0.3" in file.read_text()
    with pytest.raises(FileExistsError, match="exists already"):
        why.to_html(file)
    why.to_html(file, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["why.html"]


def test_an_explanation_read_from_a_file_has_a_page_too(why, tmp_path):
    why.save(tmp_path / "why.parquet")
    xf.Explanation.load(tmp_path / "why.parquet").to_html(tmp_path / "why.html")
    assert (tmp_path / "why.html").stat().st_size > 20_000


def test_random_weights_are_on_the_page_and_on_that_of_a_comparison(tmp_path):
    model = xf.create_model("unetd")
    words = "Random weights: this shows the initialisation, not what was learned."
    assert page_data(xf.explain(model))["warning"] == words
    both = xf.compare(model, model)
    assert page_data(both.before, both)["warning"].startswith("Random weights in both networks:")
    assert "initialisation, not what was learned" in xf.explain(model)._repr_html_()
    with torch.no_grad():
        model.head.weight.add_(1)
    assert page_data(xf.explain(model))["warning"] is None


def test_a_page_compares_a_whole_network_with_a_pruned_one(tmp_path):
    whole, half = (torch.nn.Sequential(torch.nn.Conv2d(1, n, 3)) for n in (4, 2))
    found = xf.compare(whole, half)
    data = json.loads(json.dumps(page_data(found.before, found)))
    assert data["layers"][0]["other"]["kernels"] == 2
    assert sum(data["layers"][0]["other"]["difference"]) == pytest.approx(0, abs=1e-9)
    assert data["comparison"]["layers"][0]["changed"] is None
    write_page(found.before, tmp_path / "both.html", comparison=found)
    assert "other shape" in (tmp_path / "both.html").read_text()


def test_a_resnet50_page_is_small(tmp_path):
    xf.explain(xf.create_model("torchvision:resnet50")).to_html(tmp_path / "why.html")
    assert (tmp_path / "why.html").stat().st_size < 1_500_000


LARGE = {
    "volumes": lambda: [nn.Conv3d(1, 8, 16), nn.Conv3d(8, 8, 16)],
    "one volume": lambda: [nn.Conv3d(1, 8, 16)],
    "lines": lambda: [nn.Conv1d(1, 8, 1024), nn.Conv1d(8, 8, 1024)],
    "many planes": lambda: [nn.Conv2d(32, 32, k, groups=32) for k in (31, 29, 16) for _ in "ab"],
    "many shapes": lambda: [nn.Conv2d(2, 2, (16, k)) for k in range(17, 29)],
}


@pytest.mark.parametrize("name", LARGE)
def test_pages_of_large_kernels_are_bounded(name, tmp_path):
    why = xf.explain(nn.Sequential(*LARGE[name]()))
    why.to_html(tmp_path / "why.html")
    assert (tmp_path / "why.html").stat().st_size < 1_500_000
    data = page_data(why)
    for shape in data["shapes"]:
        pixels = math.prod(shape["pictured"])
        assert all(len(filter) == pixels for filter in shape["basis"])
        for layer in (data["layers"][index] for index in shape["layers"]):
            assert len(layer["ed"]) == len(shape["basis"]) <= 256
            assert sum(layer["ed"]) == pytest.approx(float(why[layer["path"]].ed.sum()))
            assert layer["samples"]
            assert all(len(kernel) == pixels for kernel in layer["samples"])


def test_what_is_left_out_of_a_page_is_said():
    model = nn.Sequential(nn.Conv3d(1, 200, 16))
    data = page_data(xf.explain(model))
    (shape,), (layer,) = data["shapes"], data["layers"]
    assert shape["note"] == "4,096 basis filters in 64 groups; pictures show the middle slice"
    assert shape["groups"][0] == (0, 63)
    assert shape["groups"][-1] == (4032, 4095)
    assert shape["pictured"] == [16, 16]
    # Random kernels lie in the band of chance of a group, as they do in that of one filter.
    inside = [layer["band"][0] < energy < layer["band"][1] for energy in layer["ed"]]
    assert sum(inside) >= 0.85 * len(inside)
    small = page_data(xf.explain(nn.Sequential(nn.Conv2d(3, 4, 11))))["shapes"][0]
    assert (small["note"], small["groups"], small["pictured"]) == ("", None, [11, 11])


def test_what_pruning_did_is_on_the_page(why, tmp_path):
    model = xf.create_model("unetd")
    scores = {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(model).items()}
    report = xf.channel_prune_(model, torch.randn(1, 3, 32, 32), scores, zero=0.8)
    pruning = json.loads(json.dumps(page_data(why, pruning=report)))["pruning"]
    assert [total["name"] for total in pruning["totals"]] == [
        "Parameters", "Memory", "Multiply-adds",
    ]  # fmt: skip
    assert pruning["totals"][0]["before"] == "116,695"
    assert pruning["totals"][0]["share"] == report.params_kept
    assert [row["path"] for row in pruning["layers"]] == list(report.layers_before)
    assert sum(row["kernels_zeroed"] for row in pruning["layers"]) == 1132
    why.to_html(tmp_path / "why.html", pruning=report)
    assert "1,132 kernels zeroed, 80% of all" in (tmp_path / "why.html").read_text()


def test_exactness_is_said_in_words():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Conv2d(2, 1, 3))
    report = xf.prune_(model, torch.randn(1, 1, 9, 9))
    assert describe_exactness(report).startswith("The cut is exact up to rounding")
    evaluated = replace(report, for_evaluation=3)
    assert describe_exactness(evaluated).startswith(
        "The cut is exact for evaluation: 3 removed constants would"
    )
    dropped = replace(evaluated, dropped_by_layer={"0": 1})
    assert describe_exactness(dropped).startswith(
        "The cut is not exact: 1 constant channel (ghosts) was dropped"
    )
    stuck = replace(report, barriers=(Barrier("aten.foo", "0", 2), Barrier("aten.bar", "1", 40)))
    assert [b["operation"] for b in pruning_data(stuck)["barriers"]] == ["bar", "foo"]
