"""The verdicts of pruned on scores and times made by hand, and the networks it trains."""

import pytest

from explainfix import load
from explainfix.lab.run.folder import build_model, open_data
from explainfix.paper.contrast import pick
from explainfix.paper.experiments import classification, pruned
from explainfix.paper.setting import Setting
from explainfix.paper.xrays import Key, best_starts, finals
from explainfix.paper.zeroing import ZeroedKey
from explainfix.recipe import recipes
from xray_runs import made_runs


def made(*, fixed=0.0, learned=0.0, smallest=0.0):
    """Five baselines and one run of each of the paper's points, which leads them by so much."""
    runs, noise = {}, 0.0
    for family, shares in pruned.SHARES.items():
        runs |= made_runs(ZeroedKey(family, "learned", 0.0, 0), [0.80, 0.81, 0.82, 0.81, 0.81])
        for share in shares:
            lead = smallest if share == 0.999 else fixed
            for method, score in (
                ("unchanged", 0.81 + noise + lead),
                ("learned", 0.81 - noise + learned),
            ):
                runs |= made_runs(ZeroedKey(family, method, share, 0), [score], parameters=400)
            noise += 0.001
    return runs


def words(found):
    return {key: verdict.word for key, verdict in found.items()}


def test_accuracy():
    def judged(**leads):
        return words(pruned.verdicts(finals(made(**leads))))

    found = judged(smallest=-0.03)
    assert found == {"equal": "agrees", "learned": "agrees", "smallest": "agrees"}
    found = judged(fixed=-0.1, smallest=0.05)
    assert (found["equal"], found["smallest"]) == ("disagrees", "disagrees")
    assert judged(learned=0.1)["learned"] == "disagrees"
    assert judged(smallest=-0.008)["smallest"] == "undecided"


def test_time():
    times = {
        family: {("learned", 0.0): [2.0, 2.1, 2.0]}
        | {("unchanged", s): [1.0, 1.0, 1.1] for s in shares}
        | {("learned", s): [1.5, 1.5, 1.6] for s in shares}
        for family, shares in pruned.SHARES.items()
    }
    verdict = pruned.judge_times(times)
    assert verdict.word == "agrees"
    assert verdict.ours == "saves 49% to 49%; pruned alike, 33% to 33%"
    times["resnet"]["unchanged", 0.99] = [1.8, 1.8, 1.9]
    assert pruned.judge_times(times).word == "disagrees"


def test_share_pruned():
    runs = made()
    mine, base = (
        pick(runs, family="resnet", method=method, zeroed=share)
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
    assert {r.config.lr for r in runs.values() if r.config.prune} == {2e-4}
    for key, run in runs.items():
        assert run.config.lr == (2e-4 if key.zeroed else 1e-4)
        assert run.config.fix == ("unchanged" if key.method == "unchanged" else None)
    assert len(pick(runs, method="learned", zeroed=0.0)) == 2 * 5
    assert len({run.folder for run in runs.values()}) == len(runs) == 2 * 5 + 2 * 5


def test_baselines_are_those_of_classification(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    theirs = classification.train(setting)
    mine = pruned.train(setting)
    for start in best_starts(setting)[:2]:
        for seed in (0, 1):
            run = mine[ZeroedKey(start.family, "learned", 0.0, seed)]
            assert run.folder == theirs[Key(start.family, start.begin, "learned", seed)].folder


def test_the_learned_network_is_the_fixed_one_before_its_training(tmp_path):
    """The same cuts and the same weights, and nothing fixed."""
    dry = Setting("smoke", folder=tmp_path, dry=True)
    start, share = pruned.points(dry)[-1]
    run = pruned.train(dry)[ZeroedKey(start.family, "unchanged", share, 0)]
    model = load(pruned.pruned_file(Setting("smoke", folder=tmp_path), run))
    fixed = build_model(run.config, open_data(run.config))
    assert recipes(fixed)
    assert not recipes(model)
    theirs = fixed.state_dict()
    assert all(value.equal(theirs[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
