"""Runs with scores made by hand."""

from dataclasses import replace
from pathlib import Path

from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import Run


def made_run(scores, *, parameters=1000):
    """A run with these validation and test scores, an epoch each."""
    history = [
        {"epoch": i + 1, "seconds": 1.0, "val auc": s, "test auc": s} for i, s in enumerate(scores)
    ]
    return Run(Path("run"), RunConfig(epochs=len(scores)), history, {"parameters": parameters})


def made_runs(key, finals, **options):
    """Runs like that of a key, of several seeds whose last epochs score so."""
    return {
        replace(key, seed=s): made_run([0.5, 0.5, 0.5, v], **options) for s, v in enumerate(finals)
    }
