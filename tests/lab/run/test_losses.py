"""Losses against the paper's formulas, written out one number at a time."""

import math

import pytest
import torch
from monai.losses import DiceLoss
from scipy.special import softmax
from scipy.stats import entropy

from explainfix.lab.run.losses import (
    Balance,
    balance_labels,
    binary_cross_entropy,
    cross_entropy,
    dice,
    distance,
    fitting_losses,
    focal,
    labels_of,
    losses,
)

NAN = math.nan


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_binary_cross_entropy_counts_known_pixels_only():
    logits = torch.tensor([[[0.3, -2.0], [5.0, 1.0]]])
    masks = torch.tensor([[[1.0, 0.0], [NAN, 1.0]]])
    by_hand = -(math.log(sigmoid(0.3)) + math.log(1 - sigmoid(-2.0)) + math.log(sigmoid(1.0))) / 3
    assert binary_cross_entropy(logits, masks).item() == pytest.approx(by_hand, rel=1e-6)


def test_unknown_targets_have_no_gradient():
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    targets = torch.tensor([[1.0, NAN], [NAN, 0.0]])
    binary_cross_entropy(logits, targets).backward()
    assert logits.grad[targets.isnan()].tolist() == [0, 0]
    assert binary_cross_entropy(logits, torch.full((2, 2), NAN)).item() == 0


def test_cross_entropy():
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 9.0]])
    by_hand = -math.log(math.exp(2.0) / (math.exp(1.0) + math.exp(2.0) + math.exp(0.5)))
    assert cross_entropy(logits, torch.tensor([1.0, NAN])).item() == pytest.approx(by_hand)
    assert cross_entropy(logits, torch.tensor([1, 2])).item() == pytest.approx(
        (by_hand - math.log(math.exp(9) / (2 + math.exp(9)))) / 2
    )


