"""Packages that only a part of explainfix needs: who misses one is told the line to install it."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

# What is imported, and the extra of pyproject.toml that installs it.
EXTRAS = {
    "torchvision": "torchvision",
    "timm": "timm",
    "segmentation_models_pytorch": "smp",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "lightning_fabric": "lab",
    "matplotlib": "lab",
    "pandas": "lab",
    "PIL": "lab",
    "pyarrow": "lab",
    "scipy": "lab",
    "tifffile": "lab",
    "pydicom": "dicom",
    "monai": "medical",
    "nibabel": "medical",
    "tensorboard": "tensorboard",
    "ray": "cluster",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "lightning": "lightning",
    "huggingface_hub": "hub",
}


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Around imports: a package of an extra that is missing is answered with how to install it.

    >>> with needed_for("a table"):
    ...     raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
    Traceback (most recent call last):
    ImportError: a table needs pandas, which is not installed: pip install 'explainfix[lab]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise _missing(what, package) from None


def require(extra: str, what: str) -> None:
    """Raise unless all that an extra installs is there, before hours of work that need it."""
    for package, name in EXTRAS.items():
        if name == extra and not installed(package):
            raise _missing(what, package)


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _missing(what: str, package: str) -> ImportError:
    return ImportError(
        f"{what} needs {package}, which is not installed: "
        f"pip install 'explainfix[{EXTRAS[package]}]'",
        name=package,
    )
