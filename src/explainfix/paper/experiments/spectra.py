"""spectra: what ExplainSteer shows of networks and initialisations, with and without saliency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...lab.run.folder import Run
from ...report.heatmap import plot_frequencies
from .. import xrays
from ..contrast import Measure, Rule, Sample, Scores, mean_of, samples
from ..experiment import Claim, Evidence, Experiment, Rows
from ..microscopy import train_steering
from ..networks import find_pretrained, missing_note
from ..setting import Setting
from ..spectral import (
    ENOUGH,
    GUIDED,
    JOINT,
    LONG,
    Case,
    Key,
    early_lead,
    falling_stages,
    frequencies,
    guided_distances,
    layer_share,
    low_leads,
    measure_spectra,
    nearer_by_saliency,
    plot_heatmap,
    plot_methods,
    summed_leads,
    trained_cases,
    unevenness,
    untrained_cases,
)
from ..verdict import InWords, Verdict, decide

UNETD = "U-NetD"
UNEVEN = 0.05  # the share of a DCT2 layer's energy that may be off an even spread
PRETRAINED, SCRATCH = "pretrained", "from scratch"


def say_means(scores: Scores) -> str:
    """The mean of every name."""
    names = dict.fromkeys(key.name for key in scores)
    return ", ".join(f"{name} {mean_of(scores, name=name):+.2f}" for name in names)


def in_every(
    what: str, *, below: bool = False, alone: bool = False, name: str = "network"
) -> InWords:
    """Whether something is above 0 (or below) for every name, over seeds."""
    each = Measure(what, words={"name": name, "number": "seed"}).each()
    rule = (each < 0 if below else each > 0).for_every("name", alone=alone)
    return InWords(str(rule), lambda scores: Verdict(rule.judge(scores).word, say_means(scores)))


def pretrained_less(what: str) -> Rule:
    """Pretrained networks against those from scratch, seed by seed."""
    measure = Measure(what, words={"number": "seed"})
    return measure.mean(PRETRAINED, name=PRETRAINED) - measure.mean(SCRATCH, name=SCRATCH) > 0


_LEARNED = "learned networks of which there are several seeds"
_LOWEST = "the share of the lowest frequency less that of the highest"
STAGES = (
    Measure(
        f"the share of a network's stages, of at least {LONG} spatial layers, whose later half has "
        "less weighted energy a layer than the earlier half, less a half",
        words={"name": "learned network", "number": "seed"},
    ).each()
    > 0
)
ALIKE = (
    Measure(
        "the mean distance between the heatmaps e(2) of two initialisations of a network (the "
        "share of energy that lies elsewhere), without saliency less with it",
        words={"name": "network", "number": "seed"},
    ).each()
    > 0
)
CLAIMS = (
    Claim(
        "low",
        "Spatial kernels prioritise low frequencies.",
        "lowest > highest in e(0)",
        in_every(f"in e(0) of the 3x3 kernels of {_LEARNED}, weighted by Eq. (7), {_LOWEST}"),
        on="low",
    ),
    Claim(
        "low-gradient",
        "They do so by the authors' computation.",
        "lowest > highest in e(0)",
        in_every(
            f"in the sum over layers of e(0) of the 3x3 kernels of {_LEARNED}, weighted by the "
            f"absolute gradient, {_LOWEST}"
        ),
        on="low, by gradient",
    ),
    Claim(
        "early",
        "Early layers matter more than later ones.",
        "darker from left to right",
        in_every(
            "the share of the saliency-weighted energy e(2) in the first half of the spatial "
            f"layers of {_LEARNED}, but for {UNETD}, less a half"
        ),
        on="early",
    ),
    Claim(
        "stages",
        "The later spatial layers of most stages are less useful.",
        "bright to dark, repeating",
        STAGES,
        on="stages",
    ),
    Claim(
        "alike",
        "Saliency makes explanations more similar for a given architecture.",
        "less dependent on initialisation",
        ALIKE,
        on="alike",
    ),
    Claim(
        "concentrates",
        "Pretraining concentrates energy onto low frequencies.",
        "better than learning from random networks",
        pretrained_less(f"in e(0) of the 3x3 kernels of a learned network, weighted, {_LOWEST}"),
        on="pretraining, frequencies",
    ),
    Claim(
        "fewer",
        "Pretraining concentrates energy onto fewer spatial layers.",
        "better than learning from random networks",
        pretrained_less(
            "1 less the share of its spatial layers that the weighted energy of a learned network "
            "needs, (Σe)²/Σe²/n"
        ),
        on="pretraining, layers",
    ),
    Claim(
        "flat",
        "Without saliency, DCT2 is flat.",
        "a flat heatmap",
        InWords(
            "The share of a layer's e(2) that is off an even spread, mean over layers with at "
            f"least {ENOUGH} kernels. Agrees if below {UNEVEN:.0%} in every network, else "
            "disagrees.",
            lambda scores: decide(
                ", ".join(f"{key.name} {value:.1%} off" for key, value in scores.items()),
                agrees=max(scores.values()) < UNEVEN,
            ),
        ),
        kind="construction",
        on="flat",
    ),
    Claim(
        "steered",
        "Without saliency, GHaar and Psine prioritise lower frequencies.",
        "low first",
        in_every(
            "the mean total frequency weighted by e(2) without the constant filter, over all "
            "kernels of a shape, less that of an even spread over the other filters",
            below=True,
            alone=True,
            name="method, network and shape",
        ),
        on="steered",
    ),
    Claim(
        "guided",
        "Without saliency, GuidedSteer looks like its guide.",
        "exactly like its guide",
        GUIDED,
        on="guided",
    ),
    Claim(
        "fixed",
        "Fixed filters are the same after training.",
        "unchanged by training",
        InWords(
            "Agrees if the kernels of every fixed layer of every trained network have the digest "
            "they were fixed with; disagrees otherwise.",
            lambda scores: decide(
                f"{sum(scores.values()):.0f} layers changed in {len(scores)} networks",
                agrees=not any(scores.values()),
            ),
        ),
        kind="construction",
        on="changed layers",
    ),
)


def train(setting: Setting) -> dict[Key, Run]:
    """The runs of steering; on x-rays learned networks and one from ImageNet with all methods."""
    runs = {Key(UNETD, k.method, k.seed): run for k, run in train_steering(setting).items()}
    titles = xrays.titles(setting)
    found = xrays.train_methods(
        setting, xrays.all_starts(setting), ["learned"], paper=6, pooled=True
    )
    found |= xrays.train_methods(setting, begun_both_ways(setting), ["learned"], paper=6)
    found |= xrays.train_methods(
        setting, tuned(setting), xrays.methods(setting), paper=1, pooled=True
    )
    return runs | {
        Key(titles[k.family, k.begin], k.method, k.seed): run for k, run in found.items()
    }


def begun_both_ways(setting: Setting) -> list[xrays.Start]:
    """The networks that begin from scratch and pretrained, which two claims compare."""
    begins = Counter(start.family for start in xrays.all_starts(setting))
    return [start for start in xrays.all_starts(setting) if begins[start.family] > 1]


def tuned(setting: Setting) -> list[xrays.Start]:
    """The network from ImageNet that all methods are shown of: the paper's is DenseNet121."""
    trained = xrays.starts(setting, "pretrained")
    return [start for start in trained if start.family == "densenet"] or trained[:1]


