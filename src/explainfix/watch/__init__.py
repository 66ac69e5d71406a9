"""A network as it trains: its spectra from moment to moment, its fixed filters, its trackers."""

from .callback import lightning_callback
from .timeline import Snapshot, Timeline
from .trackers import Log, to_mlflow, to_tensorboard, to_wandb
from .watch import Watch

__all__ = [
    "Log",
    "Snapshot",
    "Timeline",
    "Watch",
    "lightning_callback",
    "to_mlflow",
    "to_tensorboard",
    "to_wandb",
]
