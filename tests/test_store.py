import copy
import json
import os
import struct
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import explainfix as xf
from explainfix.store import model as store_model
from explainfix.store import read_weights
from explainfix.zoo.unetd import UNetD


def same_state(first, second):
    one, two = first.state_dict(), second.state_dict()
    return list(one) == list(two) and all(
        one[name].dtype == two[name].dtype and torch.equal(one[name], two[name]) for name in one
    )


@pytest.fixture
def fixed():
    model = xf.create_model("unetd", num_classes=2)
    xf.fix_(model, "ghaar", seed=4)
    return model


@pytest.fixture
def file(fixed, tmp_path):
    path = tmp_path / "model.safetensors"
    xf.save(fixed, path)
    return path


@pytest.mark.parametrize("scale", ["paper", "fan_in"])
@pytest.mark.parametrize("method", xf.list_filters())
def test_every_method_comes_back_bit_for_bit(tmp_path, method, scale):
    model = xf.create_model("unetd", num_classes=2, in_channels=1).eval()
    xf.fix_(model, method, seed=3, scale=scale)
    xf.save(model, tmp_path / "m.safetensors")
    loaded = xf.load(tmp_path / "m.safetensors").eval()
    assert same_state(model, loaded)
    assert xf.recipes(loaded) == xf.recipes(model)
    xf.check_fixed(loaded)
    assert [p.requires_grad for p in loaded.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    image = torch.randn(2, 1, 40, 40)
    assert torch.equal(model(image), loaded(image))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_precision_is_kept(tmp_path, dtype):
    model = xf.create_model("unetd").to(dtype)
    xf.fix_(model, "psine")
    xf.save(model, tmp_path / "m.safetensors")
    assert same_state(model, xf.load(tmp_path / "m.safetensors"))


def test_regenerated_kernels_are_not_in_the_file(file, fixed):
    with safe_open(file, "pt") as opened:
        assert not {f"{path}.weight" for path in xf.spatial_layers(fixed)} & set(opened.keys())


def test_resnet50_saves_to_at_most_56_percent(tmp_path):
    model = xf.create_model("torchvision:resnet50").eval()
    save_file(model.state_dict(), tmp_path / "full.safetensors")
    xf.fix_(model, "ghaar")
    xf.save(model, tmp_path / "fixed.safetensors")
    share = (tmp_path / "fixed.safetensors").stat().st_size / (
        tmp_path / "full.safetensors"
    ).stat().st_size
    assert share <= 0.56
    loaded = xf.load(tmp_path / "fixed.safetensors").eval()
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(model(image), loaded(image))


def test_partly_fixed_by_several_methods(tmp_path):
    model = xf.create_model("torchvision:resnet18", num_classes=3)
    xf.fix_(model, "ghaar", layers="layer1.*")
    xf.fix_(model, "unchanged", layers="layer2.*")
    xf.save(model, tmp_path / "m.safetensors")
    loaded = xf.load(tmp_path / "m.safetensors")
    assert same_state(model, loaded)
    assert xf.recipes(loaded) == xf.recipes(model)


def test_a_model_that_is_not_fixed(tmp_path):
    model = xf.create_model("unetd")
    xf.save(model, tmp_path / "m.safetensors")
    loaded = xf.load(tmp_path / "m.safetensors")
    assert same_state(model, loaded)
    assert not xf.recipes(loaded)


def test_changed_kernels_are_saved_as_they_are(tmp_path, fixed):
    with torch.no_grad():
        fixed.encoder[0][0][3].weight.add_(1)
    xf.save(fixed, tmp_path / "m.safetensors")
    loaded = xf.load(tmp_path / "m.safetensors")
    assert same_state(fixed, loaded)
    with pytest.raises(ValueError, match=r"1 of 16 fixed layers changed: 'encoder\.0\.0\.3'"):
        xf.check_fixed(loaded)


def test_saved_again_after_loading(tmp_path, file):
    loaded = xf.load(file)
    xf.save(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


class TestGivenModel:
    def test_the_state_goes_into_it(self, file, fixed):
        target = UNetD(num_classes=2)
        weight = target.head.weight
        assert xf.load(file, target) is target
        assert target.head.weight is weight  # an optimizer that holds it still does
        assert same_state(fixed, target)
        xf.check_fixed(target)

    def test_recipes_it_had_before_are_gone(self, tmp_path, file):
        plain = xf.create_model("unetd", num_classes=2)
        xf.save(plain, tmp_path / "plain.safetensors")
        target = xf.load(file)
        xf.load(tmp_path / "plain.safetensors", target)
        assert not xf.recipes(target)
        assert all(parameter.requires_grad for parameter in target.parameters())

    def test_a_model_of_ones_own(self, tmp_path):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        xf.fix_(model, "psine")
        xf.save(model, tmp_path / "own.safetensors")
        twin = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        xf.load(tmp_path / "own.safetensors", twin)
        assert same_state(model, twin)
        with pytest.raises(ValueError, match=r"a model of your own.*load\(path, model=...\)"):
            xf.load(tmp_path / "own.safetensors")

    def test_tied_weights_stay_tied(self, tmp_path):
        def make():
            model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 1))
            model[1].weight = model[0].weight
            return model

        model = make()
        xf.fix_(model, "ghaar")
        xf.save(model, tmp_path / "tied.safetensors")
        loaded = xf.load(tmp_path / "tied.safetensors", make())
        assert same_state(model, loaded)
        assert loaded[1].weight is loaded[0].weight

    def test_a_model_that_is_one_convolution(self, tmp_path):
        model = nn.Conv2d(3, 4, 3)
        xf.fix_(model, "ghaar")
        xf.save(model, tmp_path / "one.safetensors")
        with safe_open(tmp_path / "one.safetensors", "pt") as opened:
            assert list(opened.keys()) == ["bias"]
        loaded = xf.load(tmp_path / "one.safetensors", nn.Conv2d(3, 4, 3))
        assert same_state(model, loaded)
        xf.check_fixed(loaded)

    def test_a_model_that_cannot_be_copied(self, tmp_path):
        class Remembering(nn.Sequential):
            def forward(self, x):
                self.last = super().forward(x)
                return self.last

        def make():
            return Remembering(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))

        x, model, target = torch.randn(1, 3, 9, 9), make(), make()
        xf.channel_prune_(model, x, xf.saliency(model, [x]), zero=0.7)
        xf.save(model, tmp_path / "small.safetensors")
        target(x)  # now it holds a tensor with a history
        xf.load(tmp_path / "small.safetensors", target)
        assert same_state(model, target)

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            (UNetD(num_classes=3), r"'head.weight' is \(2, 3, 1, 1\), the model's \(3, 3, 1, 1\)"),
            (nn.Conv2d(3, 3, 3), r"'weight' is missing.*is not in the model.*more differences"),
            (UNetD(num_classes=2).half(), r"float32, the model in torch.float16; convert"),
        ],
    )
    def test_one_that_does_not_fit_stays_as_it_was(self, file, target, message):
        before = copy.deepcopy(target)
        with pytest.raises(ValueError, match=message):
            xf.load(file, target)
        assert same_state(before, target)
        assert not xf.recipes(target)


