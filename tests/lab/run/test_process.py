"""A library changes nothing in the process that calls it; the command line may."""

import logging
import os
import subprocess
import sys

from explainfix.lab.run.process import prepare_process

PROGRAM = """
import logging, os, sys
import torch
from explainfix.lab.run import process

called = []
process.keep_large_blocks = lambda: called.append("mallopt")
OURS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "RAY_USAGE_STATS_ENABLED", "MKL_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES")

def state():  # Lightning sets variables and its own level when it is imported
    variables = [os.environ.get(name) for name in OURS]
    return variables, logging.getLogger().level, torch.get_num_threads()

before = state()
from explainfix.lab.measure.timing import time_training
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.train import train
from explainfix.lab.sweep.workers import Workers
from explainfix.paper import list_experiments

list_experiments()
train(RunConfig(model="unetd", data="nuclei", data_options={"size": 32, "count": 10},
      epochs=1, batch_size=2, fix="ghaar"), runs=sys.argv[1])
time_training({"a": torch.nn.Conv2d(1, 1, 3)}, torch.zeros(1, 1, 8, 8), rounds=2)
assert state() == before
assert logging.getLogger("lightning_fabric").level < logging.WARNING
assert logging.getLogger("torch.multiprocessing.spawn").level == logging.NOTSET
assert not called
print("unchanged")
"""


def test_training_and_timing_leave_the_process_alone(tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip().endswith("unchanged"), run.stderr


def test_a_process_of_our_own_is_prepared(monkeypatch):
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    logger = logging.getLogger("lightning_fabric")
    monkeypatch.setattr(logger, "level", logging.INFO)
    prepare_process()
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 1024
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"  # what the user says holds
    assert logger.level == logging.WARNING


def test_a_training_command_reports_nothing_but_its_own(tmp_path):
    """Lightning is imported after the process is prepared, and sets its own level then."""
    command = "train --data-option count=8 size=32 --epochs 1 --batch-size 4 --precision bf16-mixed"
    run = subprocess.run(
        [sys.executable, "-m", "explainfix", *command.split(), "--accelerator", "cpu"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert not run.stderr
    assert run.stdout.startswith("Training unetd on nuclei")
