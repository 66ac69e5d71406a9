"""Metrics against SciPy, torchmetrics and counting; intervals against repeated experiments."""

import pytest
import torch
from scipy.stats import mannwhitneyu
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_f1_score,
    binary_stat_scores,
    multiclass_accuracy,
    multiclass_f1_score,
    multiclass_stat_scores,
)

from explainfix.lab.run.metrics import (
    MAIN_SCORE,
    Outcomes,
    Score,
    Scores,
    count_pixels,
    score,
    score_difference,
    weighted_auc,
)

NAN = float("nan")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def auc(scores, truth):
    """The rank formula: the share of pairs of a positive and a negative in the right order."""
    up, down = scores[truth == 1].numpy(), scores[truth == 0].numpy()
    return mannwhitneyu(up, down).statistic / (len(up) * len(down))


@pytest.mark.parametrize("levels", [3, 1000])
def test_auc_is_the_share_of_ordered_pairs(levels):
    scores = torch.randint(levels, (50,), generator=seeded()) / levels
    truth = torch.randint(2, (50,), generator=seeded(1))
    got = weighted_auc(scores, truth, torch.ones(1, 50, dtype=torch.float64)).item()
    assert got == pytest.approx(auc(scores, truth), abs=1e-12)
    assert got == pytest.approx(binary_auroc(scores, truth).item(), abs=1e-6)


def test_weights_are_repeated_images():
    scores, truth = torch.rand(20, generator=seeded()), torch.arange(20) % 2
    drawn = torch.randint(20, (5, 20), generator=seeded(1))
    weights = torch.stack([row.bincount(minlength=20) for row in drawn]).double()
    wanted = [auc(scores[row], truth[row]) for row in drawn]
    assert weighted_auc(scores, truth, weights).tolist() == pytest.approx(wanted)


def test_auc_per_task_and_mean_without_what_has_one_class():
    logits = torch.randn(30, 3, generator=seeded())
    targets = torch.randint(2, (30, 3), generator=seeded(1)).float()
    targets[:, 1] = 0
    targets[4:9, 0] = NAN
    got = score(Outcomes("multilabel", ("a", "b", "c"), logits, targets), resamples=50)
    known = ~targets[:, 0].isnan()
    a = auc(logits[known, 0], targets[known, 0])
    c = auc(logits[:, 2], targets[:, 2])
    assert [s.name for s in got.scores] == ["auc", "auc a", "auc c"]
    assert [s.value for s in got.scores] == pytest.approx([(a + c) / 2, a, c])
    assert got.left_out == ("b",)
    assert "bootstrap" in got.interval
    assert all(s.low <= s.value <= s.high for s in got.scores)


def test_no_task_with_two_classes_is_an_error_that_names_them():
    with pytest.raises(ValueError, match="'a', 'b' has one class only"):
        score(Outcomes("multilabel", ("a", "b"), torch.zeros(4, 2), torch.zeros(4, 2)))


def test_pixels_are_counted():
    logits = torch.randn(4, 1, 9, 7, generator=seeded())
    masks = torch.randint(2, (4, 1, 9, 7), generator=seeded(1)).float()
    masks[1, :, 5:] = NAN
    got = count_pixels(logits, masks)
    marked = torch.where(masks.isnan(), -1, masks).long()
    tp, fp, _, fn, _ = binary_stat_scores(
        logits.sigmoid().flatten(0, 1), marked.flatten(0, 1), multidim_average="samplewise",
        ignore_index=-1,
    ).unbind(-1)  # fmt: skip
    assert torch.equal(got.flatten(0, 1), torch.stack([tp, tp + fp, tp + fn], -1))


@pytest.mark.parametrize("space", [(9, 7), (4, 5, 3)])
def test_pixels_of_classes_that_exclude_each_other(space):
    logits = torch.randn(4, 3, *space, generator=seeded())
    masks = torch.randint(3, (4, 1, *space), generator=seeded(1)).float()
    masks[1, :, :, 2:] = NAN
    got = count_pixels(logits, masks)
    marked = torch.where(masks.isnan(), -1, masks).long()[:, 0]
    tp, fp, _, fn, _ = multiclass_stat_scores(
        logits, marked, 3, average=None, multidim_average="samplewise", ignore_index=-1
    ).unbind(-1)
    assert torch.equal(got, torch.stack([tp, tp + fp, tp + fn], -1))
    scores = score(Outcomes("segmentation", ("background", "a", "b"), got), resamples=20)
    each = multiclass_f1_score(logits, marked, 3, average=None, ignore_index=-1)[1:]
    assert [one.name for one in scores.scores] == ["dice", "dice per image", "dice a", "dice b"]
    assert scores["dice"].value == pytest.approx(each.mean().item())  # without the background
    assert scores["dice b"].value == pytest.approx(each[1].item())


