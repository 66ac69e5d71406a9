"""The paper's experiments by name: one file each, run at three scales and judged by rules."""

from .experiment import list_experiments as list_experiments
