"""The verdicts of pruned on scores and times made by hand, and the networks it trains."""

import pytest

from explainfix import load
from explainfix.lab.run.folder import build_model, open_data
from explainfix.paper.experiments import classification, pruned
from explainfix.paper.experiments.inference import begins
from explainfix.paper.setting import Setting
from explainfix.recipe import recipes
from xray_runs import made_runs


@pytest.fixture
def every_point(tmp_path):
    return pruned.points(Setting("paper", folder=tmp_path, dry=True))


def made(every_point, *, fixed=0.0, learned=0.0, smallest=0.0):
    """Five baselines and one run of each point, which leads them by so much."""
    runs = {}
    for i, point in enumerate(every_point):
        runs |= made_runs(point.start.label("learned"), [0.80, 0.81, 0.82, 0.81, 0.81])
        noise = 0.001 * i
        lead = smallest if point.share == 0.999 else fixed
        runs |= made_runs(point.label("fixed"), [0.81 + noise + lead], parameters=400)
        runs |= made_runs(point.label("learned"), [0.81 - noise + learned], parameters=400)
    return runs


def words(found):
    return {key: verdict.word for key, verdict in found.items()}


def test_accuracy(every_point):
    found = words(pruned.verdicts(every_point, made(every_point, smallest=-0.03)))
    assert found == {"equal": "agrees", "learned": "agrees", "smallest": "agrees"}
    found = words(pruned.verdicts(every_point, made(every_point, fixed=-0.1, smallest=0.05)))
    assert (found["equal"], found["smallest"]) == ("disagrees", "disagrees")
    found = words(pruned.verdicts(every_point, made(every_point, learned=0.1)))
    assert found["learned"] == "disagrees"
    found = words(pruned.verdicts(every_point, made(every_point, smallest=-0.008)))
    assert found["smallest"] == "undecided"


def test_time(every_point):
    times = {
        family: {"learned": [2.0, 2.1, 2.0]}
        | {f"fixed {s}": [1.0, 1.0, 1.1] for s in shares}
        | {f"learned {s}": [1.5, 1.5, 1.6] for s in shares}
        for family, shares in pruned.SHARES.items()
    }
    verdict = pruned.judge_times(every_point, times)
    assert verdict.word == "agrees"
    assert verdict.ours == "saves 49% to 49%; pruned alike, 33% to 33%"
    times["resnet"]["fixed 0.99"] = [1.8, 1.8, 1.9]
    assert pruned.judge_times(every_point, times).word == "disagrees"


def test_share_pruned(every_point):
    runs = made(every_point)
    base = every_point[0].start.label("learned")
    assert pruned.pruned_share(runs, every_point[0].label("fixed"), base) == pytest.approx(0.6)


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
    for label, run in runs.items():
        if " learned 0." in label:
            assert run.config.lr == 2e-4
            assert run.config.fix is None
        elif " learned " in label:
            assert run.config.lr == 1e-4
    assert sum(" pretrained learned " in k and " 0." not in k for k in runs) == 2 * 5
    assert len({run.folder for run in runs.values()}) == len(runs) == 2 * 5 + 2 * 5


def test_baselines_are_those_of_classification(tmp_path):
    setting = Setting("cpu", folder=tmp_path, dry=True)
    theirs = classification.train(setting)
    mine = pruned.train(setting)
    for start in begins(setting)[:2]:
        for seed in (0, 1):
            label = f"{start.label('learned')} {seed}"
            assert mine[label].folder == theirs[label].folder


def test_the_learned_network_is_the_fixed_one_before_its_training(tmp_path):
    """The same cuts and the same weights, and nothing fixed."""
    dry = Setting("smoke", folder=tmp_path, dry=True)
    point = pruned.points(dry)[-1]
    run = pruned.train(dry)[f"{point.label('fixed')} 0"]
    model = load(pruned.pruned_file(Setting("smoke", folder=tmp_path), run))
    fixed = build_model(run.config, open_data(run.config))
    assert recipes(fixed)
    assert not recipes(model)
    theirs = fixed.state_dict()
    assert all(value.equal(theirs[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
