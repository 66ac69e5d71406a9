"""BatchNorm on rows of pixels is BatchNorm: by PyTorch's own in float64."""

import copy
import pickle

import pytest
import torch
from torch import nn

from explainfix.backward import rows
from explainfix.backward.rows import normalise_in_rows_

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
SHAPES = [(4, 18, 16, 16), (2, 3, 8, 8), (1, 35, 32, 32), (2, 24, 6, 6), (2, 5, 4, 8, 8)]


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(rows, "ENOUGH", 64)


def both(shape):
    """The same BatchNorm, PyTorch's and in rows, with learned values."""
    norm = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm3d)(shape[1])
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    other = copy.deepcopy(norm)
    normalise_in_rows_(nn.Sequential(other))
    assert isinstance(other, type(norm))
    assert type(other) is not type(norm)
    return norm, other


def passes(norm, x):
    x = x.clone().requires_grad_()
    y = norm(x)
    y.backward(torch.cos(torch.arange(y.numel())).reshape(y.shape).to(y.dtype))
    return y, x.grad, norm.weight.grad, norm.bias.grad


def images(shape, dtype=torch.float32):
    return (3 * torch.randn(shape) + 1).to(dtype).contiguous(memory_format=LAST[len(shape)])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_near_to_the_formula_as_pytorch(shape, dtype):
    norm, ours = both(shape)
    x = images(shape, dtype)
    right = passes(copy.deepcopy(norm).double(), x.double())
    theirs, mine = passes(norm, x), passes(ours, x)
    assert mine[0].grad_fn.name().startswith("_BatchNormInRows")  # or nothing was tested
    assert mine[0].is_contiguous(memory_format=LAST[x.dim()])
    assert mine[1].is_contiguous(memory_format=LAST[x.dim()])
    for known, one, other in zip(right, theirs, mine, strict=True):
        assert other.dtype == one.dtype
        least = 2e-3 if one.dtype == torch.bfloat16 else 1e-6
        far = (other - known).norm()
        assert far <= 1.2 * (one - known).norm() + least * known.norm()
    for one, other in zip(norm.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert ours.num_batches_tracked == 1


@pytest.mark.parametrize("momentum", [None, 0.0, 0.3])
def test_running_averages_of_several_batches(momentum):
    norm, ours = both((2, 18, 8, 8))
    norm.momentum = ours.momentum = momentum  # as recalibration sets it for a while
    for _ in range(3):
        x = images((2, 18, 8, 8))
        assert ours(x).grad_fn.name().startswith("_BatchNormInRows")
        norm(x)
    torch.testing.assert_close(dict(ours.named_buffers()), dict(norm.named_buffers()))


def test_an_activation_in_place():
    norm, ours = both((2, 18, 8, 8))
    x = images((2, 18, 8, 8))
    theirs, mine = (passes_through(each, x) for each in (norm, ours))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def passes_through(norm, x):
    """The output and the gradient of the input, with an activation in place behind it."""
    x = x.clone().requires_grad_()
    y = nn.CELU(inplace=True)(norm(x.tanh()))
    y.square().mean().backward()
    return y.detach(), x.grad


def test_a_gradient_in_another_layout():
    norm, ours = both((2, 18, 8, 8))
    x = images((2, 18, 8, 8))
    weights = torch.randn(2, 18, 8, 8)  # in the usual layout, so their product's gradient is too
    found = []
    for each in (norm, ours):
        y = x.clone().requires_grad_()
        (each(y) * weights).sum().backward()
        found.append(y.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 18, 8, 8),  # the usual layout
        images((1, 18, 4, 4)),  # too few pixels
        images((1, 18, 9, 9)),  # which make no rows
        images((2, 18, 8, 8)).double(),
    ],
    ids=["layout", "few", "odd", "double"],
)
def test_otherwise_it_is_pytorchs(x):
    norm, ours = (each.to(x.dtype) for each in both((2, 18, 8, 8)))
    assert all(torch.equal(a, b) for a, b in zip(passes(norm, x), passes(ours, x), strict=True))


def test_evaluation_is_pytorchs():
    norm, ours = (each.eval() for each in both((2, 18, 8, 8)))
    x = images((2, 18, 8, 8))
    assert torch.equal(norm(x), ours(x))
    with pytest.raises(ValueError, match="expected 4D input"):
        ours.train()(x[0])


def test_what_stays_as_it_is():
    class Own(nn.BatchNorm2d):
        pass

    network = nn.Sequential(
        nn.BatchNorm2d(32), nn.BatchNorm2d(18, affine=False),
        nn.BatchNorm2d(18, track_running_stats=False), nn.BatchNorm1d(18), nn.SyncBatchNorm(18),
        Own(18), nn.GroupNorm(2, 18),
    )  # fmt: skip
    kinds = [type(module) for module in network]
    normalise_in_rows_(network)
    assert [type(module) for module in network] == kinds


def test_copies_and_compiled():
    _, ours = both((2, 18, 8, 8))
    x = images((2, 18, 8, 8))
    y = ours(x)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(other(x), y)
        assert list(other.state_dict()) == list(nn.BatchNorm2d(18).state_dict())
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), y, rtol=1e-4, atol=1e-5)