def test_dice_is_pooled_and_per_image():
    logits, masks = torch.randn(5, 1, 8, 8, generator=seeded()), torch.zeros(5, 1, 8, 8)
    masks[:4, :, :3] = 1
    logits[4] = -1  # nothing there and nothing found: all right
    got = score(Outcomes("segmentation", ("x",), count_pixels(logits, masks)), resamples=20)
    pooled = binary_f1_score(logits.sigmoid(), masks.long()).item()
    each = [binary_f1_score(a.sigmoid(), b.long()).item() for a, b in zip(logits[:4], masks[:4])]  # noqa: B905
    assert got["dice"].value == pytest.approx(pooled)
    assert got["dice per image"].value == pytest.approx((sum(each) + 1) / 5)


def test_accuracy():
    logits, truth = torch.randn(40, 3, generator=seeded()), torch.arange(40) % 3
    got = score(Outcomes("multiclass", ("a", "b", "c"), logits, truth.float()))
    wanted = multiclass_accuracy(logits, truth, num_classes=3, average="micro")
    assert got["accuracy"].value == pytest.approx(wanted.item())
    assert got["accuracy"].low is None


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    hits = 0
    for trial in range(200):
        right = (torch.rand(60, generator=seeded(trial)) < 0.7).float()
        logits = torch.stack([1 - right, right], 1)
        outcomes = Outcomes("multiclass", ("no", "yes"), logits, torch.ones(60))
        got = score(outcomes, resamples=300, generator=seeded(trial))["accuracy"]
        hits += got.low <= 0.7 <= got.high
    assert 0.90 <= hits / 200 <= 0.99


def test_the_same_seed_gives_the_same_interval_and_leaves_global_numbers_alone():
    outcomes = Outcomes("multiclass", ("a", "b"), torch.randn(30, 2), torch.arange(30.0) % 2)
    before = torch.get_rng_state()
    assert score(outcomes, resamples=50) == score(outcomes, resamples=50)
    assert torch.equal(before, torch.get_rng_state())


def test_table_and_main_scores():
    counts = torch.tensor([[[2, 4, 4]], [[4, 4, 4]]])
    got = score(Outcomes("segmentation", ("x",), counts))
    assert got.table()["value"].to_dict() == {"dice": 0.75, "dice per image": 0.75}
    assert got.scores[0].name == MAIN_SCORE["segmentation"]
    with pytest.raises(ValueError, match="no image"):
        score(Outcomes("segmentation", ("x",), counts[:0]))


def test_scores_are_readable_where_they_are_the_result():
    found = Scores((Score("dice", 0.75, 0.5, 0.875), Score("dice organ", 1.0)), 1, interval="none")
    assert repr(found).splitlines() == [
        "Scores on 1 image; interval: none",
        "dice        0.7500 (0.5000 to 0.8750)",
        "dice organ  1.0000",
    ]
    assert found["dice"].value == 0.75
    with pytest.raises(ValueError, match="unknown score 'dise': did you mean 'dice'"):
        found["dise"]


def answers(seed, n=40):
    logits = torch.randn(n, 1, generator=seeded(seed))
    return Outcomes("multilabel", ("a",), logits, (torch.arange(n) % 2).float()[:, None])


def test_a_difference_is_paired_by_image():
    """A loop draws the same images of both; the interval of equals has no width."""
    one, other = answers(0), answers(1)
    found = score_difference(one, other, resamples=200)
    drawn = torch.randint(40, (200, 40), generator=seeded())
    truth = one.targets[:, 0]
    apart = [
        auc(other.values[rows, 0], truth[rows]) - auc(one.values[rows, 0], truth[rows])
        for rows in drawn
    ]
    low, high = torch.tensor(apart, dtype=torch.float64).quantile(
        torch.tensor([0.025, 0.975], dtype=torch.float64)
    )
    assert (found.low, found.high) == pytest.approx((low.item(), high.item()))
    whole = auc(other.values[:, 0], truth) - auc(one.values[:, 0], truth)
    assert found.value == pytest.approx(whole)
    same = score_difference(one, one)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_differences_are_of_the_same_images():
    with pytest.raises(ValueError, match="on the same images: 40 of multilabel and 20"):
        score_difference(answers(0), answers(0, 20))
