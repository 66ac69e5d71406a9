"""Configs: what is wrong in one is said, and what is written is read back."""

import pytest

from explainfix.lab.run.config import RunConfig, make_config, put_options, read_config


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
        ("distil = 0.5", "distil needs teacher, the network to learn from"),
        ('teacher = "x"', "teacher needs distil, the share of the loss"),
        ('teacher = "x"\ndistil = 1.5', "distil must be above 0 and at most 1, not 1.5"),
        ("train_share = 0.0", "train_share must be above 0 and at most 1, not 0.0"),
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


def test_options_are_put_into_a_file(tmp_path):
    file = tmp_path / "run.toml"
    put_options(file, {"lr": 0.1, "frugal": True})
    assert file.read_text() == "lr = 0.1\nfrugal = true\n"
    file.write_text("# mine\nlr=0.2 # high\n\n[data_options]\nfrugal = 3\n")
    put_options(file, {"lr": 0.1, "frugal": True})
    lines = ["frugal = true", "# mine", "lr = 0.1", "", "[data_options]", "frugal = 3"]
    assert file.read_text().splitlines() == lines
    text = '"lr" = 0.2\n'
    file.write_text(text)
    with pytest.raises(ValueError, match=r"cannot be changed line by line: write lr = 0\.1"):
        put_options(file, {"lr": 0.1})
    assert file.read_text() == text


def test_defaults_are_the_papers():
    assert RunConfig().resolved("segmentation").lr == 0.008
    xray = RunConfig().resolved("multilabel")
    assert (xray.lr, xray.loss, xray.eval_batch_size, xray.optimizer) == (1e-4, "focal", 10, "adam")


def test_a_loss_must_fit_the_task():
    with pytest.raises(ValueError, match="unknown loss for segmentation 'focal': choose from"):
        RunConfig(loss="focal").resolved("segmentation")
    assert RunConfig(loss="bce").resolved("multilabel").loss == "bce"
