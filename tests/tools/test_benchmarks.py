"""What the documentation says of speed is what was measured."""

import json
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_of_the_record(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import training

    page = ROOT / "docs" / "benchmarks.md"
    shutil.copy(page, tmp_path)
    training.write(json.loads(training.RECORD.read_text()), tmp_path)
    assert (tmp_path / page.name).read_text() == page.read_text()
    assert (tmp_path / "benchmarks" / "steps.png").is_file()
