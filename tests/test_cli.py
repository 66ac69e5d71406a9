"""The command line as a user sees it, in a process of its own where streams count."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import explainfix as xf
from explainfix.cli import main


def run(*arguments, **options):
    command = [sys.executable, "-m", "explainfix", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


INFO = """\
spatial layer       kernel  kernels  parameters  share
encoder.0.0.3          3x3       18         162  0.14%  psine
encoder.0.1.3          3x3       18         162  0.14%
encoder.1.0.3          3x3       48         432  0.37%
encoder.1.1.3          3x3       48         432  0.37%
encoder.2.0.3          3x3       96         864  0.74%
encoder.2.1.3          3x3       96         864  0.74%
encoder.3.0.3          3x3      192       1,728  1.48%
encoder.3.1.3          3x3      192       1,728  1.48%
decoder.0.before.3     3x3      192       1,728  1.48%
decoder.0.after.3      3x3      192       1,728  1.48%
decoder.1.before.3     3x3       96         864  0.74%
decoder.1.after.3      3x3       96         864  0.74%
decoder.2.before.3     3x3       48         432  0.37%
decoder.2.after.3      3x3       48         432  0.37%
decoder.3.before.3     3x3       18         162  0.14%
decoder.3.after.3      3x3       18         162  0.14%

