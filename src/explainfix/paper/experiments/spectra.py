"""spectra: what ExplainSteer shows of networks and initialisations, with and without saliency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...explanation import Explanation
from ...explanation.advice import stage_of
from ...explanation.compare import spectral_distance
from ...lab.run.folder import Run
from ...report.heatmap import main_shapes, plot_frequencies
from .. import xrays
from ..contrast import Measure, Rule, Verdict, decide, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import LABELS
from ..microscopy import train_steering
from ..networks import find_pretrained, missing_note
from ..setting import Setting
from ..spectral import (
    ENOUGH,
    GUIDED,
    JOINT,
    Case,
    Key,
    judge_guided,
    large_layers,
    mean_frequency,
    plot_heatmap,
    plot_methods,
    trained_cases,
    untrained_cases,
)

UNETD = "U-NetD"
LONG = 3  # layers that make a stage
UNEVEN = 0.05  # the share of a DCT2 layer's energy that may be off an even spread


def in_every_network(what: str) -> Rule:
    """Whether something is above 0 in every network, over its seeds if there are several."""
    measure = Measure(what, words={"name": "network", "number": "seed"})
    return (
        (measure.each() > 0)
        .for_every("name", alone=True)
        .said(lambda found: ", ".join(f"{name} {one.mean:+.2f}" for (name,), one in found.items()))
    )


LOW = in_every_network(
    "in e(0) of the 3x3 kernels of learned networks, weighted by saliency, the share of the lowest "
    "frequency less that of the highest"
)
EARLY = in_every_network(
    "the share of the saliency-weighted energy e(2) in the first half of the spatial layers of "
    "learned networks, less a half"
)
CLAIMS = (
    Claim("low", "Spatial kernels prioritise low frequencies.", "lowest > highest in e(0)", LOW),
    Claim("early", "Early layers matter more than later ones.", "darker from left to right", EARLY),
    Claim(
        "stages",
        "The later spatial layers of most stages are less useful.",
        "bright to dark, repeating",
        f"Of all stages with at least {LONG} spatial layers in learned networks, those whose later "
        "half has less weighted energy a layer than the earlier half: agrees if more than half, "
        "disagrees if fewer, undecided if half or if there is none.",
    ),
    Claim(
        "flat",
        "Without saliency, DCT2 is flat.",
        "a flat heatmap",
        f"The share of a layer's e(2) that is off an even spread, mean over layers with at least "
        f"{ENOUGH} kernels. Agrees if below {UNEVEN:.0%} in every network, else disagrees.",
    ),
    Claim(
        "steered",
        "Without saliency, GHaar and Psine prioritise lower frequencies.",
        "low first",
        "The mean total frequency weighted by e(2) over all kernels of a shape, less that of an "
        "even spread. Agrees if below 0 for both methods, every network and every shape of more "
        "than one layer; disagrees if above for all of one method; else undecided.",
    ),
    Claim(
        "guided",
        "Without saliency, GuidedSteer looks like its guide.",
        "exactly like its guide",
        GUIDED,
    ),
    Claim(
        "fixed",
        "Fixed filters are the same after training.",
        "unchanged by training",
        "Agrees if the kernels of every fixed layer of every trained network have the digest they "
        "were fixed with; disagrees otherwise.",
    ),
)


def train(setting: Setting) -> dict[Key, Run]:
    """The runs of steering; on x-rays learned networks and one from ImageNet with all methods."""
    runs = {Key(UNETD, k.method, k.seed): run for k, run in train_steering(setting).items()}
    scratch = xrays.starts(setting, "scratch")
    learned = range(setting.pick(smoke=2, cpu=2, paper=1))
    trained = [] if setting.scale == "smoke" else xrays.starts(setting, "pretrained")
    tuned = [start for start in trained if start.family == "densenet"] or trained[:1]
    titles = xrays.titles(setting)
    found = xrays.train_methods(setting, scratch, ["learned"], learned)
    found |= xrays.train_methods(setting, tuned, xrays.methods(setting), [0])
    return runs | {
        Key(titles[k.family, k.begin], k.method, k.seed): run for k, run in found.items()
    }


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Explain every network."""
    cases = [*trained_cases(setting, runs), *untrained_cases(setting)]
    learned = [case for case in cases if case.method == "learned" and case.weighted]
    first = {case.network: case.weighted for case in learned if case.seed == 0 and case.weighted}
    figures = {
        f"{network}, learned: energy e(2) of every layer, weighted by saliency": plot_heatmap(why)
        for network, why in first.items()
    }
    for network in dict.fromkeys(case.network for case in cases):
        shown = [case for case in cases if case.network == network and case.seed == 0]
        if len(shown) > 1:
            caption = (
                f"{network}: e(2) without saliency (left) and with it (right), bright is more; "
                "layers from left to right, basis filters from low to high frequency"
            )
            figures[caption] = plot_methods({c.method: (c.plain, c.weighted) for c in shown})
    figures["Per-model spectra e(0) of 3x3 kernels, weighted by saliency"] = plot_frequencies(
        [why for why in first.values() if (3, 3) in why.totals]
    )
    return Evidence(
        verdicts=verdicts(cases),
        tables={"Learned networks, weighted by saliency": table(learned)},
        figures=figures,
        notes=notes(setting),
    )


