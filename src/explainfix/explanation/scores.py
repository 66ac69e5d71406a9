"""What saliency is the saliency of: yᵀ(ŷ/ŷ'), the scalar of Eq. (7), for each kind of label.

ŷ' is ŷ held constant: it rescales gradients so that each output contributes evenly, large or small.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_SMALLEST = 0.01  # ŷ' is kept at least this share of the outputs' root mean square away from zero


def rescaled(output: Tensor) -> Tensor:
    """ŷ/ŷ' with ŷ' constant: one in value, the gradient of log|ŷ|, bounded where ŷ is near zero.

    >>> rescaled(torch.tensor([2.0, -4.0]))
    tensor([1., 1.])
    """
    if not output.numel():
        return output
    constant = output.detach()
    largest = constant.abs().max()
    unit = torch.where(largest > 0, largest, 1.0)  # the square of 1e20, or of 1e-30, has no number
    typical = torch.where(largest > 0, (constant / unit).square().mean().sqrt(), 1.0)
    smallest = _SMALLEST * typical * unit
    sign = torch.where(constant < 0, -1.0, 1.0)
    return output / (sign * constant.abs().clamp(min=smallest))


def all_outputs(output: Tensor, target: object = None) -> Tensor:
    """No labels: every output counts."""
    return rescaled(output).sum()


def multilabel(output: Tensor, target: Tensor) -> Tensor:
    """Labels in [0, 1] of the output's shape; NaN or a negative label is ignored."""
    wanted = torch.nan_to_num(target.to(output), nan=0.0).clamp(min=0.0)
    return (wanted * rescaled(output)).sum()


def classes(output: Tensor, target: Tensor) -> Tensor:
    """Class indices: `(n,)` for outputs `(n, c)`, `(n, h, w)` for `(n, c, h, w)`; <0: ignored."""
    count = output.shape[1]
    target = target.long()
    if int(target.max()) >= count:
        raise ValueError(f"the target has class {int(target.max())}, the model {count} outputs")
    known = target >= 0
    one_hot = F.one_hot(target.clamp(min=0), count) * known.unsqueeze(-1)
    return multilabel(output, one_hot.movedim(-1, 1))


def mask(output: Tensor, target: Tensor) -> Tensor:
    """A binary mask `(n, h, w)` or `(n, 1, h, w)` for one output per pixel."""
    return multilabel(output, target.reshape(output.shape))


def by_shape(output: Tensor, target: Tensor | None) -> Tensor:
    """The score that fits the shapes: labels as given, class indices, a mask, or no labels."""
    if target is None:
        return all_outputs(output)
    if not isinstance(target, Tensor):
        raise ValueError(
            f"a target of type {type(target).__name__} fits no output: give a tensor, or a score "
            "of your own"
        )
    if target.shape == output.shape:
        return multilabel(output, target)
    indices = not target.is_floating_point() and not target.is_complex()
    if output.dim() >= 2 and target.shape == (output.shape[0], *output.shape[2:]):
        if output.shape[1] == 1:
            return mask(output, target)
        if indices:
            return classes(output, target)
    # A map of indices with an axis of its own: MONAI's labels, whole numbers of any type.
    apart = output.dim() >= 3 and target.shape == (output.shape[0], 1, *output.shape[2:])
    if apart and (indices or bool((target == target.round()).all())):
        return classes(output, target.squeeze(1))
    raise ValueError(
        f"a target of shape {tuple(target.shape)} and type {target.dtype} fits no output of shape "
        f"{tuple(output.shape)}: give labels of that shape, class indices, or a score of your own"
    )
