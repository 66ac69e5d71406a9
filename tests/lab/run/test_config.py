"""Configs: what is wrong in one is said, and what is written is read back."""

from dataclasses import fields, replace

import pytest

from explainfix.lab.run.config import RunConfig, differences, make_config, read_config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('modell = "unetd"', "unknown option 'modell': did you mean 'model'"),
        ("epochs = 2.5", "epochs must be a whole number, not 2.5"),
        ("epochs = true", "epochs must be a whole number, not True"),
        ("epochs = 0", "epochs must be at least 1, not 0"),
        ('lr = "fast"', "lr must be a number, not 'fast'"),
        ("lr = -1", "lr must be above 0, not -1.0"),
        ("lr = nan", "lr must be above 0, not nan"),
        ("seed = -1", "seed must be at least 0"),
        ('channels_last = "yes"', "channels_last must be true or false, not 'yes'"),
        ('schedule = "onecycel"', "unknown schedule 'onecycel': did you mean 'onecycle'"),
        ('evaluate_on = "val"', "evaluate_on must be a list of names, not 'val'"),
        ("evaluate_on = []", "evaluate_on must name a split"),
        ("data_options = 3", "data_options must be a table of options, not 3"),
        ('fix = "gharr"', "unknown filter method 'gharr': did you mean 'ghaar'"),
        ('fix_guide = "x"', "needs fix"),
        ("zero = 0.5", "zero needs fix, or a saved model"),
        ('fix = "ghaar"\nzero = 1', "zero must be above 0 and below 1, not 1.0"),
        ('fix = "ghaar"\nzero = 0.0', "zero must be above 0 and below 1, not 0.0"),
        ('fix = "ghaar"\nprune = true', "prune needs zero"),
        ("model = ", "is no TOML file"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_config(file)
    assert str(file) in str(caught.value)


def test_the_whole_config_is_written_and_read_back(tmp_path):
    config = RunConfig(
        data='folder:a "b"\\ö', data_options={"count": 8, "robust": True}, fix="guidedsteer",
        fix_options={"sampling": "normal"}, fix_layers=("a.*", "b"), lr=0.1, clip=1,
    ).resolved("segmentation")  # fmt: skip
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml())
    assert make_config(read_config(file)) == config
    names = {line.split()[0] for line in config.to_toml().splitlines() if " = " in line}
    assert "loss" in names
    assert "# weights =" in config.to_toml()


def test_defaults_are_the_papers():
    assert RunConfig().resolved("segmentation").lr == 0.008
    xray = RunConfig().resolved("multilabel")
    assert (xray.lr, xray.loss, xray.eval_batch_size, xray.optimizer) == (1e-4, "focal", 10, "adam")


def test_a_loss_must_fit_the_task():
    with pytest.raises(ValueError, match="unknown loss for segmentation 'focal': choose from"):
        RunConfig(loss="focal").resolved("segmentation")
    assert RunConfig(loss="bce").resolved("multilabel").loss == "bce"


def test_the_name_changes_with_what_changes_the_result_only(tmp_path):
    config = RunConfig(fix="ghaar")
    assert config.name() == RunConfig(fix="ghaar", workers=2, tensorboard=True).name()
    others = [replace(config, seed=1), replace(config, lr=0.1), replace(config, fix="psine")]
    assert len({config.name(), *(other.name() for other in others)}) == 4
    assert config.name().startswith("unetd-nuclei-ghaar-")
    file = tmp_path / "net.py"
    file.write_text("one")
    own = RunConfig(model=f"{file}:make")
    first = own.name()
    assert first.startswith("net")
    file.write_text("two")
    assert own.name() != first  # the file is another one now


def test_the_name_is_of_all_options(monkeypatch):
    """With another default, a run that says nothing has another name; one that says it has not."""
    before, said = RunConfig().name(), RunConfig(lr=0.1).name()
    monkeypatch.setattr(RunConfig.__init__, "__defaults__", _with(RunConfig, lr=0.1))
    assert RunConfig().name() == said != before


def _with(kind, **changed):
    """The defaults of a dataclass, with others for some."""
    names = [entry.name for entry in fields(kind) if entry.init]
    return tuple(
        changed.get(name, default)
        for name, default in zip(names, kind.__init__.__defaults__, strict=True)
    )


def test_what_is_not_in_a_file_is_told_from_what_has_no_value(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(RunConfig(epochs=3, workers=4).to_toml())
    assert differences(file, RunConfig(epochs=3)) == {}
    assert differences(file, RunConfig(epochs=5, lr=0.1)) == {"epochs": (3, 5), "lr": (None, 0.1)}
    file.write_text(file.read_text().replace("# lr =\n", ""))  # written before there was `lr`
    assert differences(file, RunConfig(epochs=3)) == {}
