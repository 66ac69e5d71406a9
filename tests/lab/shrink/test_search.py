"""Searches on drawn images: what comes out, and that a kill at any moment changes nothing of it."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import explainfix as xf
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import open_data, read_run
from explainfix.lab.run.train import train
from explainfix.lab.shrink import search
from explainfix.lab.shrink.goal import Asked
from explainfix.lab.shrink.original import Original, find_original
from explainfix.lab.shrink.search import NoiseError, shrink
from explainfix.lab.sweep.workers import Workers

NETWORKS = """
import torch
from torch import nn

def small(num_classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, num_classes, 1),
    )

class Whole(nn.Module):
    '''Nothing of it can be cut: the sum over channels needs them all.'''
    def __init__(self, num_classes, in_channels):
        super().__init__()
        self.one = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.two = nn.Conv2d(4, num_classes, 1)

    def forward(self, x):
        return self.two(torch.cumsum(self.one(x), 1))

def whole(num_classes, in_channels):
    return Whole(num_classes, in_channels)
"""
QUICK = {"epochs": 1, "batches": 2, "despite_noise": True}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "networks.py").write_text(NETWORKS)
    return RunConfig(
        model=f"{tmp_path / 'networks.py'}:small",
        data_options={"count": 16, "size": 32},
        epochs=2,
        batch_size=4,
        checkpoint_seconds=0.0,
        accelerator="cpu",
    )


@pytest.fixture
def run(config, tmp_path):
    return train(config, runs=tmp_path / "runs")


def test_a_target_is_reached_and_told(run, tmp_path):
    moments = []
    asked = Asked(params=0.4, **QUICK)
    found = shrink(str(run.folder), asked, runs=tmp_path, report=moments.append)
    assert found.reached
    assert found.small.costs.shares["params"] <= 0.4
    model = found.model()
    assert sum(p.numel() for p in model.parameters()) == found.small.costs.parameters
    assert [each.number for each in found.rounds] == [0, 1, 2]
    assert [each.parent for each in found.rounds] == [0, 0, 1]
    table = found.table()
    assert list(table.index) == [0, 1, 2]
    assert table.loc[2, "chosen"]
    assert set(found.rounds[1].tried) >= {"salient", "worth", "even", "sensitive"}
    # the best of them without training is the one that was trained
    assert found.rounds[1].tried[found.rounds[1].way] == min(found.rounds[1].tried.values())
    assert [m.done.number for m in moments if m.done] == [0, 1, 2]
    assert moments[-1].seconds_left == 0
    assert "of the parameters" in str(found)
    assert "on test" in str(found)
    assert found.small.layers["3"].outputs == model[3].out_channels
    assert len(found.small.layers["3"].spectrum) == 9
    json.dumps(found.as_dict())
    assert "<table>" in found._repr_html_()


def test_the_score_is_that_of_the_runs_evaluation_and_the_difference_is_theirs(run, tmp_path):
    """Both networks are evaluated by the door that everybody uses."""
    from explainfix.lab.run.evaluation import evaluate

    found = shrink(str(run.folder), Asked(params=0.6, **QUICK), runs=tmp_path)
    data = open_data(run.config)
    for split, value in (("val", found.small.score), ("test", found.tested.small.value)):
        assert evaluate(found.model(), data, split, resamples=1)["dice"].value == value
    before = evaluate(run.model(), data, "test", resamples=1)["dice"].value
    assert found.tested.change.value == pytest.approx(found.tested.small.value - before)
    assert found.tested.change.low <= found.tested.change.value <= found.tested.change.high


class Stop(BaseException):
    """As Ctrl-C, at a moment that the test chooses."""


def contents(folder):
    """All weights of a search, by file, without the end of a run's name, which hangs on its place.

    Checkpoints tell the time too.
    """
    files = [f for f in folder.rglob("*.safetensors") if f.name != "checkpoint.safetensors"]
    names = [re.sub(r"-[0-9a-f]{8}/", "/", str(f.relative_to(folder))) for f in files]
    return dict(zip(names, map(load_file, files), strict=True))


def test_stopped_in_every_phase_it_goes_on_to_the_same_network(run, tmp_path):
    asked = Asked(params=0.4, **QUICK)
    whole = shrink(str(run.folder), asked, runs=tmp_path / "whole")
    phases = ("cutting", "tried even", "fine-tuning", "epoch 1/1", "measuring", "done")
    moments = [(number, phase) for number in (1, 2) for phase in phases]
    cuts, stops = [], 0
    for number, phase in [(0, "measuring the original"), *moments, (3, "scoring")]:

        def stop(moment, number=number, phase=phase):
            if moment.text == "cutting":
                cuts.append(moment.number)
            if moment.number == number and phase in moment.text:
                raise Stop

        with suppress(Stop):
            shrink(str(run.folder), asked, runs=tmp_path / "stopped", report=stop)
            stops -= 1
        stops += 1
    assert stops == 14
    assert cuts == [1, 1, 1, 2, 2, 2]  # stopped before it, within it, and done: what is made stays
    again = shrink(str(run.folder), asked, runs=tmp_path / "stopped")
    assert (again.chosen, again.small.way) == (whole.chosen, whole.small.way)
    assert again.tested == whole.tested
    one, other = contents(whole.folder), contents(again.folder)
    assert one.keys() == other.keys()
    for file, tensors in one.items():
        assert all(torch.equal(tensors[k], other[file][k]) for k in tensors), file


def test_killed_it_goes_on_to_the_same_network(run, tmp_path):
    """A process that gets SIGKILL has no time for anything; rounds learn from the original."""
    script = textwrap.dedent(
        f"""
        import os, signal
        from explainfix.lab.shrink.goal import Asked
        from explainfix.lab.shrink.search import shrink
        def kill(moment):
            if moment.number == 2 and "begins" in moment.text:
                os.kill(os.getpid(), signal.SIGKILL)
        asked = Asked(params=0.4, epochs=1, batches=2, despite_noise=True, distil=0.5)
        shrink({str(run.folder)!r}, asked, runs={str(tmp_path / "killed")!r}, report=kill)
        """
    )
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | threads, check=False)
    assert done.returncode == -signal.SIGKILL
    asked = Asked(params=0.4, distil=0.5, **QUICK)
    again = shrink(str(run.folder), asked, runs=tmp_path / "killed")
    whole = shrink(str(run.folder), asked, runs=tmp_path / "whole")
    one, other = whole.model().state_dict(), again.model().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    teacher, original = load_file(whole.folder / "teacher.safetensors"), run.model().state_dict()
    assert all(torch.equal(teacher[name], original[name]) for name in original)
    for each in whole.rounds[1:]:  # all learn from the original, not from the round before
        tuned = read_run(Path(each.model)).config
        assert (tuned.distil, Path(tuned.teacher).name) == (0.5, "teacher.safetensors")
        assert tuned.teacher == f"{run.config.model}@{whole.folder / 'teacher.safetensors'}"


def test_distilling_is_another_search_and_a_teacher_is_not_handed_down(tmp_path):
    config = RunConfig(data_options={"count": 12, "size": 32}).resolved("segmentation")
    original = Original("unetd", config, open_data(config))
    asked = (Asked(params=0.5), Asked(params=0.5, distil=0.5), Asked(params=0.5, distil=0.4))
    assert len({original.folder(tmp_path, each) for each in asked}) == 3
    model, file = xf.create_model("unetd"), tmp_path / "net.safetensors"
    with torch.no_grad():
        model.head.weight.add_(1)  # it is trained
    xf.save(model, file)
    taught = replace(config, model=str(file), teacher=str(file), distil=0.5)
    found = find_original(taught, tmp_path, Workers(), lambda moment: None)
    assert (found.config.teacher, found.config.distil) == (None, None)


def test_what_is_done_is_not_done_again(run, tmp_path, monkeypatch):
    asked = Asked(params=0.6, **QUICK)
    first = shrink(str(run.folder), asked, runs=tmp_path)

    def never(*arguments, **options):
        raise AssertionError("this was done already")

    for name in ("make_candidates", "compare_costs", "sweep", "score_difference"):
        monkeypatch.setattr(f"explainfix.lab.shrink.search.{name}", never)
    again = shrink(str(run.folder), asked, runs=tmp_path)
    assert again == first


def test_a_network_that_is_not_trained_is_trained_first_and_fixed_if_asked(config, tmp_path):
    fixed = replace(config, fix="ghaar")
    found = shrink(fixed, Asked(macs=0.5, **QUICK), runs=tmp_path / "runs")
    assert found.reached
    assert "kernels" in found.rounds[1].tried  # the paper's way is one of the candidates
    xf.check_fixed(found.model())
    assert len(xf.recipes(found.model())) == 2
    assert (tmp_path / "runs" / found.title).is_dir()


def test_saved_weights_are_trained_already(run, config, tmp_path):
    file = f"{config.model}@{run.folder / 'best.safetensors'}"
    found = shrink(replace(config, model=file), Asked(params=0.6, **QUICK), runs=tmp_path / "new")
    assert found.original.score == run.result["best"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == [found.folder.name]


def test_several_finalists_in_several_processes(run, tmp_path):
    asked = Asked(params=0.6, finalists=2, **QUICK)
    found = shrink(str(run.folder), asked, runs=tmp_path, workers=Workers(count=2, cpus=1))
    runs = [path for path in (found.folder / "round-01" / "runs").iterdir() if path.is_dir()]
    assert len(runs) == 2
    best = max(json.loads((path / "result.json").read_text())["best"] for path in runs)
    assert found.small.score == pytest.approx(best, abs=1e-6)


def test_rounds_that_lose_too_much_are_told_and_the_best_is_kept(run, tmp_path, monkeypatch):
    """Every round below half of the size is made to lose a tenth."""
    real = search.score_difference

    def worse(before, after):
        change = real(before, after)
        lost = 0.1 if worse.count >= 1 else 0.0
        worse.count += 1
        return replace(change, value=-lost)

    worse.count = 0
    monkeypatch.setattr("explainfix.lab.shrink.search.score_difference", worse)
    asked = Asked(max_loss=0.01, params=0.1, rounds=3, **QUICK)
    found = shrink(str(run.folder), asked, runs=tmp_path)
    assert not found.reached
    assert found.chosen == 1
    assert [each.parent for each in found.rounds[1:]] == [0, 1, 1]
    assert found.rounds[2].aim < found.rounds[3].aim < found.rounds[1].aim
    assert "params 0.1 was not reached, it came to 0." in found.end.why


def test_a_loss_below_the_noise_is_told_with_the_number_of_images(run, tmp_path):
    asked = Asked(max_loss=0.0001, params=0.5, epochs=1, batches=2)
    with pytest.raises(NoiseError, match=r"with 4 of them .* to ±0\.\d+.*About [\d,]+ images wo"):
        shrink(str(run.folder), asked, runs=tmp_path)
    [kept] = tmp_path.glob("*/round-01/round.json")
    written = kept.stat().st_mtime_ns
    found = shrink(str(run.folder), replace(asked, despite_noise=True), runs=tmp_path)
    assert len(found.rounds) > 1
    assert kept.stat().st_mtime_ns == written  # it went on with the round that was there


def test_without_labels_nothing_can_be_told(run, tmp_path, monkeypatch):
    data = open_data(run.config)
    images = data.split("val")
    blank = [s._replace(target=torch.full_like(s.target, torch.nan)) for s in images]
    without = replace(data, splits={**data.splits, "val": Blank(images.names, blank)})
    monkeypatch.setattr("explainfix.lab.shrink.original.open_data", lambda config: without)
    with pytest.raises(ValueError, match="the images of 'val' have no labels"):
        shrink(str(run.folder), Asked(params=0.5, **QUICK), runs=tmp_path)
    assert not list(tmp_path.glob("*shrunk*"))  # nothing came of it


class Blank(list):
    def __init__(self, names, samples):
        super().__init__(samples)
        self.names = names


def test_a_network_whose_layers_all_stay_names_the_reason(config, tmp_path):
    whole = replace(config, model=config.model.replace(":small", ":whole"), epochs=1)
    with pytest.raises(ValueError, match=r"every channel of this Whole stays, because of aten.cu"):
        shrink(whole, Asked(params=0.5, **QUICK), runs=tmp_path)


def test_what_is_no_run_needs_its_data(tmp_path):
    with pytest.raises(ValueError, match="'unetd' is no run's folder: say what data"):
        shrink("unetd", Asked(params=0.5), runs=tmp_path)


def test_a_size_of_other_axes_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="images have 2 axes beside the channels"):
        shrink(str(run.folder), Asked(params=0.5, size=(1, 2, 3), **QUICK), runs=tmp_path)
    assert not list(tmp_path.glob("*shrunk*"))  # nothing came of it


def test_time_is_measured_at_the_batch_and_size_given(run, tmp_path):
    asked = Asked(latency=0.95, batch=2, size=(40,), rounds=1, **QUICK)
    original = find_original(str(run.folder), tmp_path, Workers(), lambda moment: None)
    assert original.batch(asked).shape == (2, 3, 40, 40)
    found = shrink(str(run.folder), asked, runs=tmp_path)
    ratio = found.rounds[1].costs.latency
    assert ratio.low <= ratio.middle <= ratio.high
    assert Path(found.folder / "round-01" / "made.json").is_file()
