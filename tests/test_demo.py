"""The demo on a handful of images: its terminal and its page."""

import importlib.util
import re
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def test_the_demo_tells_its_story(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    demo = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", demo)  # dataclasses look there
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "DATA", {"count": 12, "size": 32})
    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "WORKERS", demo.Workers())
    monkeypatch.setenv("COLUMNS", "80")
    demo.main(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 80  # the last names the page, wherever it is
    page = (tmp_path / "report.html").read_text()
    story = page[page.index("<main>") : page.index('class="detail"')]
    assert story.count('class="chapter"') == 5
    rows = re.findall(r'<th scope="row">(.*?)</th>', story)
    assert len(rows) == len(re.findall(r"<td colspan=.*?><p>[A-Z].*?\.</p>", story)) == 10
    assert set(rows) == {
        line.split("  ")[0] for line in lines if re.search(r"\d \(0\.\d+ to", line)
    }
    assert story.count("<img ") == 3 * (4 + 6 + 4 + 4)
