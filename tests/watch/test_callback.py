"""The callback in real Trainers of both packages: it watches, logs, goes on, and stops them."""

import importlib
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.watch import Timeline, lightning_callback

pytestmark = pytest.mark.filterwarnings("default")  # of Lightning itself


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request):
    """Either package, as if it were the only one in use."""
    reason = "pip install 'explainfix[lightning]'"
    for name in ("lightning.pytorch", "pytorch_lightning"):
        pytest.importorskip(name, reason=reason)
    return importlib.import_module(request.param)


@pytest.fixture(autouse=True)
def only_this_package(package, monkeypatch):
    other = {"lightning.pytorch", "pytorch_lightning"} - {package.__name__}
    monkeypatch.delitem(sys.modules, *other)


def build(package, *, moving=False):
    """A small module; `moving` breaks a fixed filter in its second epoch."""

    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 1, 3))

        def training_step(self, batch, index):
            if moving and self.current_epoch == 1:
                self.net[0].weight.data[0] += 1
            return (self.net(batch[0]) - 1).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], 0.5)

    return Module()


def fit(package, module, callback, tmp_path, epochs=2, ckpt_path=None, **options):
    data = torch.utils.data.TensorDataset(torch.randn(12, 1, 8, 8))
    trainer = package.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        callbacks=[callback],
        default_root_dir=tmp_path,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        **{"logger": False, "enable_checkpointing": False, **options},
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=ckpt_path)
    return trainer


def test_it_is_a_callback_of_the_package_in_use(package):
    assert isinstance(lightning_callback(), package.Callback)


def test_every_epoch_is_seen_and_written(package, tmp_path):
    module = build(package)
    xf.fix_(module, "ghaar", layers="net.0")
    callback = lightning_callback(page=tmp_path / "a.html", file=tmp_path / "a.json")
    fit(package, module, callback, tmp_path)
    moments = [(seen.epoch, seen.step) for seen in callback.timeline.snapshots]
    assert moments == [(0, 0), (1, 3), (2, 6)]
    line = Timeline.load(tmp_path / "a.json")
    assert line.as_dict() == callback.timeline.as_dict()
    assert line.drift("net.0")[-1] == 0
    assert line.drift("net.2")[-1] > 0
    assert torch.equal(line.spectrum("net.2").ed, xf.explain(module)["net.2"].ed)
    assert "epoch 2, step 6" in (tmp_path / "a.html").read_text()


def test_the_trainers_own_loggers_get_the_numbers(package, tmp_path):
    loggers = importlib.import_module(f"{package.__name__}.loggers")
    logger = loggers.CSVLogger(tmp_path, name="logs")
    callback = lightning_callback(every=2)
    fit(package, build(package), callback, tmp_path, logger=logger)
    import pandas as pd

    rows = pd.read_csv(next(tmp_path.glob("logs/*/metrics.csv"))).set_index("step")
    drift = rows["explainfix/drift/net.2"].dropna()
    assert list(drift.index) == [0, 2, 4, 6]
    assert list(drift) == pytest.approx(callback.timeline.drift("net.2").tolist())


def test_a_log_of_ones_own_instead(package, tmp_path):
    steps = []
    callback = lightning_callback(log=lambda numbers, step: steps.append(step))
    fit(package, build(package), callback, tmp_path)
    assert steps == [0, 3, 6]


def test_a_filter_that_moves_stops_the_training_and_what_was_seen_is_written(package, tmp_path):
    module = build(package, moving=True)
    xf.fix_(module, "ghaar")
    callback = lightning_callback(file=tmp_path / "a.json", page=tmp_path / "a.html")
    with pytest.raises(ValueError, match=r"at epoch 2, step 6: 1 of 2 fixed layers .*'net\.0'"):
        fit(package, module, callback, tmp_path, epochs=5)
    assert Timeline.load(tmp_path / "a.json").snapshots[-1].changed == ("net.0",)
    assert "1 of 2 fixed layers changed" in (tmp_path / "a.html").read_text()


def test_a_checkpoint_of_the_trainer_keeps_the_timeline(package, tmp_path):
    torch.manual_seed(0)
    callback = lightning_callback(file=tmp_path / "a.json")
    trainer = fit(package, build(package), callback, tmp_path)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    again = lightning_callback(file=tmp_path / "a.json")
    fit(package, build(package), again, tmp_path, epochs=4, ckpt_path=tmp_path / "a.ckpt")
    snapshots = again.timeline.snapshots
    assert [(seen.epoch, seen.step) for seen in snapshots] == [
        (0, 0), (1, 3), (2, 6), (3, 9), (4, 12),
    ]  # fmt: skip
    before = callback.timeline.as_dict()["snapshots"]
    assert again.timeline.as_dict()["snapshots"][:3] == json.loads(json.dumps(before))


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    for name in ("lightning.pytorch", "lightning", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    find = importlib.import_module

    def missing(name):
        if "lightning" in name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return find(name)

    monkeypatch.setattr("explainfix.watch.callback.importlib.import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'explainfix\[lightning\]'"):
        lightning_callback()


def test_watching_does_not_import_lightning():
    program = "import sys, explainfix.watch; print('lightning' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"
