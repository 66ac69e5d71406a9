"""Packages that only a part of explainfix needs: who misses one is told the line to install it."""

from collections.abc import Iterator
from contextlib import contextmanager

# What is imported, and the extra of pyproject.toml that installs it.
EXTRAS = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "huggingface_hub": "hub",
}


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Around imports: a package of an extra that is missing is answered with how to install it.

    >>> with needed_for("a log of Weights & Biases"):
    ...     raise ModuleNotFoundError("No module named 'wandb'", name="wandb")
    Traceback (most recent call last):
    ImportError: a log of Weights & Biases needs wandb, which is not installed: pip install
        'explainfix[wandb]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise ImportError(
            f"{what} needs {package}, which is not installed: "
            f"pip install 'explainfix[{EXTRAS[package]}]'",
            name=package,
        ) from None