class TestBadFiles:
    def test_truncated(self, file):
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(ValueError, match=r"model\.safetensors' is damaged"):
            xf.load(file)

    def test_empty(self, file):
        file.write_bytes(b"")
        with pytest.raises(ValueError, match="is damaged"):
            xf.load(file)

    def test_not_safetensors(self, file):
        file.write_text("hello, this is no model at all, and long enough")
        with pytest.raises(ValueError, match="is damaged or no safetensors file"):
            xf.load(file)

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            xf.load(tmp_path / "none.safetensors")

    def test_foreign(self, tmp_path):
        save_file({"a": torch.zeros(2)}, tmp_path / "foreign.safetensors")
        with pytest.raises(ValueError, match=r"not written by explainfix\.save.*weights=FILE"):
            xf.load(tmp_path / "foreign.safetensors")

    @pytest.mark.parametrize("legacy", [False, True])
    def test_pickle(self, tmp_path, legacy):
        path = tmp_path / "model.safetensors"
        torch.save(UNetD().state_dict(), path, _use_new_zipfile_serialization=not legacy)
        with pytest.raises(ValueError, match="is a PyTorch pickle, not a safetensors file"):
            xf.load(path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda h: h.update(format=99), "has format 99"),
            (lambda h: h.pop("fixed"), "header .* is damaged"),
            (lambda h: h["fixed"].update(x={"method": "ghaar"}), "header .* is damaged"),
            (lambda h: h["fixed"]["encoder.0.0.3"].update(seed=5), "'encoder.0.0.3' does not give"),
            (lambda h: h["fixed"]["encoder.0.0.3"].update(method="magic"), "'magic'"),
            (lambda h: h["fixed"]["encoder.0.0.3"].update(dtype="load"), "no such type: 'load'"),
            (lambda h: h["origin"].update(source="elsewhere"), "'elsewhere'"),
            (lambda h: h["origin"].update(num_classes=7), "does not fit the model"),
        ],
    )
    def test_corrupted_header(self, file, change, message):
        edit_header(file, change)
        with pytest.raises(ValueError, match=message):
            xf.load(file)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda h: h.update(origin=3), "header .* is damaged.*header.origin is 3"),
            (lambda h: h["origin"].update(name=3), "header .* is damaged"),
            (lambda h: h.update(aliases={"a": 1}), r"header .* is damaged.*aliases\['a'\] is 1"),
            (lambda h: h["fixed"]["encoder.0.0.3"].update(seed="5"), "header .* is damaged"),
            (lambda h: h["fixed"]["encoder.0.0.3"].update(shape=[-1, 3]), "no such shape"),
            (lambda h: h["fixed"]["encoder.0.0.3"].update(options={"a": 1}), "header .* is dam"),
        ],
    )
    def test_wrong_types_in_the_header(self, file, change, message):
        edit_header(file, change)
        with pytest.raises(ValueError, match=message):
            xf.load(file)

    @pytest.mark.parametrize(
        "change",
        [
            lambda h: h.update(cuts=3),
            lambda h: h.update(cuts=[{"keep": 3, "groups": {}}]),
            lambda h: h.update(cuts=[{"keep": {}}]),
            lambda h: h.update(cuts=[{"keep": {}, "groups": {}, "more": 1}]),
            lambda h: h["changes"][0]["keep"].update({"0.weight|0": [-1, 0]}),
            lambda h: h["changes"][0]["keep"].update({"0.weight|0": [0, 999]}),
            lambda h: h["changes"][0]["keep"].update({"0.weight|0": [0, 1.5]}),
            lambda h: h["changes"][0]["keep"].update({"0.weight|first": [0]}),
            lambda h: h["changes"][0]["keep"].update({"0.weight|7": [0]}),
            lambda h: h["changes"][0]["attributes"].update({"nowhere|channels": 3}),
            lambda h: h["changes"][0]["attributes"].update({"0|no_such_name": 3}),
        ],
    )
    def test_damaged_cuts_leave_the_model_as_it_was(self, tmp_path, change):
        def make():
            return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))

        path, x, model, target = tmp_path / "m.safetensors", torch.ones(1, 3, 9, 9), make(), make()
        xf.channel_prune_(model, x, xf.saliency(model, [x]), zero=0.7)
        assert model[0].out_channels < 8
        xf.save(model, path)
        edit_header(path, change)
        before, parameters = copy.deepcopy(target), list(target.parameters())
        with pytest.raises(ValueError, match=r"header .*damaged"):
            xf.load(path, target)
        assert same_state(before, target)
        assert target[0].out_channels == 8
        assert all(a is b for a, b in zip(parameters, target.parameters(), strict=True))
        assert vars(target).keys() == vars(before).keys()

    @pytest.mark.parametrize(
        "changes",
        [
            [{"steered": {"nowhere": 2}}],
            [{"steered": {"0": 0}}],
            [{"steered": {"0": -2}}],
            [{"steered": {"0": 10**30}}],
            [{"steered": {"1": 2}}],
            [{"mixed": [""]}],
            [{"merged": ["0"]}],
        ],
    )
    def test_damaged_splits_leave_the_model_as_it_was(self, tmp_path, changes):
        model, target = (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()) for _ in range(2))
        xf.steer_(model, filters=2)
        xf.save(model, tmp_path / "m.safetensors")
        edit_header(tmp_path / "m.safetensors", lambda h: h.update(changes=changes))
        before, modules = copy.deepcopy(target), list(target.modules())
        with pytest.raises(ValueError, match=r"header .*damaged") as raised:
            xf.load(tmp_path / "m.safetensors", target)
        assert "\n" not in str(raised.value)
        assert same_state(before, target)
        assert list(target.modules()) == modules

    def test_a_file_does_not_choose_code_to_run(self, file, tmp_path):
        code = tmp_path / "evil.py"
        code.write_text("raise SystemExit('was run')\n")
        edit_header(file, lambda h: h["origin"].update(source="python", name=f"{code}:make"))
        with pytest.raises(ValueError, match="a model of your own"):
            xf.load(file)