def verdicts(cases: Sequence[Case]) -> dict[str, Verdict]:
    """The seven claims, by their rules."""
    weighted: dict[str, list[Explanation]] = {}
    for case in cases:
        if case.method == "learned" and case.weighted:
            weighted.setdefault(case.network, []).append(case.weighted)
    return {
        "low": LOW.judge(samples({n: low_leads(all_) for n, all_ in weighted.items()})),
        "early": EARLY.judge(samples({n: map(early_lead, w) for n, w in weighted.items()})),
        "stages": judge_stages([all_[0] for all_ in weighted.values()]),
        "flat": judge_flat(cases),
        "steered": judge_steered(cases),
        "guided": judge_guided(guided_distances(cases)),
        "fixed": judge_fixed(cases),
    }


def low_leads(explanations: Sequence[Explanation]) -> list[float]:
    """The share of the lowest frequency in e(0) of 3x3 kernels less that of the highest."""
    totals = [why.totals.get((3, 3)) for why in explanations]
    spectra = [total.e0 for total in totals if total is not None and total.e0 is not None]
    return [float((e0[0] - e0[-1]) / e0.sum()) for e0 in spectra]


def early_lead(why: Explanation) -> float:
    """The share of energy in the first half of the layers, less a half; a middle one is halved."""
    sums = np.array([float(spectrum.ed.sum()) for spectrum in why.values()])
    half = len(sums) // 2
    first = sums[:half].sum() + (sums[half] / 2 if len(sums) % 2 else 0.0)
    return float(first / sums.sum() - 0.5)


def judge_stages(explanations: Sequence[Explanation]) -> Verdict:
    """Stages whose later half has less energy a layer."""
    falling = long = 0
    for why in explanations:
        stages: dict[str, list[float]] = {}
        for path, stage in stage_of(list(why)).items():
            stages.setdefault(stage, []).append(float(why[path].ed.sum()))
        for sums in stages.values():
            if len(sums) >= LONG:
                half = len(sums) // 2
                long += 1
                falling += np.mean(sums[-half:]) < np.mean(sums[:half])
    said = f"{falling} of {long} stages"
    return decide(said, agrees=2 * falling > long, disagrees=2 * falling < long)


def judge_flat(cases: Sequence[Case]) -> Verdict:
    """How far DCT2 is from even, a mean over the layers of each network."""
    off: dict[str, float] = {}
    for case in cases:
        if case.method == "dct2":
            layers = [
                spectral_distance(case.plain[path].ed, case.plain[path].ed * 0 + 1)
                for path in large_layers(case.plain)
            ]
            off[case.network] = max(float(np.mean(layers)), off.get(case.network, 0.0))
    said = ", ".join(f"{name} {value:.1%} off" for name, value in off.items())
    return decide(said, agrees=max(off.values()) < UNEVEN)


