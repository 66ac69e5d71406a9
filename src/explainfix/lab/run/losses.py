"""Losses: cross entropy, Dice, the paper's focal loss, how far a teacher is. NaN is ignored."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ...registry import Registry
from ..data.dataset import Images, Task, as_outputs

_TEMPERATURE = 2.0  # of a teacher's classes: what it thinks of the unlikely ones counts more
Loss = Callable[[Tensor, Tensor], Tensor]

# Makers of losses, given the training images, whose labels some of them count.
losses: Registry[Callable[[Images], Loss]] = Registry("loss", "")


def fitting_losses(task: Task, classes: int) -> tuple[str, ...]:
    """The losses for a task, the default first: the paper's where it has one.

    >>> fitting_losses("segmentation", 3)
    ('cross_entropy', 'dice', 'dice_cross_entropy')
    """
    if task == "segmentation":
        return ("bce" if classes == 1 else "cross_entropy", "dice", "dice_cross_entropy")
    return ("focal", "bce") if task == "multilabel" else ("cross_entropy",)


@dataclass(frozen=True)
class Balance:
    """The weights of the focal loss, each `(tasks,)`."""

    task: Tensor  # w_task: between tasks
    positive: Tensor  # a_pos and
    negative: Tensor  # a_neg: between the two classes of a task


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over all elements whose target is not NaN; zero if there is none.

    >>> binary_cross_entropy(torch.tensor([0.0, 9.0]), torch.tensor([1.0, torch.nan]))
    tensor(0.6931)
    """
    counted = ~targets.isnan()
    each = F.binary_cross_entropy_with_logits(logits, targets.nan_to_num(), reduction="none")
    return (each * counted).sum() / counted.sum().clamp(min=1)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over the images `(n, classes)`, or pixels, whose class number is not NaN.

    Masks `(n, 1, h, w)` of one class, for logits of that shape, are 0 and 1.
    """
    if logits.shape == targets.shape:
        return binary_cross_entropy(logits, targets)
    targets = targets.reshape(len(logits), *logits.shape[2:])
    counted = ~targets.isnan()
    each = F.cross_entropy(logits, targets.nan_to_num().long(), reduction="none")
    return (each * counted).sum() / counted.sum().clamp(min=1)


def dice(logits: Tensor, targets: Tensor) -> Tensor:
    """1 - Dice of probabilities over the pixels of a batch, one class or the mean of several.

    Dice = (2 Σ p y + 1) / (Σ p + Σ y + 1) for each class but the background, the first of several.

    >>> dice(torch.zeros(1, 1, 2), torch.tensor([[[1.0, 0.0]]]))
    tensor(0.3333)
    """
    several = logits.shape[1] > 1
    p = logits.softmax(1)[:, 1:] if several else logits.sigmoid()
    y = as_outputs(targets, logits.shape[1])[:, int(several) :]
    p = p * ~targets.isnan()
    p, y = p.transpose(0, 1).flatten(1), y.transpose(0, 1).flatten(1)
    return 1 - ((2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)).mean()


def focal(logits: Tensor, targets: Tensor, balance: Balance, *, gamma: float = 1.0) -> Tensor:
    """The paper's loss for several labels `(n, tasks)`: summed over tasks, mean over images.

    L = -m w_task (a_pos (1-ŷ)^γ y log ŷ + a_neg ŷ^γ (1-y) log(1-ŷ)) with the rescaled sigmoid
    ŷ = 0.99999 σ(ŷ') + 0.000005; m is 0 where the target is NaN.
    """
    known = ~targets.isnan()
    y = targets.nan_to_num()
    p = 0.99999 * logits.sigmoid() + 0.000005
    positive = balance.positive * (1 - p) ** gamma * y * p.log()
    negative = balance.negative * p**gamma * (1 - y) * (1 - p).log()
    return -(known * balance.task * (positive + negative)).sum(dim=1).mean()


def distance(logits: Tensor, taught: Tensor, targets: Tensor, task: Task) -> Tensor:
    """How far logits `(n, classes, ...)` are from a teacher's: 0 where they are the same.

    Kullback and Leibler's divergence D(q ∥ p) from its probabilities q, mean over images, or
    pixels. Labels, and masks of one class, are each on or off: p = σ(z), and the gradient is that
    of binary cross entropy with soft targets. Classes exclude each other: p = softmax(z/T), times
    T², so that the gradient is as large at any temperature. Pixels whose target is NaN, such as
    padding, do not count. Labels that are NaN do: a teacher has learned what they may be.

    >>> logits, taught, unknown = (torch.tensor([[z]]) for z in (0.0, 2.0, torch.nan))
    >>> distance(logits, taught, unknown, "multilabel")
    tensor(0.3278)
    >>> distance(taught, taught, unknown, "multilabel")
    tensor(0.)
    """
    if task == "multilabel" or logits.shape[1] == 1:
        soft = taught.sigmoid()
        cross, least = (
            F.binary_cross_entropy_with_logits(z, soft, reduction="none") for z in (logits, taught)
        )
        each = cross - least
    else:
        ours, theirs = ((z / _TEMPERATURE).log_softmax(1) for z in (logits, taught))
        each = F.kl_div(ours, theirs, reduction="none", log_target=True).sum(1, keepdim=True)
        each = _TEMPERATURE**2 * each
    if task != "segmentation":
        return each.mean()
    counted = ~targets.isnan()
    return (each * counted).sum() / counted.sum().clamp(min=1)


def balance_labels(targets: Tensor) -> Balance:
    """The weights that balance the labels `(n, tasks)` of a training set.

    a_pos = 1/(1 + c_pos/c_neg), a_neg = 1/(1 + c_neg/c_pos), w_t = 1/(1 + c_t Σ_{i≠t} 1/c_i).
    The paper does not say what becomes of a task without labels: it weighs nothing here.

    >>> balance_labels(torch.tensor([[1.0, 0.0], [0.0, torch.nan], [0.0, 1.0], [0.0, 1.0]]))
    Balance(task=tensor([0.4286, 0.5714]), positive=tensor([0.7500, 0.3333]),
            negative=tensor([0.2500, 0.6667]))
    """
    positives, negatives = (targets == 1).sum(0).double(), (targets == 0).sum(0).double()
    count = positives + negatives
    rarity = torch.where(count > 0, 1 / count, 0.0)  # w_t is the share of 1/c_t in their sum
    return Balance(
        (rarity / rarity.sum().clamp(min=1e-30)).float(),
        (negatives / count.clamp(min=1)).float(),
        (positives / count.clamp(min=1)).float(),
    )


def labels_of(images: Images) -> Tensor:
    """The targets of a split `(n, tasks)`, without decoding its images where they are kept."""
    kept: Tensor | None = getattr(images, "targets", None)
    if kept is not None:
        return torch.as_tensor(kept)
    return torch.stack([images[index].target for index in range(len(images))])


@losses.register("bce")
def _bce(images: Images) -> Loss:
    return binary_cross_entropy


@losses.register("cross_entropy")
def _cross_entropy(images: Images) -> Loss:
    return cross_entropy


@losses.register("dice")
def _dice(images: Images) -> Loss:
    return dice


@losses.register("dice_cross_entropy")
def _dice_cross_entropy(images: Images) -> Loss:
    return lambda logits, targets: dice(logits, targets) + cross_entropy(logits, targets)


@losses.register("focal")
def _focal(images: Images) -> Loss:
    balance = balance_labels(labels_of(images))

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        weights = (balance.task, balance.positive, balance.negative)
        return focal(logits, targets, Balance(*(weight.to(logits.device) for weight in weights)))

    return loss
