import subprocess
import sys

import explainfix as xf


def test_importing_costs_torch_only():
    """No model zoo, no drawing, no experiments until somebody asks for them."""
    heavy = ("torchvision", "timm", "segmentation_models_pytorch", "matplotlib", "scipy", "rich")
    program = f"""
import sys, explainfix
print([name for name in {heavy!r} if name in sys.modules])
print([name for name in sys.modules if name.startswith("explainfix.lab")])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split("\n")[:2] == ["[]", "[]"]


def test_the_public_names_are_there():
    assert all(hasattr(xf, name) for name in xf.__all__)
    assert len(xf.__all__) <= 24