@pytest.mark.parametrize("space", [(6, 5), (4, 3, 5)])
def test_masks_of_several_classes(space):
    """As PyTorch ignores pixels, and as MONAI computes Dice over a batch without background."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, *space, generator=generator)
    numbers = torch.randint(4, (2, 1, *space), generator=generator)
    ours = DiceLoss(
        include_background=False, to_onehot_y=True, softmax=True, batch=True, smooth_nr=1,
        smooth_dr=1,
    )  # fmt: skip
    assert dice(logits, numbers.float()).item() == pytest.approx(ours(logits, numbers).item())
    wanted = torch.nn.functional.cross_entropy(logits, numbers[:, 0])
    assert cross_entropy(logits, numbers.float()).item() == pytest.approx(wanted.item())
    hidden = torch.rand(numbers.shape, generator=generator) < 0.3
    masks = numbers.float().masked_fill(hidden, NAN)
    marked = numbers.masked_fill(hidden, -1)[:, 0]
    wanted = torch.nn.functional.cross_entropy(logits, marked, ignore_index=-1)
    assert cross_entropy(logits, masks).item() == pytest.approx(wanted.item())
    both = losses.find("dice_cross_entropy")(())(logits, masks)
    assert both.item() == pytest.approx(wanted.item() + dice(logits, masks).item())


def test_dice_of_one_class_counts_known_pixels_only():
    logits = torch.tensor([[[[0.3, -2.0], [5.0, 1.0]]]], requires_grad=True)
    masks = torch.tensor([[[[1.0, 0.0], [NAN, 1.0]]]])
    p = [sigmoid(0.3), sigmoid(-2.0), sigmoid(1.0)]
    loss = dice(logits, masks)
    assert loss.item() == pytest.approx(1 - (2 * (p[0] + p[2]) + 1) / (sum(p) + 2 + 1))
    loss.backward()
    assert logits.grad[0, 0, 1, 0] == 0


def test_balance_is_the_papers():
    targets = torch.tensor([[1.0, 0.0, NAN], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, NAN, 0.0]])
    got = balance_labels(targets)
    positives, negatives = [1, 1, 1], [3, 2, 2]
    counts = [p + n for p, n in zip(positives, negatives, strict=True)]
    for task in range(3):
        p, n = positives[task], negatives[task]
        assert got.positive[task].item() == pytest.approx(1 / (1 + p / n))
        assert got.negative[task].item() == pytest.approx(1 / (1 + n / p))
        others = sum(1 / counts[i] for i in range(3) if i != task)
        assert got.task[task].item() == pytest.approx(1 / (1 + counts[task] * others))


def test_a_task_without_labels_weighs_nothing():
    got = balance_labels(torch.tensor([[1.0, NAN], [0.0, NAN]]))
    assert got.task.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_focal_is_the_papers(gamma):
    logits = torch.tensor([[0.7, -1.2], [3.0, 0.1], [-0.4, 2.2]])
    targets = torch.tensor([[1.0, 0.0], [NAN, 1.0], [0.0, NAN]])
    balance = Balance(torch.tensor([0.6, 0.4]), torch.tensor([0.9, 0.3]), torch.tensor([0.1, 0.7]))
    total = 0.0
    for row in range(3):
        for task in range(2):
            y = targets[row, task].item()
            if math.isnan(y):
                continue
            p = 0.99999 * sigmoid(logits[row, task].item()) + 0.000005
            w_pos = balance.positive[task].item() * (1 - p) ** gamma
            w_neg = balance.negative[task].item() * p**gamma
            inner = w_pos * y * math.log(p) + w_neg * (1 - y) * math.log(1 - p)
            total -= balance.task[task].item() * inner
    assert focal(logits, targets, balance, gamma=gamma).item() == pytest.approx(total / 3, rel=1e-5)


def test_focal_stays_finite_at_any_logit():
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    balance = balance_labels(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    loss = focal(logits, torch.tensor([[0.0, 1.0]]), balance)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_labels_are_taken_without_decoding_where_they_are_kept():
    class Kept:
        names = ("a", "b")
        targets = torch.tensor([[1.0], [0.0]])

        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise AssertionError("decoded")

    assert labels_of(Kept()).tolist() == [[1.0], [0.0]]


def test_every_task_has_a_loss():
    cases = [("segmentation", 1), ("segmentation", 3), ("multilabel", 5), ("multiclass", 2)]
    assert {name for case in cases for name in fitting_losses(*case)} == set(losses)
    with pytest.raises(ValueError, match="did you mean 'focal'"):
        losses.find("focall")


def test_a_teacher_of_labels_is_as_soft_targets():
    """Binary cross entropy with its probabilities, less what is left at the teacher itself."""
    generator = torch.Generator().manual_seed(0)
    logits, taught = torch.randn(2, 4, 3, generator=generator).unbind()
    logits.requires_grad_()
    q = [[sigmoid(z) for z in row] for row in taught.tolist()]
    p = [[sigmoid(z) for z in row] for row in logits.tolist()]
    far = sum(
        b * math.log(b / a) + (1 - b) * math.log((1 - b) / (1 - a))
        for ours, theirs in zip(p, q, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    unknown = torch.full_like(taught, NAN)  # to whoever labelled, not to the teacher
    found = distance(logits, taught, unknown, "multilabel")
    assert found.item() == pytest.approx(far / 12, rel=1e-5)
    found.backward()
    torch.testing.assert_close(logits.grad, (torch.tensor(p) - torch.tensor(q)) / 12)
    masks = distance(logits[:, None], taught[:, None], torch.zeros(4, 1, 3), "segmentation")
    assert masks.item() == pytest.approx(found.item())  # of one class


@pytest.mark.parametrize(("task", "space"), [("multiclass", ()), ("segmentation", (5, 4))])
def test_a_teacher_of_classes_is_asked_at_a_temperature(task, space):
    """As SciPy's relative entropy of softmax(z/2), times 4; pixels are images side by side."""
    generator = torch.Generator().manual_seed(0)
    logits, taught = torch.randn(2, 3, 4, *space, generator=generator, dtype=torch.double).unbind()
    ours, theirs = (
        softmax(z.movedim(1, -1).reshape(-1, 4).numpy() / 2, axis=1) for z in (logits, taught)
    )
    wanted = 4 * entropy(theirs, ours, axis=1).mean()
    known = torch.zeros(3, 1, *space) if space else torch.zeros(3)
    assert distance(logits, taught, known, task).item() == pytest.approx(wanted)
    assert distance(taught, taught, known, task).item() == pytest.approx(0, abs=1e-12)


def test_padding_does_not_count_with_a_teacher_either():
    logits, taught = torch.randn(2, 3, 4, 6, 5, generator=torch.Generator().manual_seed(0)).unbind()
    masks = torch.zeros(3, 1, 6, 5)
    masks[..., 2:] = NAN
    for classes in (4, 1):
        ours, theirs = logits[:, :classes], taught[:, :classes]
        inside = distance(ours[..., :2], theirs[..., :2], masks[..., :2], "segmentation")
        assert distance(ours, theirs, masks, "segmentation").item() == pytest.approx(inside.item())