def judge(setting: Setting, runs: Mapping[Key, Run]) -> Evidence:
    """Explain every network."""
    cases = [*trained_cases(measure_runs(setting, runs)), *untrained_cases(setting)]
    learned = [case for case in cases if case.method == "learned" and case.weighted]
    first = {case.network: case.weighted for case in learned if case.seed == 0 and case.weighted}
    figures = {
        f"{network}, learned: energy e(2) of every layer, weighted by saliency": plot_heatmap(why)
        for network, why in first.items()
    }
    for network in dict.fromkeys(case.network for case in cases):
        of = [case for case in cases if case.network == network and case.seed == 0]
        if len(of) > 1:
            caption = (
                f"{network}: e(2) without saliency (left) and with it (right), bright is more; "
                "layers from left to right, basis filters from low to high frequency"
            )
            figures[caption] = plot_methods({c.method: (c.plain, c.weighted) for c in of})
    figures["Per-model spectra e(0) of 3x3 kernels, weighted by saliency"] = plot_frequencies(
        [why for why in first.values() if (3, 3) in why.totals]
    )
    return Evidence(
        scores=measure(cases),
        untested=lacking(cases),
        tables={"Learned networks, weighted by saliency": table(learned)},
        figures=figures,
        notes=notes(setting),
    )


