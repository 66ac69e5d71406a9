"""ONNX files: ONNX Runtime is the oracle, and the model comes back as it went in."""

import json
import re
import sys

import numpy as np
import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix import export
from explainfix.cli import main
from explainfix.export import export_onnx
from explainfix.running import example_input

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'explainfix[onnx]'")


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5),
        nn.Conv2d(8, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip


def run(file, inputs):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": inputs.numpy()})


def test_the_file_computes_the_same_for_any_batch_and_size(tmp_path):
    model = network()
    xf.fix_(model, "ghaar")
    report = export_onnx(model, tmp_path / "a.onnx", torch.randn(1, 3, 16, 16))
    assert report.inputs == {"input": ("batch", 3, "height", "width")}
    assert report.outputs == {"output": ("batch", 5)}
    assert report.fixed is None
    assert [check.shape for check in report.checks] == [(1, 3, 16, 16), (3, 3, 48, 80)]
    assert report.difference < 1e-4
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]  # the weights are in it
    inputs = torch.randn(5, 3, 23, 31)
    (ours,) = run(tmp_path / "a.onnx", inputs)
    np.testing.assert_allclose(ours, model.eval()(inputs).detach(), atol=1e-5)


def test_the_model_comes_back_as_it_went_in(tmp_path, capfd, recwarn):
    model = network().train()
    model[3].eval()
    model[0].weight.requires_grad_(False)
    model[4].weight.grad = torch.ones_like(model[4].weight)
    model[4].register_forward_hook(lambda *_: None)
    modes = [module.training for module in model.modules()]
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    numbers = torch.random.get_rng_state()
    export_onnx(model, tmp_path / "a.onnx", torch.randn(2, 3, 16, 16, generator=torch.Generator()))
    assert [module.training for module in model.modules()] == modes
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks
    assert not model[0].weight.requires_grad
    assert model[1].weight.requires_grad
    assert torch.equal(model[4].weight.grad, torch.ones_like(model[4].weight))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), numbers)
    printed = capfd.readouterr()
    assert (printed.out, printed.err, list(recwarn)) == ("", "", [])


class OneSize(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(72, 3)

    def forward(self, x):
        return {"classes": self.head(self.conv(x).flatten(1)), "features": self.conv(x)}


def test_axes_that_the_model_needs_fixed_stay_fixed_and_dictionaries_give_names(tmp_path):
    report = export_onnx(OneSize(), tmp_path / "a.onnx", torch.randn(1, 1, 8, 8))
    assert report.inputs == {"input": ("batch", 1, 8, 8)}
    assert report.outputs == {"classes": ("batch", 3), "features": ("batch", 2, 6, 6)}
    assert report.fixed
    assert [check.shape for check in report.checks] == [(1, 1, 8, 8), (3, 1, 8, 8)]


class Anchored(nn.Module):
    """Like a detector: it looks up by the shape of its input what it adds."""

    def __init__(self):
        super().__init__()
        self.conv, self.anchors = nn.Conv2d(1, 2, 3), {(1, 8): 3.0, (2, 8): 4.0}

    def forward(self, x):
        return self.conv(x) + self.anchors[x.shape[0], x.shape[-1]]


class Branching(nn.Conv2d):
    """The exporter takes one of its ways for all inputs, so that a free axis would be wrong."""

    def forward(self, x):
        y = super().forward(x)
        return y + 1 if x.shape[0] == 1 and x.shape[-1] == 8 else y * 2


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Anchored(), "PyTorch's exporter cannot export Anchored"),
        (Branching(1, 2, 3), "its outputs are .* off PyTorch's"),
    ],
)
def test_a_model_that_allows_no_free_axis_is_exported_for_one_shape(tmp_path, model, why):
    report = export_onnx(model, tmp_path / "a.onnx", torch.randn(1, 1, 8, 8))
    assert report.inputs == {"input": (1, 1, 8, 8)}
    assert [check.shape for check in report.checks] == [(1, 1, 8, 8), (1, 1, 8, 8)]
    assert re.search(why, report.fixed)
    assert f"Axes with a number are fixed; with free ones: {report.fixed}." in str(report)


def test_what_does_not_agree_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_difference", lambda one, other: float("nan"))
    with pytest.raises(ValueError, match=r"not written: at \(2, 3, 9, 9\) .* off PyTorch's"):
        export_onnx(network(), tmp_path / "a.onnx", torch.randn(2, 3, 9, 9))
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_kept(tmp_path):
    (tmp_path / "a.onnx").write_text("precious")
    with pytest.raises(FileExistsError, match="exists already"):
        export_onnx(network(), tmp_path / "a.onnx", torch.randn(1, 3, 9, 9))
    assert (tmp_path / "a.onnx").read_text() == "precious"
    export_onnx(
        network(), tmp_path / "a.onnx", torch.randn(1, 3, 9, 9), check=False, overwrite=True
    )
    assert run(tmp_path / "a.onnx", torch.randn(4, 3, 9, 9))[0].shape == (4, 5)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_the_remedy_is_said(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*pip install 'explainfix\[onnx\]'"):
        export_onnx(network(), tmp_path / "a.onnx", torch.randn(1, 3, 9, 9))


class Stubborn(nn.Module):
    def forward(self, x):
        return x.sum() if x.sum().item() > 0 else x.numpy()


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (network(), torch.randn(1, 1, 9, 9), "does not run on an input of shape"),
        (network(), [torch.randn(1, 3, 9, 9)], "must be one tensor"),
        (Stubborn(), torch.ones(2, 3), "exporter cannot export Stubborn"),
    ],
)
def test_mistakes(tmp_path, model, example, message):
    with pytest.raises(ValueError, match=message):
        export_onnx(model, tmp_path / "a.onnx", example)
    assert not list(tmp_path.iterdir())