def edit_header(file, change):
    """Rewrite the explainfix header within a safetensors file."""
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    whole = json.loads(raw[8 : 8 + length])
    header = json.loads(whole["__metadata__"]["explainfix"])
    change(header)
    whole["__metadata__"]["explainfix"] = json.dumps(header)
    text = json.dumps(whole).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


class TestWriting:
    def test_an_existing_file_is_kept_unless_asked(self, file, fixed):
        before = file.read_bytes()
        with pytest.raises(FileExistsError, match=r"model\.safetensors' exists already.*--force"):
            xf.save(UNetD(), file)
        assert file.read_bytes() == before
        xf.save(UNetD(), file, overwrite=True)
        assert file.read_bytes() != before

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, file, monkeypatch):
        before = file.read_bytes()

        def full_disk(tensors, path, metadata):
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(store_model, "save_file", full_disk)
        with pytest.raises(OSError, match="No space left"):
            xf.save(UNetD(), file, overwrite=True)
        assert file.read_bytes() == before
        assert list(file.parent.iterdir()) == [file]

    def test_folders_that_cannot_be_written_to(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"missing.*does not exist"):
            xf.save(UNetD(), tmp_path / "missing" / "m.safetensors")
        with pytest.raises(IsADirectoryError, match="is a folder"):
            xf.save(UNetD(), tmp_path)
        with pytest.raises(OSError, match=r"proc|denied|such file"):
            xf.save(UNetD(), "/proc/m.safetensors")

    def test_state_that_is_no_tensor_is_refused_by_name(self, tmp_path):
        class Odd(nn.Conv2d):
            def get_extra_state(self):
                return {"a": 1}

        with pytest.raises(ValueError, match="'_extra_state'"):
            xf.save(Odd(3, 3, 3), tmp_path / "m.safetensors")
        assert not list(tmp_path.iterdir())

    def test_the_file_has_ordinary_permissions(self, file):
        (file.parent / "ordinary").touch()
        assert file.stat().st_mode == (file.parent / "ordinary").stat().st_mode

    def test_nobody_sees_another_umask_meanwhile(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
        xf.save(UNetD(), tmp_path / "m.safetensors")


class TestReadWeights:
    def test_a_pickle_is_never_executed(self, tmp_path):
        torch.save(UNetD(), tmp_path / "whole.pth")
        message = r"more than tensors, a explainfix\.zoo\.unetd\.UNetD, .* content\.state_dict\(\)"
        with pytest.raises(ValueError, match=message):
            read_weights(tmp_path / "whole.pth")

    def test_a_file_without_a_state(self, tmp_path):
        torch.save([1, 2], tmp_path / "list.pth")
        with pytest.raises(ValueError, match="holds no state_dict"):
            read_weights(tmp_path / "list.pth")

    def test_our_own_files_are_for_load(self, file):
        with pytest.raises(ValueError, match="open it with load"):
            read_weights(file)
