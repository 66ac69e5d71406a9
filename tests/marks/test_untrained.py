"""Random weights are known as such, and nothing that was trained or loaded ever is."""

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.marks.untrained import is_untrained

FACTORIES = """
import pathlib, torch
from torch import nn

HERE = pathlib.Path(__file__).parent

def drawn():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))

def loaded():
    net = drawn()
    net.load_state_dict(torch.load(HERE / "w.pth", weights_only=True))
    return net

def half_loaded():
    net = drawn()
    net[0].load_state_dict(loaded()[0].state_dict())
    return net

def once():
    if (HERE / "called").exists():
        raise RuntimeError("a second time")
    (HERE / "called").touch()
    return drawn()
"""


@pytest.fixture
def nets(tmp_path):
    file = tmp_path / "nets.py"
    file.write_text(FACTORIES)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    with torch.no_grad():  # what learning does: no longer spread evenly
        for layer in (net[0], net[2]):
            layer.weight.add_(0.1 * layer.weight.std() * torch.randn(layer.weight.shape))
    torch.save(net.state_dict(), tmp_path / "w.pth")
    return file


def small():
    return xf.create_model("unetd")


CHANGES = {
    "fix": lambda model: xf.fix_(model, "ghaar"),
    "fix one": lambda model: xf.fix_(model, "dct2", layers="encoder.0.0.3"),
    "zero": lambda model: xf.zero_(model, scores(model), 0.5),
    "prune": lambda model: xf.channel_prune_(
        model, torch.randn(1, 3, 32, 32), scores(model), zero=0.9
    ),
    "unfix": lambda model: (xf.fix_(model, "ghaar"), xf.unfix_(model)),
}


def scores(model):
    return {path: torch.rand(layer.weight.shape[:2])
            for path, layer in xf.spatial_layers(model).items()}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_teaches_nothing(change, tmp_path):
    model = small()
    assert is_untrained(model)
    CHANGES[change](model)
    assert is_untrained(model)
    xf.save(model, tmp_path / "m.safetensors")
    opened = xf.load(tmp_path / "m.safetensors")
    assert is_untrained(opened)
    train(opened)
    assert not is_untrained(opened)
    xf.save(opened, tmp_path / "t.safetensors")
    assert not is_untrained(xf.load(tmp_path / "t.safetensors"))
    xf.load(tmp_path / "t.safetensors", model)
    assert not is_untrained(model)


def train(model):
    """A step, as anybody would do it."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    model(torch.randn(2, 3, 32, 32)).square().mean().backward()
    optimizer.step()


def test_steered_and_merged(nets):
    model = xf.create_model(f"{nets}:drawn")
    xf.steer_(model, filters=4)
    assert is_untrained(model)
    xf.merge_(model)
    assert is_untrained(model)


@pytest.mark.parametrize("part", ["head", "norm", "steering"])
def test_a_part_that_learns_is_enough(part, nets):
    """Even if all else is frozen; and pruned, fixed or merged afterwards it stays trained."""
    model = xf.create_model(f"{nets}:drawn") if part == "steering" else small()
    if part == "steering":
        xf.steer_(model, filters=4)
        learned = model[0].steering.weight
    else:
        learned = model.head.weight if part == "head" else model.encoder[0][0][1].bias
    with torch.no_grad():
        learned.view(-1)[0] += 1e-3
    assert not is_untrained(model)
    xf.merge_(model) if part == "steering" else xf.fix_(model, "ghaar")
    assert not is_untrained(model)


def test_weights_that_come_from_elsewhere(nets, tmp_path):
    for spec, drawn in (("drawn", True), ("loaded", False), ("half_loaded", False)):
        assert is_untrained(xf.create_model(f"{nets}:{spec}")) is drawn
    assert not is_untrained(xf.create_model(f"{nets}:drawn", weights=tmp_path / "w.pth"))
    model = xf.create_model(f"{nets}:drawn")
    model.load_state_dict(torch.load(tmp_path / "w.pth", weights_only=True))
    assert not is_untrained(model)
    assert not is_untrained(nn.Conv2d(3, 8, 3))  # nobody knows


def test_a_factory_is_called_once(nets):
    assert is_untrained(xf.create_model(f"{nets}:once"))


def test_building_takes_no_more_random_numbers_than_it_did(nets):
    torch.manual_seed(3)
    xf.create_model(f"{nets}:drawn")
    after = torch.rand(1)
    torch.manual_seed(3)
    nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    assert torch.equal(after, torch.rand(1))


def test_copies_know_it_too():
    import copy

    assert is_untrained(copy.deepcopy(small()))


def test_a_run_is_trained(tmp_path, monkeypatch, nets, capsys):
    """Through the command line: before, after, and on from there by every name of it."""
    import json

    from explainfix.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "seg.py").write_text(
        "from torch import nn\n"
        "def net(num_classes=1, in_channels=3):\n"
        "    return nn.Sequential(nn.Conv2d(in_channels, 4, 3, padding=1), nn.ReLU(),\n"
        "                         nn.Conv2d(4, num_classes, 1))\n"
    )

    def untrained(model):
        assert main(["info", model, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["untrained"]

    def train_on(model, *more):
        words = ["--data", "nuclei", "--data-option", "size=32", "--data-option", "count=8"]
        words += ["--epochs", "1", "--batch-size", "4", "--json", *more]
        assert main(["train", "--model", model, *words]) == 0
        return json.loads(capsys.readouterr().out)["folder"]

    assert untrained("seg.py:net")
    assert main(["fix", "seg.py:net", "--method", "ghaar", "-o", "f.safetensors"]) == 0
    capsys.readouterr()
    assert untrained("seg.py:net@f.safetensors")
    folder = train_on("seg.py:net@f.safetensors")
    for name in (folder, f"{folder}@last", f"seg.py:net@{folder}/best.safetensors"):
        assert not untrained(name)
    again = train_on(folder)
    assert not untrained(again)
    assert main(["compare", folder, again, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["still_fixed"] is True
    assert main(["evaluate", again, "--resamples", "10"]) == 0
    # Another file of the same name is another run.
    assert main(["fix", "seg.py:net", "--method", "dct2", "--force", "-o", "f.safetensors"]) == 0
    capsys.readouterr()
    assert train_on("seg.py:net@f.safetensors") != folder