def test_the_example_follows_the_first_convolution():
    assert example_input(nn.Conv1d(4, 2, 3), [50]).shape == (1, 4, 50)
    assert example_input(nn.Conv3d(1, 2, 3).double(), [4, 5, 6]).dtype == torch.float64
    for model, size, message in [
        (nn.Conv3d(1, 2, 3), [9], "give a size of 3 numbers, not '9'"),
        (nn.Conv2d(1, 2, 3), [9, 9, 9], "give a size of 2 numbers"),
        (nn.Conv2d(1, 2, 3), [0], "at least 1"),
        (nn.Linear(2, 2), [9], "no convolution"),
    ]:
        with pytest.raises(ValueError, match=message):
            example_input(model, size)


def test_a_pruned_network_stays_one_in_its_file(tmp_path):
    model = nn.Sequential(*network()[:5])
    scores = {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(model).items()}
    scores["0"][:3] = 0
    pruned = xf.channel_prune_(model, torch.randn(1, 3, 9, 9), scores, zero=0.2)
    assert pruned.layers_after["0"].outputs == 5
    export_onnx(model, tmp_path / "a.onnx", torch.randn(1, 3, 9, 9), check=False)
    inputs = torch.randn(2, 3, 12, 11)
    with torch.no_grad():
        expected = model.eval()(inputs)
    np.testing.assert_allclose(run(tmp_path / "a.onnx", inputs)[0], expected, atol=1e-5)


def test_from_the_shell(tmp_path, capfd):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Conv2d(3, 2, 3)\n"
    )
    words = ["export", f"{tmp_path / 'own.py'}:make", "-o", str(tmp_path / "own.onnx")]
    assert main([*words, "--size", "12x16"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert "input: (batch, 3, height, width)" in printed.out
    assert "Largest difference to PyTorch at 3x3x44x80: " in printed.out
    assert main([*words, "--force", "--json", "--no-check"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["bytes"] == (tmp_path / "own.onnx").stat().st_size
    assert (told["checks"], told["difference"]) == ([], None)


@pytest.mark.zoo
def test_fixed_pruned_and_saved(tmp_path):
    model = xf.create_model("unetd")
    xf.fix_(model, "ghaar")
    scores = {p: torch.rand(w.weight.shape[:2]) for p, w in xf.spatial_layers(model).items()}
    xf.channel_prune_(model, torch.randn(1, 3, 32, 32), scores, zero=0.8)
    xf.save(model, tmp_path / "small.safetensors")
    file = tmp_path / "small.onnx"
    words = ["export", str(tmp_path / "small.safetensors"), "-o", str(file), "--size", "32x48"]
    assert main(words) == 0
    inputs = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(run(file, inputs)[0], model.eval()(inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-o out.pt", "'out.pt' must end in .onnx"),
        ("-o out.onnx --size big", "--size 'big' is no size such as 224 or 256x320"),
        ("-o missing/out.onnx", "'missing'"),
    ],
)
def test_mistakes_in_the_shell(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "unetd", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


# A DenseNet of four layers: the exporter takes a minute for 121, and learns nothing new from them.
DENSENET = """
from torchvision.models import DenseNet

def make():
    return DenseNet(growth_rate=8, block_config=(2, 2), num_init_features=16, num_classes=5)
"""


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("name", "size", "free"),
    [
        ("torchvision:resnet18", 64, True),
        ("torchvision:efficientnet_b0", 64, True),
        ("densenet.py:make", 64, True),
        ("torchvision:shufflenet_v2_x1_0", 64, True),
        ("torchvision:fcn_resnet50", 64, True),
        ("smp:unet", 64, True),
        ("torchvision:alexnet", 224, False),
    ],
)
def test_networks(name, size, free, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "densenet.py").write_text(DENSENET)
    model = xf.create_model(name)
    report = export_onnx(model, tmp_path / "a.onnx", example_input(model, [size]))
    assert report.inputs["input"][0::2] == ("batch", "height" if free else size)


@pytest.mark.parametrize("form", ["mixed", "steered", "merged"])
def test_a_mixed_or_steered_network_is_exported(form, tmp_path):
    model, inputs = network(), torch.randn(2, 3, 16, 16)
    if form == "mixed":
        xf.fix_(model, "ghaar", mix=True)
    else:
        xf.steer_(model, filters=3)
    if form == "merged":
        xf.merge_(model)
    report = export_onnx(model, tmp_path / "a.onnx", inputs)
    assert report.difference < 1e-4
    (ours,) = run(tmp_path / "a.onnx", inputs)
    np.testing.assert_allclose(ours, model.eval()(inputs).detach(), atol=1e-4)
