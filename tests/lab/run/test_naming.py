"""Names of runs: what is in them, and what makes another run."""

from dataclasses import fields, replace

import pytest

import explainfix as xf
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.naming import differences, run_name


def test_the_name_changes_with_what_changes_the_result_only(tmp_path):
    config = RunConfig(fix="ghaar")
    assert run_name(config) == run_name(RunConfig(fix="ghaar", workers=2, tensorboard=True))
    others = [replace(config, seed=1), replace(config, lr=0.1), replace(config, fix="psine")]
    assert len({run_name(config), *(run_name(other) for other in others)}) == 4
    assert run_name(config).startswith("unetd-nuclei-ghaar-")
    file = tmp_path / "net.py"
    file.write_text("one")
    own = RunConfig(model=f"{file}:make")
    first = run_name(own)
    assert first.startswith("net")
    file.write_text("two")
    assert run_name(own) != first  # the file is another one now


def test_a_teacher_makes_another_run(tmp_path):
    file = tmp_path / "teacher.safetensors"
    xf.save(xf.create_model("unetd"), file)
    taught = RunConfig(teacher=str(file), distil=0.5)
    names = [run_name(RunConfig()), run_name(taught), run_name(replace(taught, distil=0.4))]
    xf.save(xf.create_model("unetd", num_classes=2), file, overwrite=True)
    assert len({*names, run_name(taught)}) == 4  # the file is another one now


def test_an_option_that_came_later_leaves_other_names_as_they_were():
    assert run_name(RunConfig()) == "unetd-nuclei-learned-b4a61771"
    assert run_name(RunConfig(compile=True)) != run_name(RunConfig())


def test_the_name_is_of_all_options(monkeypatch):
    """With another default, a run that says nothing has another name; one that says it has not."""
    before, said = run_name(RunConfig()), run_name(RunConfig(lr=0.1))
    monkeypatch.setattr(RunConfig.__init__, "__defaults__", _with(RunConfig, lr=0.1))
    assert run_name(RunConfig()) == said != before


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
    assert differences(file, RunConfig(epochs=3, seed=5, lr=0.1)) == {
        "seed": (0, 5),
        "lr": (None, 0.1),
    }
    file.write_text(file.read_text().replace("# lr =\n", ""))  # written before there was `lr`
    assert differences(file, RunConfig(epochs=3)) == {}


@pytest.mark.parametrize(
    ("options", "title"),
    [
        ({"model": "nets/my_net.py:unet"}, "my_net_unet-nuclei-learned-"),
        ({"model": "nets/my_net.py:unet@some/w.pth"}, "my_net_unet_w-nuclei-learned-"),
        ({"model": "some/fixed.safetensors"}, "fixed-nuclei-learned-"),
        ({"model": "torchvision:resnet18"}, "torchvision_resnet18-nuclei-learned-"),
        ({"data": "folder:some/place"}, "unetd-folder_place-learned-"),
        ({"data": "folder:some/place.zip", "fix": "ghaar"}, "unetd-folder_place-ghaar-"),
        ({"fix": "ghaar", "mix": True}, "unetd-nuclei-ghaar_mixed-"),
        ({"fix": "dct2", "steer": True}, "unetd-nuclei-dct2_steered-"),
    ],
)
def test_names_tell_factory_folder_and_filters(options, title):
    assert run_name(RunConfig(**options)).startswith(title)


def test_the_filters_of_a_saved_model_are_told(tmp_path):
    model = xf.create_model("unetd")
    for name, told in (("plain", "learned"), ("fixed", "psine")):
        file = tmp_path / f"{name}.safetensors"
        xf.save(model, file)
        assert run_name(RunConfig(model=str(file))).startswith(f"{name}-nuclei-{told}-")
        xf.fix_(model, "psine")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    broken = RunConfig(model=str(tmp_path / "broken.safetensors"))
    assert run_name(broken).startswith("broken-nuclei-learned-")
