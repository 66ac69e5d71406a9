"""A mixin for networks of your own: what Hugging Face's gives, with explainfix's file and card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from torch import nn

from ..extras import needed_for
from ..store import save
from .card import FILE, model_card
from .transfer import find_file, load_found

with needed_for("HubMixin"):
    from huggingface_hub import ModelCard, ModelHubMixin


class HubMixin(ModelHubMixin, library_name="explainfix", tags=["explainfix"]):
    """`save_pretrained`, `push_to_hub` and `from_pretrained` for a class of your own.

    Beside the weights in explainfix's file goes `config.json`, the arguments the network was made
    with; `from_pretrained` makes it with them again, then fixes, parts and cuts it as it was.

    >>> class Net(nn.Sequential, HubMixin):
    ...     def __init__(self, width: int = 8):
    ...         super().__init__(nn.Conv2d(1, width, 3), nn.Conv2d(width, 2, 3))
    >>> import explainfix as xf
    >>> model = Net(width=4)
    >>> recipe = xf.fix_(model, "ghaar")
    >>> folder = getfixture("tmp_path")
    >>> model.save_pretrained(folder)
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    >>> xf.check_fixed(Net.from_pretrained(folder))
    """

    def push_to_hub(
        self, repo_id: str, *, scores: Mapping[str, float | str] | None = None, **options: Any
    ) -> str:
        """Put it on the Hub; `scores` go into the card, the options are Hugging Face's."""
        told = {"repo_id": repo_id, "scores": scores, **(options.pop("model_card_kwargs", {}))}
        return str(super().push_to_hub(repo_id, model_card_kwargs=told, **options))

    def generate_model_card(self, **told: Any) -> ModelCard:
        """The card, see `hub.model_card`."""
        kind, name = type(self), told.get("repo_id") or "FOLDER"
        known = self._hub_mixin_info.model_card_data.license
        code = (
            f"from {kind.__module__} import {kind.__name__}\n\n"
            f'model = {kind.__name__}.from_pretrained("{name}")'
        )
        return ModelCard(
            model_card(self._as_module(), **{"license": known, **told}, load_with=code)
        )

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self._as_module(), Path(save_directory) / FILE, overwrite=True)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **model_kwargs: Any,
    ) -> Self:
        file = find_file(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
        )
        model = cls(**model_kwargs)
        load_found(model_id, file, model._as_module())
        return model

    def _as_module(self) -> nn.Module:
        if not isinstance(self, nn.Module):
            kind = type(self).__name__
            raise TypeError(f"{kind} must be a network: class {kind}(torch.nn.Module, HubMixin)")
        return self