def measure_runs(setting: Setting, runs: Mapping[Key, Run]) -> dict[Key, dict[str, Any]]:
    """The spectra of all runs; with saliency of all that a figure or a claim shows so."""
    shown = {start.title for start in tuned(setting)}
    return measure_spectra(setting, runs, lambda key: key.seed == 0 or key.network in shown)


def lacking(cases: Sequence[Case]) -> dict[str, str]:
    """The claims that need ImageNet weights, if there are none."""
    if any(case.network.endswith(PRETRAINED) for case in cases):
        return {}
    keys = ("alike", "concentrates", "fewer", "guided")
    return dict.fromkeys(keys, "no ImageNet weights are at hand")


def measure(cases: Sequence[Case]) -> dict[str, Scores]:
    """What the rules judge."""
    learned: dict[str, list[Case]] = {}
    for case in cases:
        if case.method == "learned":
            learned.setdefault(case.network, []).append(case)
    several = {name: mine for name, mine in learned.items() if len(mine) > 1} or learned
    weighted = {name: [c.weighted for c in mine if c.weighted] for name, mine in several.items()}
    gradient = {n: [c.by_gradient for c in mine if c.by_gradient] for n, mine in several.items()}
    there = {name: whys for name, whys in weighted.items() if low_leads(whys)}
    both = {kind: weighted[name] for kind, name in trained_both_ways(weighted).items()}
    on_xrays = {name: whys for name, whys in weighted.items() if name != UNETD}
    return {
        "low": samples({name: low_leads(whys) for name, whys in there.items()}),
        "low, by gradient": samples({name: summed_leads(gradient[name]) for name in there}),
        "early": samples({name: map(early_lead, whys) for name, whys in on_xrays.items()}),
        "stages": samples({n: falling_stages(whys) for n, whys in on_xrays.items()}),
        "alike": {
            Sample(network, seed): lead
            for (network, seed), lead in nearer_by_saliency(cases).items()
        },
        "pretraining, frequencies": samples({kind: low_leads(w) for kind, w in both.items()}),
        "pretraining, layers": samples(
            {kind: [1 - layer_share(why) for why in w] for kind, w in both.items()}
        ),
        "flat": samples(unevenness(cases)),
        "steered": samples(frequencies(cases)),
        "guided": samples({"GuidedSteer": guided_distances(cases)}),
        "changed layers": samples(
            {"fixed": [case.changed for case in cases if case.changed is not None]}
        ),
    }


def trained_both_ways(networks: Iterable[str]) -> dict[str, str]:
    """The first network that was trained from scratch and pretrained, by its name in each way."""
    names = set(networks)
    for name in networks:
        twin = name.replace(SCRATCH, PRETRAINED)
        if name.endswith(SCRATCH) and twin in names:
            return {PRETRAINED: twin, SCRATCH: name}
    return {}


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
            f"On x-rays the runs of classification ({networks}), short and on small images: from "
            "scratch they are near their random start. The paper's are DenseNet121, ResNet50 and "
            "EfficientNet-b0 on CheXpert. All methods are shown of "
            f"{', '.join(start.title for start in tuned(setting)) or 'none'}, in the paper of a "
            "pretrained DenseNet121."
        )
        said.append(
            "The absolute gradient and e(0) summed over layers are how the authors' code computes "
            "what the paper shows: the two ways can differ in sign. Networks of one seed, as those "
            "from ImageNet, are in the table and are not judged."
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
    measure=measure_runs,
)