def judge_steered(cases: Sequence[Case]) -> Verdict:
    """The mean frequency of GHaar and Psine against an even spread's."""
    found: dict[str, list[float]] = {"ghaar": [], "psine": []}
    for case in cases:
        if case.method in found:
            for shape in main_shapes(case.plain):
                ed = np.asarray(case.plain.totals[shape].ed)
                even = (shape[0] - 1) * len(shape) / 2
                found[case.method].append(float(mean_frequency(ed / ed.sum(), shape[0])) - even)
    return decide(
        ", ".join(f"{LABELS[m]} {min(all_):+.2f} to {max(all_):+.2f}" for m, all_ in found.items()),
        agrees=all(max(values) < 0 for values in found.values()),
        disagrees=any(min(values) > 0 for values in found.values()),
    )


def guided_distances(cases: Sequence[Case]) -> list[float]:
    """GuidedSteer from its guide: U-NetD's is the learned run, others have ImageNet's own."""
    guides = {
        (case.network, case.seed): case.plain
        for case in cases
        if case.method == ("learned" if case.network == UNETD else "unchanged")
    }
    return [
        spectral_distance(guides[case.network, case.seed][path].ed, case.plain[path].ed)
        for case in cases
        if case.method == "guidedsteer"
        for path in large_layers(case.plain)
    ]


def judge_fixed(cases: Sequence[Case]) -> Verdict:
    """Whether any fixed layer changed."""
    counts = [case.changed for case in cases if case.changed is not None]
    said = f"{sum(counts)} layers changed in {len(counts)} networks"
    return decide(said, agrees=not any(counts))


def table(cases: Sequence[Case]) -> Rows:
    """A row per learned network, means over its seeds."""
    rows: Rows = []
    for network in dict.fromkeys(case.network for case in cases):
        mine = [c.weighted for c in cases if c.network == network and c.weighted]
        low = low_leads(mine)
        shares = [layer.low_share for why in mine for layer in why.layers.values()]
        even = [sum(layer.low_chance) / 2 for why in mine for layer in why.layers.values()]
        rows.append(
            {
                "network": network,
                "networks": len(mine),
                "spatial layers": len(mine[0]),
                "e(0), lowest less highest": float(np.mean(low)) if low else None,
                "energy in the first half": float(np.mean([early_lead(w) for w in mine])) + 0.5,
                "low frequencies in a layer": f"{np.mean(shares):.0%}",
                "if spread evenly": f"{np.mean(even):.0%}",
            }
        )
    return rows


def notes(setting: Setting) -> list[str]:
    """What differs from the paper."""
    said = [
        "Weights are those best on validation; saliency is over the first test images.",
        "U-NetD on microscopy is shown beside the networks on x-rays. Its spatial layers are "
        "listed encoder first, decoder after.",
        JOINT,
    ]
    if setting.scale == "smoke":
        said.append("Drawn images and a training of seconds: the spectra are mostly chance.")
        return said
    said.append(
        "Networks on ImageNet are as they were published, not fine-tuned: their saliency is that "
        "of all outputs on x-rays."
    )
    said += missing_note(find_pretrained())
    if setting.scale == "cpu":
        titles = {
            family: network.title for family, network in xrays.NETWORKS[setting.scale].items()
        }
        networks = ", ".join(titles.values())
        said.append(
            f"On x-rays the runs of classification ({networks}), short and on small images; the "
            "paper's are DenseNet121, ResNet50 and EfficientNet-b0 on CheXpert. What is "
            f"fine-tuned from ImageNet here is {titles['efficientnet']}, in the paper DenseNet121."
        )
        said.append(
            "Which networks are judged, and what GuidedSteer is compared with, was settled after "
            "a look at finished runs; the rules were not changed."
        )
    return said


EXPERIMENT = Experiment(
    name="spectra",
    title="Frequencies and layers that matter",
    reference="Fig. 12, App. G",
    needs=("microscopy", "xrays"),
    claims=CLAIMS,
    cost={
        "smoke": "5 s after steering",
        "cpu": "2 min after steering and classification",
        "paper": "5 min after steering and classification",
    },
    train=train,
    judge=judge,
)
