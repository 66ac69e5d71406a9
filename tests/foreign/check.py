"""One network: built, zeroed, pruned and compared with the zeroed one on inputs it never saw."""

import copy
import time

import torch
from torch import nn

import explainfix as xf
from explainfix.running import map_tensors, tensors_in
from networks import shift_norms, without_chance, zero_some

LIMITS = {torch.float64: 1e-6, torch.float32: 1e-3}  # of how much an output varies
OTHER_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.GroupNorm, nn.LayerNorm)
EXAMPLE, FRESH = 1, 2  # random seeds


class BrokenError(Exception):
    """The network itself does not run: nothing to do with pruning."""


def first_line(problem):
    """What an exception says, short enough for a table."""
    lines = str(problem).strip().splitlines()
    return (lines[0] if lines else type(problem).__name__)[:200]


def draw(network, dtype, seed, batch, size):
    """Inputs of a seed in a dtype; whole numbers stay whole."""
    torch.manual_seed(seed)
    made = network.inputs(batch, size)
    return map_tensors(made, lambda t: t.to(dtype) if t.is_floating_point() else t)


def run(model, inputs, seed=0):
    """Every floating tensor that a model gives, with the same random numbers each time."""
    torch.manual_seed(seed)
    with torch.no_grad():
        found = tensors_in(model(*map_tensors(inputs, torch.clone)))
    return [t.detach().clone() for t in found if t.is_floating_point()]


@torch.no_grad()
def wake(model):
    """Give weights to what starts as zero, and shifts to every norm, as training would."""
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            parameter.normal_(0, parameter[0].numel() ** -0.5)
    for module in model.modules():
        if isinstance(module, OTHER_NORMS) and getattr(module, "bias", None) is not None:
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.3)


def zeroed(network, dtype):
    """The network, zeroed, with the norms it would have after some training."""
    torch.manual_seed(0)
    model = without_chance(network.build()).eval().to(dtype)
    run(model, draw(network, dtype, EXAMPLE, 1, network.sizes[0]))
    torch.manual_seed(0)
    wake(model)
    sizes = [layer.weight.norm() for layer in xf.spatial_layers(model).values()]
    zero_some(model)
    with torch.no_grad():  # as large as before, or the signal dies on its way through many layers
        for layer, size in zip(xf.spatial_layers(model).values(), sizes, strict=True):
            layer.weight *= size / layer.weight.norm().clamp_min(1e-12)
    inputs = draw(network, dtype, 0, 2, network.sizes[0])
    for whole in (True, False):
        try:
            shift_norms(model, inputs, whole=whole)
            break
        except Exception:  # takes no batch of two, or no training without targets
            model.eval()
    return model


def prepare(network):
    """The zeroed network in the best dtype it runs in."""
    for dtype in list(LIMITS)[network.single :]:
        try:
            return zeroed(network, dtype), dtype
        except (RuntimeError, TypeError, ValueError, AssertionError) as problem:
            reason = problem
    raise BrokenError(first_line(reason)) from reason


def compare(wanted, got, batch, limit):
    """The largest difference in units of how much that output varies, and if any varies at all."""
    if [t.shape for t in wanted] != [t.shape for t in got]:
        return float("inf"), False
    worst, silent = 0.0, True
    for one, other in zip(wanted, got, strict=True):
        fine = one.isfinite()
        if not torch.equal(fine, other.isfinite()):
            return float("inf"), False
        if not fine.any():
            continue
        one, other = (torch.where(fine, t, 0).double() for t in (one, other))
        scale = one.square().mean().sqrt()
        varies = (
            (one[1:] - one[:1]).abs().max() if len(one.shape) and len(one) == batch > 1 else scale
        )
        if varies > limit * one.abs().max():
            silent, scale = False, varies
        worst = max(worst, float((one - other).abs().max() / (scale or 1.0)))
    return worst, silent


def fresh_passes(network, reference, dtype):
    """Inputs that prune_ never sees, with what the zeroed network makes of them."""
    passes = []
    for batch, size in ((2, network.sizes[0]), (3, network.sizes[1]), (1, network.sizes[0])):
        if passes and batch == 1:
            break  # only for what takes no batches
        try:
            inputs = draw(network, dtype, FRESH, batch, size)
            passes.append((batch, size, inputs, run(reference, inputs)))
        except Exception:
            continue
    if not passes:
        raise BrokenError("runs on the example alone")
    return passes


def differences(passes, model, limit):
    """The worst difference over fresh inputs, where it is, and whether the network is silent."""
    worst, where, silent = 0.0, "", True
    for batch, size, inputs, wanted in passes:
        try:
            difference, quiet = compare(wanted, run(model, inputs), batch, limit)
        except Exception as problem:
            return float("inf"), f"batch {batch}, size {size}: {first_line(problem)}", False
        silent &= quiet
        if difference >= worst:
            worst, where = difference, f"batch {batch}, size {size}"
    return worst, where, silent


def difference_in_training(reference, model, inputs, limit):
    """The difference in training; nothing where the network does not train, or throws dice."""
    try:
        trained = copy.deepcopy(reference).train()
        wanted = run(trained, inputs)
        if compare(wanted, run(trained, inputs, seed=5), 2, limit)[0] > limit:
            return None
    except Exception:
        return None
    try:
        return compare(wanted, run(model.train(), inputs), 2, limit)[0]
    except Exception:
        return float("inf")


def check(network):
    """What became of a network, and what its rival needs: the zeroed network and its outputs."""
    started = time.perf_counter()
    try:
        model, dtype = prepare(network)
        try:
            reference = copy.deepcopy(model)
        except Exception:
            reference = zeroed(network, dtype)
        passes = fresh_passes(network, reference, dtype)
    except BrokenError as problem:
        return {"status": "broken", "reason": str(problem)}, None
    except Exception as problem:
        return {
            "status": "broken",
            "reason": f"{type(problem).__name__}: {first_line(problem)}",
        }, None
    result = {
        "dtype": str(dtype).removeprefix("torch."),
        "parameters": sum(p.numel() for p in model.parameters()),
        "prepared": time.perf_counter() - started,
        "sizes": len(passes),
    }
    left = reference, passes, dtype
    example = draw(network, dtype, EXAMPLE, 1, network.sizes[0])
    try:
        report = xf.prune_(model, example)
    except ValueError as problem:
        return {**result, "status": "refused", "reason": first_line(problem)}, left
    except Exception as problem:
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        return {**result, "status": "crash", "reason": reason}, left
    limit = LIMITS[dtype]
    worst, where, silent = differences(passes, model, limit)
    result |= {
        "seconds": report.seconds,
        "removed": result["parameters"] - sum(p.numel() for p in model.parameters()),
        "folded": report.folded,
        "training": report.exact_in_training,
        "stays": [line for line in str(report).splitlines() if "stay because" in line][:3],
        "difference": worst,
        "silent": silent,
    }
    status, reason = ("exact", "") if worst <= limit else ("wrong", where)
    if report.exact_in_training and status == "exact":
        trained = difference_in_training(reference, model, passes[0][2], limit)
        result["difference in training"] = trained
        if trained is not None and not trained <= limit:
            status, reason = "wrong", f"in training, by {trained:.1g}"
    return {**result, "status": status, "reason": reason}, left
