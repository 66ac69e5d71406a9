import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from explainfix.lab.data.arrays import batches, read_arrays


def test_npz_and_safetensors(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(5, 3, 8, 8)), np.arange(5)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    save_file(
        {"images": torch.from_numpy(x), "labels": torch.from_numpy(y)}, tmp_path / "b.safetensors"
    )
    for name in ("a.npz", "b.safetensors"):
        inputs, targets = read_arrays(tmp_path / name)
        np.testing.assert_array_equal(inputs, x)
        np.testing.assert_array_equal(targets, y)


def test_grey_bytes_without_targets(tmp_path):
    np.savez(tmp_path / "a.npz", test_images=np.full((4, 8, 8), 255, dtype=np.uint8))
    inputs, targets = read_arrays(tmp_path / "a.npz")
    assert inputs.shape == (4, 1, 8, 8)
    assert inputs.max() == 1.0
    assert targets is None


def test_batches():
    parts = list(batches(torch.arange(5.0), torch.arange(5), 2))
    assert [len(x) for x, _ in parts] == [2, 2, 1]
    assert torch.cat([y for _, y in parts]).tolist() == [0, 1, 2, 3, 4]
    assert next(batches(torch.arange(5.0), None, 2))[1] is None


def test_mistakes(tmp_path):
    np.savez(tmp_path / "names.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="holds 'a': name the inputs 'x'"):
        read_arrays(tmp_path / "names.npz")
    np.savez(tmp_path / "counts.npz", x=np.zeros((3, 1, 2, 2)), y=np.zeros(2))
    with pytest.raises(ValueError, match="3 inputs and 2 targets"):
        read_arrays(tmp_path / "counts.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 but no zip")
    with pytest.raises(ValueError, match="cannot be read"):
        read_arrays(tmp_path / "broken.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        read_arrays(tmp_path / "objects.npz")
    with pytest.raises(ValueError, match=r"must be a \.npz or \.safetensors file"):
        read_arrays(tmp_path / "data.csv")
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "none.npz")
