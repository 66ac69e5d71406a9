"""What a step of training takes with each kind of filters: docs/results/steps.jsonl.

Runs are done several at a time, on machines that are busy with them, so that their own seconds
compare nothing. Here the networks of the table of methods take turns in one process, as they begin
and on the images that they train on. Run it with nothing beside it:

python -m explainfix.paper.results.steps docs DATA [DATA]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...lab.data.dataset import collate
from ...lab.measure.timing import Ratio, take_turns
from ...lab.measure.ways import Settings, Way
from ...lab.run.checkpoint import writing
from ...lab.run.config import RunConfig
from ...lab.run.folder import build_model, open_data
from ...lab.run.process import prepare_process
from ..experiment import find_experiment
from ..setting import Setting, sort_data
from .methods import SOURCES, Steps, network_of
from .record import Record, read_kept, read_scores

STEPS = "steps.jsonl"
DIGITS = 3
Configs = dict[str, dict[str, RunConfig]]  # by network and method


def write_steps(kept: Path, given: Iterable[str]) -> Path:
    """Time all that the table of methods has, with this data, and write it down."""
    records = {record["name"]: record for record in read_kept(kept)}
    configs: Configs = {}
    for experiment, name, field in SOURCES:
        if experiment in records:
            setting = Setting(records[experiment]["scale"], sort_data(given), dry=True)
            for network, found in first_runs(records[experiment], setting, name, field).items():
                configs[network] = found | configs.get(network, {})
    lines = [
        {"network": network, "method": method}
        | {name: round(value, DIGITS) for name, value in vars(ratio).items()}
        for network, found in configs.items()
        for method, ratio in race(found)
    ]
    file = kept / STEPS
    with writing(file) as temporary:
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def read_steps(kept: Path) -> Steps:
    """What was timed, by network and method; nothing if nothing was."""
    file = kept / STEPS
    lines = map(json.loads, file.read_text().splitlines() if file.is_file() else [])
    return {(line.pop("network"), line.pop("method")): str(Ratio(**line)) for line in lines}


def first_runs(record: Record, setting: Setting, name: str, field: str) -> Configs:
    """By network and method, the run of the first seed of those that an outcome has scores of."""
    scored = {tuple(vars(key).values()) for key in read_scores(record)[name]}
    found: Configs = {}
    for key, run in find_experiment(record["name"]).train(setting).items():
        if key.seed == 0 and tuple(vars(key).values()) in scored:
            found.setdefault(network_of(record, vars(key)), {})[getattr(key, field)] = run.config
    return found


def race(configs: dict[str, RunConfig]) -> Iterator[tuple[str, Ratio]]:
    """Each method's step against that with learned filters."""
    data = open_data(configs["learned"])
    images = data.split(configs["learned"].train_split)
    x, _ = collate([data.prepare(images[i]) for i in range(configs["learned"].batch_size)])
    steps = {}
    for method, config in configs.items():
        settings = Settings(config.channels_last, config.precision, config.frugal)
        steps[method] = Way(build_model(config, data), x, settings).step
    found = take_turns(steps, rounds=25, narrow=0.02)
    for method in configs:
        if method != "learned":
            yield method, found.ratio(method, to="learned")


def main(arguments: Sequence[str]) -> None:
    docs, *given = arguments
    prepare_process()
    print(f"Wrote {write_steps(Path(docs) / 'results', given)}")


if __name__ == "__main__":
    main(sys.argv[1:])
