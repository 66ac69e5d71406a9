"""Watch in a plain loop: what it sees, what it says, what it writes, and what it leaves alone."""

import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import explainfix as xf
from explainfix.explanation.compare import spectral_distance
from explainfix.watch import Timeline, Watch


def network():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 5, groups=6), nn.Conv2d(6, 2, 1)
    )


def train(model, steps=1, lr=0.5):
    """Real steps, large enough to move the spectra."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learned, lr)
    for _ in range(steps):
        model(torch.randn(4, 1, 12, 12)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def test_snapshots_are_what_explain_says_at_that_moment():
    model = network()
    before = xf.explain(model)
    watch = Watch(model)
    list(train(model, 3))
    watch.epoch()
    after = xf.explain(model)
    line = watch.timeline
    assert [(seen.epoch, seen.step) for seen in line.snapshots] == [(0, 0), (1, 0)]
    for path in ("0", "2"):
        for at, why in enumerate((before, after)):
            spectrum = line.spectrum(path, at)
            assert torch.equal(spectrum.ed, why[path].ed)
            assert torch.equal(spectrum.e0, why[path].e0)
            assert line.snapshots[at].chance[path] == why.layers[path].energy_chance
            assert float(line.low_share(path)[at]) == pytest.approx(why.layers[path].low_share)
        moved = spectral_distance(before[path].ed, after[path].ed)
        assert moved > 0.001
        assert line.drift(path).tolist() == pytest.approx([0, moved])
    assert set(line.layers) == {"0", "2"}  # a 1x1 has no spectrum


def test_it_looks_every_epoch_or_every_so_many_steps_and_once_at_the_end():
    model = network()
    by_epoch, by_step = Watch(model), Watch(model, every=3)
    for _ in range(2):
        for _ in range(4):
            by_epoch.step()
            by_step.step()
        by_epoch.epoch()
        by_step.epoch()
    moments = [[(s.epoch, s.step) for s in w.timeline.snapshots] for w in (by_epoch, by_step)]
    assert moments == [[(0, 0), (1, 4), (2, 8)], [(0, 0), (0, 3), (1, 6)]]
    by_epoch.close()
    by_step.close()
    by_step.close()
    moments = [[(s.epoch, s.step) for s in w.timeline.snapshots] for w in (by_epoch, by_step)]
    assert moments == [[(0, 0), (1, 4), (2, 8)], [(0, 0), (0, 3), (1, 6), (2, 8)]]


def test_steps_and_epochs_may_be_counted_by_the_loop():
    watch = Watch(network(), every=10)
    for step in (4, 9, 12, 19, 35):
        watch.step(step)
    assert [seen.step for seen in watch.timeline.snapshots] == [0, 12, 35]
    watch.epoch(7)
    watch.step(36)
    watch.close()
    assert watch.timeline.snapshots[-1].name == "epoch 7, step 36"


def test_logs_get_the_numbers_by_their_names():
    model, logged = network(), []
    xf.fix_(model, "ghaar", layers="2")
    watch = Watch(model, log=lambda numbers, step: logged.append((step, dict(numbers))))
    list(train(model))
    watch.step()
    watch.epoch()
    list(train(model))
    watch.epoch()  # a loop that counts no steps from here on
    steps = [step for step, _ in logged]
    assert steps == [0, 1, 1]
    _, last = logged[-1]
    assert set(last) == {
        "explainfix/drift/0", "explainfix/low_frequency_share/0",
        "explainfix/drift/2", "explainfix/low_frequency_share/2",
        "explainfix/drift_mean", "explainfix/fixed_changed",
    }  # fmt: skip
    assert last["explainfix/drift/2"] == last["explainfix/fixed_changed"] == 0
    assert last["explainfix/drift_mean"] == pytest.approx(last["explainfix/drift/0"] / 2)
    assert last["explainfix/drift/0"] == pytest.approx(float(watch.timeline.drift("0")[-1]))


def test_a_fixed_filter_that_moved_is_an_error_that_names_its_layer(tmp_path):
    model, logged = network(), []
    xf.fix_(model, "ghaar")
    watch = Watch(
        model, page=tmp_path / "a.html", log=lambda numbers, step: logged.append(dict(numbers))
    )
    watch.epoch()
    model[2].weight.data[0] += 1
    with pytest.raises(ValueError, match="at epoch 2: 1 of 2 fixed layers changed: '2'"):
        watch.epoch()
    assert watch.timeline.snapshots[-1].changed == ("2",)
    assert logged[-1]["explainfix/fixed_changed"] == 1
    with pytest.raises(ValueError, match="at epoch 3"):
        watch.epoch()


def test_what_was_seen_is_written_even_if_a_filter_moved(tmp_path):
    model = network()
    xf.fix_(model, "ghaar")

    def loop():
        with Watch(model, page=tmp_path / "a.html", file=tmp_path / "a.json") as watch:
            model[0].weight.data[0] += 1
            watch.epoch()

    with pytest.raises(ValueError, match="fixed layers changed"):
        loop()
    assert "1 of 2 fixed layers changed: 0." in (tmp_path / "a.html").read_text()
    assert Timeline.load(tmp_path / "a.json").snapshots[-1].changed == ("0",)


def test_it_may_warn_once_or_not_at_all():
    model = network()
    xf.fix_(model, "ghaar")
    loud, quiet = Watch(model, fixed="warn"), Watch(model, fixed="ignore")
    model[0].weight.data[0] += 1
    with pytest.warns(UserWarning, match="'0' .kernels differ from 'ghaar'"):
        loud.epoch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loud.epoch()  # the same layers: said once
        quiet.epoch()
    model[2].weight.data[0] += 1
    with pytest.warns(UserWarning, match="2 of 2"):
        loud.epoch()


def test_the_model_is_left_alone():
    torch.manual_seed(1)
    model = nn.Sequential(spectral_norm(nn.Conv2d(1, 4, 3)), nn.BatchNorm2d(4), nn.Dropout())
    model.train()
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [parameter.grad for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    drawn = torch.get_rng_state()
    watch = Watch(model)
    watch.epoch()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert all(a is p.grad for a, p in zip(grads, model.parameters(), strict=True))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(drawn, torch.get_rng_state())
    # As in evaluation, which is how spectral_norm's weight is used then.
    model.eval()
    assert torch.equal(watch.timeline.spectrum("0").ed, xf.explain(model)["0"].ed)


def test_layers_that_come_and_go_or_change_their_kernels_are_gaps():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LazyConv2d(4, 3), nn.Conv2d(4, 4, 3))
    watch = Watch(model)
    model(torch.randn(1, 1, 12, 12))
    watch.epoch()
    model[2] = nn.Conv2d(4, 4, 5, padding=1)
    watch.epoch()
    line = watch.timeline
    seen = ["".join(snapshot.ed) for snapshot in line.snapshots]
    assert seen == ["02", "012", "012"]
    assert line.drift("1").isfinite().tolist() == [False, True, True]
    assert line.drift("1")[1] == 0
    assert line.drift("2").isfinite().tolist() == [False, False, True]
    assert line.metrics()["explainfix/drift/2"] == 0


def test_weights_that_are_no_numbers_any_more(tmp_path):
    model = network()
    watch = Watch(model, file=tmp_path / "a.json", page=tmp_path / "a.html")
    model[0].weight.data.fill_(float("nan"))
    watch.epoch()
    watch.close()
    assert "NaN" not in (tmp_path / "a.json").read_text()
    again = Timeline.load(tmp_path / "a.json")
    assert again.drift("0").isnan().tolist() == [False, True]
    assert again.verdict == "No spectrum of 2 layers moved."
    model[2].weight.data.fill_(float("inf"))
    watch.epoch()
    assert watch.timeline.verdict == "No layer's spectrum is a number any more."


def test_a_file_holds_every_number_as_it_was(tmp_path):
    model = network()
    xf.fix_(model, "psine", layers="2")
    with Watch(model, every=1, file=tmp_path / "a.json", title="mine") as watch:
        for _ in train(model, 3):
            watch.step()
        watch.epoch()
    line, again = watch.timeline, Timeline.load(tmp_path / "a.json")
    assert (again.title, again.basis, again.layers) == ("mine", "dct2", line.layers)
    assert again.layers["2"].fixed_by == "psine"
    assert len(again.snapshots) == 4
    for one, other in zip(line.snapshots, again.snapshots, strict=True):
        assert (one.epoch, one.step, one.changed) == (other.epoch, other.step, other.changed)
        assert all(torch.equal(one.ed[path], other.ed[path]) for path in one.ed)
        assert one.chance == other.chance
    assert repr(again) == repr(line)
    table = again.table()
    assert len(table) == 8
    assert table.loc[7, "layer"] == "2"
    assert table.loc[7, "ed_24"] == float(line.snapshots[-1].ed["2"][24])


def test_a_training_goes_on_with_its_timeline(tmp_path):
    model = network()
    whole, first = Watch(model), Watch(model, file=tmp_path / "a.json")
    list(train(model))
    whole.epoch()
    first.epoch()
    late = Timeline.load(tmp_path / "a.json")
    second = Watch(model, timeline=late.until(1))
    list(train(model))
    whole.epoch()
    second.epoch()
    assert second.timeline.as_dict() == whole.timeline.as_dict()
    assert len(second.timeline.until(1).snapshots) == 2


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": 2}', '{"format": 1, "title": "", "basis": "dct2", "layers": 3}'],
)
def test_a_file_that_is_something_else_is_refused_by_name(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json"):
        Timeline.load(tmp_path / "a.json")


def test_a_layer_that_is_not_listed_is_refused():
    record = Watch(network()).timeline.as_dict()
    del record["layers"]["0"]
    with pytest.raises(ValueError, match="not among the layers"):
        Timeline.from_dict(json.loads(json.dumps(record)))


def test_files_that_are_there_are_kept_unless_told_otherwise(tmp_path):
    (tmp_path / "a.html").write_text("mine")
    with pytest.raises(FileExistsError, match="exists already"):
        Watch(network(), page=tmp_path / "a.html")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Watch(network(), file=tmp_path / "no" / "a.json")
    with Watch(network(), page=tmp_path / "a.html", overwrite=True) as watch:
        watch.epoch()
    assert "mine" not in (tmp_path / "a.html").read_text()[:5]


def test_the_page_is_written_between_if_asked_for(tmp_path):
    page = tmp_path / "a.html"
    watch = Watch(network(), page=page, page_every=2)
    watch.epoch()
    assert not page.exists()
    watch.epoch()
    assert "epoch 2" in page.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 0}, "every must be at least 1"),
        ({"page_every": -1}, "page_every must be at least 1"),
        ({"fixed": "rais"}, "did you mean 'raise'"),
        ({"basis": "dct"}, "did you mean 'dct2'"),
        ({"basis": "pca"}, "principal axes move"),
    ],
)
def test_wrong_options_are_answered(options, said):
    with pytest.raises(ValueError, match=said):
        Watch(network(), **options)


def test_a_model_without_spatial_layers_is_refused():
    with pytest.raises(ValueError, match="no spatial layer"):
        Watch(nn.Linear(3, 3))


def test_a_model_that_is_a_layer_has_a_name():
    watch = Watch(nn.Conv2d(3, 4, 3))
    watch.epoch()
    assert "explainfix/drift/model" in watch.timeline.metrics()
