"""The verdicts of pruned on scores and times made by hand, and the networks it trains."""

import numpy as np
import pytest

from explainfix import load
from explainfix.lab.run.folder import build_model, open_data
from explainfix.paper import xrays
from explainfix.paper.contrast import pick, samples
from explainfix.paper.experiment import judge_claims
from explainfix.paper.experiments import classification, pruned
from explainfix.paper.experiments.pruned import Key
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import best_starts, finals
from explainfix.paper.zeroing import make_pruned, pruned_file
from explainfix.recipe import recipes
from xray_runs import made_runs


def made(*, fixed=0.0, learned=0.0, smallest=0.0, twice=0.0, slow=-0.01):
    """Five baselines at each rate, three runs of each of the paper's points, which lead by so much.

    Unpruned networks lead by `twice` at twice the rate, pruned ones by `slow` at the usual.
    """
    runs, noise = {}, 0.0
    base = np.array([0.80, 0.81, 0.82, 0.81, 0.81])
    jitter = np.array([-0.001, 0.0, 0.001])
    for family, shares in pruned.SHARES.items():
        for rate, lead in (("usual", 0.0), ("twice", twice)):
            runs |= made_runs(Key(family, "learned", 0.0, rate, 0), base + lead)
        for share in shares:
            lead = smallest if share == 0.999 else fixed
            for method, rate, score in (
                ("unchanged", "twice", 0.81 + noise + lead),
                ("unchanged", "usual", 0.81 + noise + lead + slow),
                ("learned", "twice", 0.81 - noise + learned),
            ):
                key = Key(family, method, share, rate, 0)
                runs |= made_runs(key, score + jitter, parameters=400)
            noise += 0.001
    return runs


def judged(**leads):
    scores = {"AUC": finals(made(**leads)), "time saved": samples({"resnet 0.9": [0.5, 0.51]})}
    claims = tuple(claim for claim in pruned.CLAIMS if claim.on == "AUC")
    return {key: verdict.word for key, verdict in judge_claims(claims, scores).items()}


def test_accuracy():
    found = judged(smallest=-0.03)
    assert set(found.values()) == {"agrees"}
    found = judged(fixed=-0.1, smallest=0.05)
    assert (found["equal"], found["smallest"]) == ("disagrees", "disagrees")
    assert judged(learned=0.1)["learned"] == "disagrees"
    assert judged(smallest=-0.004)["smallest"] == "disagrees"  # a loss that is nothing that counts


def test_pruning_and_the_rate_are_told_apart():
    found = judged(twice=0.1)  # the rate alone does it
    assert (found["equal"], found["fair"], found["twice"]) == ("agrees", "disagrees", "agrees")
    assert judged(slow=0.01)["twice"] == "disagrees"


def test_the_smallest_of_one_run_is_not_tested():
    one = {key: run for key, run in made().items() if key.zeroed == 0 or key.seed == 0}
    assert pruned.judge_smallest(finals(one)).word == "not tested"


def test_time():
    times = {
        family: {("learned", 0.0): [2.0, 2.1, 2.0]}
        | {("unchanged", s): [1.0, 1.0, 1.1] for s in shares}
        | {("learned", s): [1.5, 1.5, 1.6] for s in shares}
        for family, shares in pruned.SHARES.items()
    }
    verdict = pruned.judge_times(samples(pruned.savings(times)))
    assert verdict.word == "agrees"
    assert verdict.ours == "saves 49% to 49%; pruned alike, 33% to 33%"
    times["resnet"]["unchanged", 0.99] = [1.8, 1.8, 1.9]
    assert pruned.judge_times(samples(pruned.savings(times))).word == "disagrees"


def test_share_pruned():
    runs = made()
    mine, base = (
        pick(runs, family="resnet", method=method, zeroed=share, rate="twice")
        for method, share in (("unchanged", 0.9), ("learned", 0.0))
    )
    assert pruned.pruned_share(mine, base) == pytest.approx(0.6)


def test_the_papers_points(tmp_path):
    runs = pruned.train(Setting("paper", folder=tmp_path, dry=True))
    fixed = {(r.config.model, r.config.zero) for r in runs.values() if r.config.prune}
    assert fixed == {
        ("torchvision:densenet121", 0.8),
        ("torchvision:densenet121", 0.9),
        ("torchvision:resnet50", 0.9),
        ("torchvision:resnet50", 0.99),
        ("torchvision:resnet50", 0.999),
    }
    for key, run in runs.items():
        assert run.config.lr == {"usual": 1e-4, "twice": 2e-4}[key.rate]
        assert run.config.fix == ("unchanged" if key.method == "unchanged" else None)
        if run.config.prune:
            assert (run.config.zero_by, run.config.zero_batches) == ("gradient", 50)
    assert len(pick(runs, method="learned", zeroed=0.0)) == 2 * 2 * 5
    # five points, fixed and learned; two of them at the usual rate too
    assert len({run.folder for run in runs.values()}) == len(runs) == 20 + 2 * 5 + 2


def test_baselines_are_those_of_classification(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    theirs = classification.train(setting)
    mine = pruned.train(setting)
    for start in best_starts(setting)[:2]:
        for seed in (0, 1):
            run = mine[Key(start.family, "learned", 0.0, "usual", seed)]
            key = xrays.Key(start.family, start.begin, "learned", seed)
            assert run.folder == theirs[key].folder


def test_the_learned_network_is_the_fixed_one_before_its_training(tmp_path):
    """The same cuts and the same weights, and nothing fixed."""
    dry = Setting("smoke", folder=tmp_path, dry=True)
    start, share = pruned.points(dry)[-1]
    key = Key(start.family, "unchanged", share, "twice", 0)
    run = pruned.train(dry)[key]
    setting = Setting("smoke", folder=tmp_path)
    make_pruned(setting, {key: run})
    model = load(pruned_file(setting, run))
    fixed = build_model(run.config, open_data(run.config))
    assert recipes(fixed)
    assert not recipes(model)
    theirs = fixed.state_dict()
    assert all(value.equal(theirs[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
