"""The page of the package: README.md as an index shows it, which has no files beside it."""

import re
import runpy
import tomllib
import zipfile
from pathlib import Path

import pytest

import explainfix

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
package_page = runpy.run_path(str(ROOT / "tools" / "package_page.py"))["package_page"]
check_wheel = runpy.run_path(str(ROOT / "tools" / "check_wheel.py"))
HOME = "https://example.org/us/explainfix"
TARGETS = re.compile(r"\]\(([^)\s]+)\)")


def code(text):
    return re.findall(r"^```.*?^```$", text, flags=re.DOTALL | re.MULTILINE)


def test_without_a_home_nothing_is_broken():
    page = package_page(README)
    assert all("://" in target for target in TARGETS.findall(page))
    assert "docs/img" not in page  # our own pictures; badges come from elsewhere
    assert "\n\n\n" not in page
    assert code(page) == code(README)
    assert "Contributing" in page  # the words of a link stay


def test_with_a_home_every_link_leads_to_a_file_there():
    page = package_page(README, HOME, "1.2.3")
    ours = [target for target in TARGETS.findall(page) if target.startswith(HOME)]
    assert len(ours) == sum("://" not in target for target in TARGETS.findall(README)) > 10
    for target in ours:
        kind, version, file = target.removeprefix(f"{HOME}/").split("/", 2)
        assert version == "v1.2.3"
        assert (kind == "raw") == file.endswith(".png")
        assert (ROOT / file.partition("#")[0]).is_file()
    assert code(page) == code(README)


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == explainfix.__version__


def test_a_wheel_that_lacks_a_file_is_refused(tmp_path):
    wanted = check_wheel["package_files"]()
    assert "explainfix/report/page.js" in wanted
    wheel = tmp_path / "explainfix-0-py3-none-any.whl"

    def write(names, page=""):
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in names:
                archive.writestr(name, "")
            archive.writestr("explainfix-0.dist-info/METADATA", page)

    write(wanted)
    assert check_wheel["check_wheel"](wheel, wanted).endswith("complete")
    write(wanted - {"explainfix/filters/imagenet.safetensors"})
    with pytest.raises(ValueError, match=r"lacks explainfix/filters/imagenet.safetensors"):
        check_wheel["check_wheel"](wheel, wanted)
    write(wanted | {"explainfix/notes.txt"})
    with pytest.raises(ValueError, match=r"not in the package: explainfix/notes.txt"):
        check_wheel["check_wheel"](wheel, wanted)
    write(wanted, "[docs](docs/a.md)")
    with pytest.raises(ValueError, match="links to files"):
        check_wheel["check_wheel"](wheel, wanted)
