"""What tests of datasets share: a cache of their own, and small pictures."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def cache_of_tests(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache_of_tests, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_CACHE", str(cache_of_tests))


@pytest.fixture
def picture():
    """Writes a picture of random levels, and gives them: `picture(path, 8, 6, mode="RGB")`."""
    generator = np.random.default_rng(0)

    def write(path: Path, height: int = 8, width: int = 8, mode: str = "L") -> np.ndarray:
        channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
        levels = generator.integers(0, 256, (height, width, *channels), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(path)
        return levels

    return write
