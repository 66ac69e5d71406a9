"""A network whose least salient kernels are zero, or gone, before the first step."""

import copy
from itertools import islice

import torch
from torch import nn

from ...explanation.saliency import saliency
from ...prune import channel_prune_, zero_
from ...recipe import recipes
from ...zoo.opening import open_network
from ..data.dataset import Dataset, as_outputs
from ..data.loader import Share, training_steps
from .config import RunConfig


def zero_kernels_(model: nn.Module, config: RunConfig, dataset: Dataset) -> None:
    """Zero the share `config.zero` of the kernels of fixed layers; with `config.prune` also cut
    what that leaves dead and fill what is still zero.

    The same in every process and whenever a run goes on: saliency is computed in double precision
    on one thread, so that neither rounding nor the number of cores decides which kernels go.
    """
    assert config.zero is not None
    fixed = recipes(model)
    if not fixed:
        raise ValueError(f"zero needs fixed filters: {config.model!r} has none, and fix is not set")
    steps = training_steps(
        dataset, config.train_split, Share(config.batch_size), seed=config.seed, epoch=0
    )
    batches = [batch for [batch] in islice(steps, config.zero_batches)]
    judge = open_network(config.zero_from) if config.zero_from else copy.deepcopy(model)
    exact = judge.double()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        classes = len(dataset.classes)
        known = [(x, as_outputs(y, classes) if y.is_floating_point() else y) for x, y in batches]
        doubled = [(x.double(), y) for x, y in known]
        scores = saliency(exact, doubled, kind=config.zero_by)
        lacking = [path for path in fixed if path not in scores]
        if lacking:
            raise ValueError(f"zero_from {config.zero_from!r} has no spatial layer {lacking[0]!r}")
        # Other kernels learn: they would not stay zero.
        chosen = {path: scores[path] for path in fixed}
        if config.prune:
            with torch.no_grad():
                example = batches[0][0][:1].to(next(model.parameters()).dtype)
                channel_prune_(model, example, chosen, zero=config.zero, seed=config.fix_seed)
        else:
            zero_(model, chosen, config.zero)
    finally:
        torch.set_num_threads(threads)
