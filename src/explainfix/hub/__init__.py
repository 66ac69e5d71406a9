"""Networks on the Hugging Face Hub: fixed, steered, mixed, pruned; one safetensors file, a card."""

from typing import TYPE_CHECKING, Any

from .card import model_card
from .transfer import from_pretrained, push_to_hub, save_pretrained

if TYPE_CHECKING:
    from .mixin import HubMixin as HubMixin

__all__ = ["HubMixin", "from_pretrained", "model_card", "push_to_hub", "save_pretrained"]


def __getattr__(name: str) -> Any:
    """The mixin is a class of huggingface_hub's, which is imported when it is asked for."""
    if name == "HubMixin":
        from .mixin import HubMixin

        return HubMixin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