unetd: 116,695 parameters, 12,744 (10.9%) in 16 spatial layers, 0 fixed
With all of them fixed, 103,951 (89.1%) would be left to learn.
Random weights: this shows the initialisation, not what was learned.
"""


def tidy(text):
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_info():
    done = run("info", "unetd")
    assert done.returncode == 0
    assert tidy(done.stdout) == INFO.replace("  psine", "")
    assert "\x1b" not in done.stdout  # no colours into a pipe


def test_fix_then_info_then_load(tmp_path):
    file = tmp_path / "fixed.safetensors"
    done = run(
        "fix", "unetd", "--method", "psine", "--seed", 3, "--layers", "encoder.0.0.*",
        "--num-classes", 2, "-o", file,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [
        "Fixed 1 of 16 spatial layers by psine, seed 3.",
        "Left to learn: 116,536 of 116,698 parameters (99.9%).",
    ]
    model = xf.load(file)
    xf.check_fixed(model)
    assert model.head.out_channels == 2
    shown = run("info", file).stdout
    assert tidy(shown).splitlines()[1] == INFO.splitlines()[1]
    assert "fixed by" in shown
    assert "1 fixed" in shown


def test_what_to_do_before_a_fixed_model_runs(tmp_path, capsys):
    words = ["fix", "torchvision:resnet18", "--force", "-o", str(tmp_path / "m.safetensors")]
    assert main([*words, "--method", "ghaar"]) == 0
    said = "Note: BatchNorm has not seen data yet; outputs in eval mode may overflow until it has"
    assert said in capsys.readouterr().out
    for more in (["ghaar", "--scale", "fan_in"], ["unchanged"]):
        assert main([*words, "--method", *more]) == 0
        assert "eval mode" not in capsys.readouterr().out
    assert main(["fix", "torchvision:vgg11", *words[2:], "--method", "ghaar", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warning"].startswith("the model has no normalisa")


def test_json(tmp_path, capsys):
    file = tmp_path / "fixed.safetensors"
    options = ["--scale", "fan_in", "--option", "frequencies=independent", "--json"]
    assert main(["fix", "unetd", "--method", "ghaar", "-o", str(file), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["method"], printed["seed"], printed["scale"]) == ("ghaar", 0, "fan_in")
    assert printed["options"] == {"frequencies": "independent"}
    assert printed["bytes"] == file.stat().st_size
    assert len(printed["digests"]) == 16

    assert main(["info", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["spatial_parameters"] == 12_744
    assert printed["spatial_layers"][0] == {
        "layer": "encoder.0.0.3", "kernel": [3, 3], "parameters": 162, "fixed_by": "ghaar",
    }  # fmt: skip

    assert main(["list", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["filters"]) == xf.list_filters()
    assert printed["models"] == xf.list_models()


def test_list(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in xf.list_filters())
    assert "--option sampling=joint|kde|normal" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert main(["list", "models", "torchvision:vgg1?"]) == 0
    assert capsys.readouterr().out.split() == xf.list_models("torchvision:vgg1?")
    assert main(["list", "filters"]) == 0
    assert "models" not in capsys.readouterr().out


def test_a_guide_from_a_file(tmp_path):
    (tmp_path / "a@b").mkdir()
    guide = tmp_path / "a@b" / "guide.safetensors"
    xf.save(xf.create_model("unetd"), guide)
    arguments = ["unetd", "--method", "guidedsteer", "--guide", str(guide)]
    assert (
        main(["fix", *arguments, "-O", "centred=true", "-o", str(tmp_path / "a.safetensors")]) == 0
    )
    options = {
        recipe.options["centred"]
        for recipe in xf.recipes(xf.load(tmp_path / "a.safetensors")).values()
    }
    assert options == {True}


def test_the_guide_that_ships(tmp_path):
    output = tmp_path / "a.safetensors"
    arguments = ["unetd", "--method", "guidedsteer", "--guide", "imagenet", "-o", str(output)]
    assert main(["fix", *arguments]) == 0
    named = {recipe.options["guide"] for recipe in xf.recipes(xf.load(output)).values()}
    assert named == {f"imagenet:{depth}" for depth in ("stem", "early", "middle", "late")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fix unetd --method gharr -o OUT", "unknown filter method 'gharr': did you mean 'ghaar'?"),
        ("fix resnet18 --method ghaar -o OUT", "did you mean 'torchvision:resnet18'"),
        ("fix unetd --method ghaar -o OUT --seed many", "many"),
        ("fix unetd --method ghaar -o OUT --sede 1", "--seed"),
        ("fix unetd --method ghaar", "--output"),
        ("fix unetd --method ghaar -o OUT -O frequencies", "'frequencies' is not of the form"),
        ("fix unetd --method ghaar -o OUT -O frequencies=2", "'2'"),
        ("fix unetd --method ghaar -o OUT --scale big", "big"),
        ("fix unetd --method ghaar -o OUT --layers nope", "'nope'"),
        ("fix unetd --method ghaar -o missing/x.safetensors", "'missing'"),
        ("fix unetd --method ghaar -o OUT --guide unetd", "no pretrained weights for 'unetd'"),
        ("fxi unetd", '"fix"'),
        ("info missing.safetensors", "'missing.safetensors': No such file or directory"),
        ("info missing.py:make", "no file 'missing.py'"),
        ("info unetd --weights missing.pth", "'missing.pth': No such file or directory"),
        ("list models nothing*", "no model matches 'nothing*'"),
        ("list everything", "everything"),
        ("info unetd --in-channels 1.5", "a whole number is needed, not '1.5'"),
        ("tune unetd --batch-size 2.5", "a whole number is needed, not '2.5'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.replace("OUT", "out.safetensors").split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_existing_file_needs_force(tmp_path):
    file = tmp_path / "out.safetensors"
    file.write_text("precious")
    arguments = ["fix", "unetd", "--method", "ones", "-o", str(file)]
    assert main(arguments) == 2
    assert file.read_text() == "precious"
    assert main([*arguments, "--force"]) == 0
    xf.check_fixed(xf.load(file))


def test_a_saved_file_is_complete(tmp_path, capsys):
    file = tmp_path / "m.safetensors"
    xf.save(xf.create_model("unetd"), file)
    assert main(["info", str(file), "--num-classes", "3"]) == 2
    assert "it takes no --weights, --num-classes" in capsys.readouterr().err


def test_in_a_process_of_its_own_mistakes_leave_no_traceback():
    done = run("info", "resnet")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown model 'resnet'")
    assert "Traceback" not in done.stderr


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m explainfix list models | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("unetd\n", "")


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == xf.__version__
    assert main(["fix", "--help"]) == 0
    assert "--method" in capsys.readouterr().out


class TestExplain:
    @pytest.fixture
    def data(self, tmp_path):
        file = tmp_path / "data.npz"
        random = np.random.default_rng(0)
        np.savez(
            file,
            x=random.normal(size=(6, 3, 32, 32)).astype("float32"),
            y=random.random((6, 32, 32)) > 0.5,
        )
        return file

    @pytest.fixture
    def trained(self, tmp_path):
        """Weights of whatever origin: nobody knows that they are random."""
        torch.save(xf.create_model("unetd").state_dict(), tmp_path / "w.pth")
        return tmp_path / "w.pth"

    def test_without_data(self, trained, capsys):
        assert main(["explain", "unetd"]) == 0
        printed = capsys.readouterr().out
        assert "decoder.3.after.3" in printed
        assert "Not weighted: no data was given" in printed
        assert printed.startswith(
            "Random weights: this shows the initialisation, not what was lear"
        )
        assert "Give data" not in printed
        assert max(map(len, printed.splitlines())) <= 80
        assert main(["explain", f"unetd@{trained}"]) == 0
        printed = capsys.readouterr().out
        assert "Random weights" not in printed
        assert "Give data to see what matters" in printed

    @pytest.mark.parametrize("suffix", ["html", "png", "svg", "pdf", "json", "csv", "parquet"])
    def test_every_kind_of_file(self, tmp_path, suffix, capsys):
        file = tmp_path / f"why.{suffix}"
        assert main(["explain", "unetd", "-o", str(file)]) == 0
        assert f"Wrote {file}." in capsys.readouterr().out
        assert file.stat().st_size > 2000
        assert main(["explain", "unetd", "-o", str(file)]) == 2
        assert main(["explain", "unetd", "-o", str(file), "--force"]) == 0
        if suffix in ("json", "csv", "parquet"):
            assert len(xf.Explanation.load(file)) == 16

    def test_with_data(self, data, trained, capsys):
        words = ["--data", str(data), "--batch-size", "2", "--json"]
        assert main(["explain", "unetd", *words]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["untrained"]
        assert [advice["kind"] for advice in printed["advice"]] == ["untrained"]
        assert main(["explain", f"unetd@{trained}", *words]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert not printed["untrained"]
        assert printed["weighted"]
        assert sum(layer["saliency_share"] for layer in printed["layers"]) == pytest.approx(1)
        assert {advice["kind"] for advice in printed["advice"]} >= {"zeroing", "frequency"}

    def test_layers_that_no_score_reaches_are_named(self, data, tmp_path, capsys):
        (tmp_path / "own.py").write_text(
            "from torch import nn\n"
            "class Own(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.used = nn.Conv2d(3, 4, 3)\n"
            "        self.idle = nn.ModuleList(nn.Conv2d(3, 4, 3) for _ in range(5))\n"
            "    def forward(self, x):\n"
            "        return self.used(x)\n"
        )
        np.savez(data, x=np.ones((2, 3, 8, 8), dtype="float32"))
        words = [f"{tmp_path / 'own.py'}:Own", "--data", str(data)]
        line = "No score reaches 5 layers: idle.0, idle.1, idle.2 and 2 more."
        assert main(["explain", *words]) == 0
        assert line in capsys.readouterr().out
        file = str(tmp_path / "small.safetensors")
        assert main(["prune", *words, "--zero", "0.5", "-o", file]) == 0
        assert line in capsys.readouterr().out
        assert main(["explain", *words, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["silent"] == [f"idle.{i}" for i in range(5)]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("explain unetd -o why.docx", "'why.docx' must end in one of .html, .png"),
            ("explain unetd --data missing.npz", "'missing.npz': No such file or directory"),
            ("explain unetd --data data.npz --batch-size 0", "at least 1"),
            ("explain unetd --data data.npz --in-channels 1", "does not run on a batch of shape"),
            ("explain unetd --basis fourier", "fourier"),
            ("explain unetd --basis har", 'Did you mean "haar"'),
            ("compare unetd missing.safetensors", "'missing.safetensors': No such file"),
            ("compare unetd unetd -o out.png", "'out.png' must end in one of .html, .csv"),
        ],
    )
    def test_mistakes(self, arguments, message, data, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(arguments.split()) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.err.count("\n") == 1
        assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


class TestCompare:
    @pytest.fixture
    def files(self, tmp_path):
        model = xf.create_model("unetd")
        xf.fix_(model, "ghaar", layers="encoder.*")
        xf.save(model, tmp_path / "before.safetensors")
        with torch.no_grad():
            model.decoder[0].before[3].weight.add_(0.1)
        xf.save(model, tmp_path / "after.safetensors")
        with torch.no_grad():
            model.encoder[0][0][3].weight.add_(0.1)
        xf.save(model, tmp_path / "broken.safetensors")
        return tmp_path

    def test_yes_or_the_list(self, files, capsys, monkeypatch):
        monkeypatch.chdir(files)
        before, after, broken = (f"{n}.safetensors" for n in ("before", "after", "broken"))
        assert main(["compare", before, after]) == 0
        printed = capsys.readouterr().out
        warning, _, verdict = printed.partition("\n\n")
        assert " ".join(warning.split()).startswith(
            f"Random weights in {before}: this shows the init"
        )
        assert verdict.startswith(
            "All 8 fixed layers are as they were fixed. 1 of 16 layers changed"
        )
        assert "and 15 layers that did not change" in printed
        assert "\x1b" not in printed
        assert max(map(len, printed.splitlines())) <= 80
        assert main(["compare", before, broken, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["still_fixed"] is False
        assert list(printed["not_fixed"]) == ["encoder.0.0.3"]
        assert "encoder.0.0.3" in printed["verdict"]
        changed = {row["layer"] for row in printed["layers"] if row["changed"]}
        assert changed == {"encoder.0.0.3", "decoder.0.before.3"}

    def test_rules_give_exit_codes(self, files, capsys):
        before, after, broken = (
            str(files / f"{n}.safetensors") for n in ("before", "after", "broken")
        )
        assert main(["compare", before, after, "--require-fixed"]) == 0
        assert main(["compare", before, before, "--require-fixed", "--max-change", "0"]) == 0
        assert "failed" not in capsys.readouterr().out
        assert main(["compare", before, after, "--max-change", "0.1"]) == 1
        assert "failed: decoder.0.before.3: changed by" in capsys.readouterr().out
        assert main(["compare", before, after, "--max-change", "100"]) == 0
        capsys.readouterr()
        assert main(["compare", before, broken, "--require-fixed", "--json"]) == 1
        (said,) = json.loads(capsys.readouterr().out)["broken"]
        assert said.startswith("encoder.0.0.3: kernels differ from 'ghaar'")
        assert main(["compare", "unetd", "unetd", "--require-fixed"]) == 1
        assert "failed: no layer is fixed in either network" in capsys.readouterr().out
        assert main(["compare", before, after, "--max-change", "-1"]) == 2
        assert "--max-change must be at least 0" in capsys.readouterr().err

    def test_checkpoints_of_any_origin(self, tmp_path, capsys):
        model = xf.create_model("unetd")
        torch.save(model.state_dict(), tmp_path / "epoch1.pth")
        with torch.no_grad():
            model.decoder[0].before[3].weight[:5].add_(0.1)
        torch.save({"state_dict": model.state_dict()}, tmp_path / "epoch2.pth")
        names = [f"unetd@{tmp_path / name}" for name in ("epoch1.pth", "epoch2.pth")]
        assert main(["compare", *names, "--json"]) == 0
        layers = json.loads(capsys.readouterr().out)["layers"]
        assert {row["layer"]: row["changed"] for row in layers if row["changed"]} == {
            "decoder.0.before.3": 5
        }
        assert main(["info", names[0], "--weights", "other.pth"]) == 2
        assert "names its weights already" in capsys.readouterr().err

    @pytest.mark.parametrize("suffix", ["html", "csv"])
    def test_files(self, files, suffix):
        before, after = str(files / "before.safetensors"), str(files / "after.safetensors")
        assert main(["compare", before, after, "-o", str(files / f"out.{suffix}")]) == 0
        assert "decoder.0.before.3" in (files / f"out.{suffix}").read_text()


class TestPrune:
    @pytest.fixture
    def data(self, tmp_path):
        random = np.random.default_rng(0)
        images = random.normal(size=(6, 3, 32, 32)).astype("float32")
        np.savez(tmp_path / "data.npz", x=images, y=random.random((6, 32, 32)) > 0.5)
        return str(tmp_path / "data.npz")

    @pytest.mark.parametrize("share", [["--zero", "0.9"], ["--target-params", "0.7"]])
    def test_a_smaller_model_is_written(self, data, tmp_path, share, capsys):
        file = str(tmp_path / "small.safetensors")
        assert main(["prune", "unetd", "--data", data, *share, "-o", file, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["output"] == file
        assert printed["after"]["parameters"] < 0.95 * printed["before"]["parameters"]
        small = xf.load(file)
        assert sum(p.numel() for p in small.parameters()) == printed["after"]["parameters"]
        assert main(["info", file]) == 0

    def test_the_report_is_printed(self, data, tmp_path):
        file, page = tmp_path / "small.safetensors", tmp_path / "page.html"
        options = ["--zero", "0.9", "-o", file, "--report", page]
        done = run("prune", "unetd", "--data", data, *options, env={**os.environ, "COLUMNS": "80"})
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == "Zeroed 1,274 kernels (90.0%), and cut what died of it."
        assert [line.split("  ")[0] for line in lines[3:6]] == [
            "parameters", "kilobytes", "million multiply-adds",
        ]  # fmt: skip
        assert any(line.startswith("Largest change of an output") for line in lines)
        assert lines[-2].startswith(f"Wrote {file}, ")
        assert lines[-1] == f"Wrote {page}."
        assert max(len(line) for line in lines if "Wrote" not in line) <= 80
        assert "What pruning removed" in page.read_text()

    def test_layers_to_keep(self, data, tmp_path, capsys):
        file = str(tmp_path / "small.safetensors")
        share = ["--zero", "0.99", "-o", file, "--json"]
        kept = ["--keep", "encoder.0.*", "--keep", "decoder.*", "--keep-at-least", "3"]
        assert main(["prune", "unetd", "--data", data, *share, *kept]) == 0
        rows = json.loads(capsys.readouterr().out)["layers"]
        assert all(row["outputs_after"] >= min(3, row["outputs_before"]) for row in rows)
        assert not any(row["outputs_pruned"] for row in rows if row["layer"].startswith("decoder"))
        assert any(row["outputs_pruned"] for row in rows)
        assert main(["prune", "unetd", "--data", data, *share, "--force", "--keep", "haed"]) != 0
        assert "'haed'" in capsys.readouterr().err

    def test_without_filling_the_zeros_stay(self, tmp_path, capsys):
        data = str(tmp_path / "images.npz")
        np.savez(data, x=np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype("float32"))
        files = [str(tmp_path / name) for name in ("filled.safetensors", "bare.safetensors")]
        model = str(tmp_path / "model.safetensors")
        xf.save(xf.create_model("torchvision:resnet18", num_classes=1), model)
        words = ["prune", model, "--data", data, "--zero", "0.5", "-o"]
        assert main([*words, files[0]]) == 0
        assert "weights that are still zero were filled: train before use." in " ".join(
            capsys.readouterr().out.split()
        )
        assert main([*words, files[1], "--no-fill"]) == 0
        assert "filled" not in capsys.readouterr().out
        zeros = [int((xf.load(file).layer4[1].conv2.weight == 0).sum()) for file in files]
        assert zeros[0] == 0 < zeros[1]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("--zero 1", "below 1 (1 would leave nothing), not 1.0"),
            (
                "",
                "either --zero SHARE, the share of the kernels to zero, such as 0.9, or --target-",
            ),
            ("--zero 0.5 --target-params 0.5", "either --zero SHARE"),
            ("--target-params 0.0001", "of the parameters stay, more than"),
            ("--zero 0.5 --report page.pdf", "'page.pdf' must end in .html"),
            ("--zero 0.5 --report missing/page.html", "'missing'"),
        ],
    )
    def test_mistakes(self, data, tmp_path, arguments, message, capsys):
        file = tmp_path / "small.safetensors"
        words = ["prune", "unetd", "--data", data, "-o", str(file), *arguments.split()]
        assert main(words) == 2
        assert message in capsys.readouterr().err
        assert not file.exists()

    def test_it_needs_data(self, tmp_path, capsys):
        assert main(["prune", "unetd", "--zero", "0.5", "-o", str(tmp_path / "a.safetensors")]) == 2
        assert "--data" in capsys.readouterr().err

    def test_data_by_name(self, tmp_path, capsys):
        file = str(tmp_path / "small.safetensors")
        data = ["--data", "nuclei", "--data-option", "size=32", "--data-option", "count=8"]
        assert main(["prune", "unetd", *data, "--zero", "0.9", "-o", file, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["params_kept"] < 0.95
        assert main(["explain", "unetd", *data, "--split", "test", "--max-batches", "1"]) == 0
        assert "saliency" in capsys.readouterr().out
        assert main(["explain", "unetd", *data, "--split", "tset"]) == 2
        assert "choose from 'train', 'val', 'test'" in capsys.readouterr().err
