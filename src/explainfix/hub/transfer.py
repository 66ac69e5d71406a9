"""To the Hub and back: push_to_hub, from_pretrained, and a folder in between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from ..extras import needed_for
from ..store import check_free, load, save, written
from .card import FILE, model_card


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    repo_id: str | None = None,
    scores: Mapping[str, float | str] | None = None,
    license: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write what the Hub gets into a folder: the model as `explainfix.save` does, and its card."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file, card = folder / FILE, folder / "README.md"
    for path in (file, card):
        check_free(path, overwrite=overwrite)
    save(model, file, overwrite=overwrite)
    with written(card, overwrite=overwrite) as temporary:
        text = model_card(model, repo_id=repo_id, scores=scores, license=license)
        temporary.write_text(text, encoding="utf-8")


def push_to_hub(
    model: nn.Module,
    repo_id: str,
    *,
    scores: Mapping[str, float | str] | None = None,
    license: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    message: str = "A model saved by explainfix",
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Put a model on the Hub, with a card that says what was done to it; the commit's address.

    `repo_id` is NAME/MODEL and is made if it is not there. `scores` go into the card.
    """
    with needed_for("pushing to the Hub"):
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(endpoint=endpoint, token=token)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder, repo_id=repo_id, scores=scores, license=license)
        try:
            repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            commit = api.upload_folder(
                repo_id=repo_id, folder_path=folder, revision=revision, commit_message=message
            )
        except HfHubHTTPError as error:
            raise ValueError(
                f"{repo_id!r} could not be pushed: {_reason(error)}. May you write there? "
                "`hf auth login` logs in, or give token="
            ) from error
    return str(commit)


def from_pretrained(
    repo: str | Path,
    model: nn.Module | None = None,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    endpoint: str | None = None,
) -> nn.Module:
    """The model of a repository on the Hub, or of a folder: rebuilt, or put into `model`.

    A network of your own code comes back into the `model` you pass. Nothing that is downloaded is
    executed: the file holds tensors, and names of rules and of known networks.
    """
    file = find_file(
        repo,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        local_files_only=local_files_only,
        endpoint=endpoint,
    )
    return load_found(repo, file, model)


def find_file(repo: str | Path, *, revision: str | None = None, **options: Any) -> Path:
    """The file of a repository, downloaded unless it is in the cache, or of a folder.

    The options are those of `huggingface_hub.hf_hub_download`.
    """
    if Path(repo).is_dir():
        file = Path(repo) / FILE
        if not file.is_file():
            raise FileNotFoundError(f"the folder {str(repo)!r} holds no {FILE}")
        return file
    with needed_for("loading from the Hub"):
        from huggingface_hub import hf_hub_download
    with _failures_told(str(repo), revision):
        options["library_name"] = "explainfix"
        return Path(hf_hub_download(str(repo), FILE, revision=revision, **options))


def load_found(repo: str | Path, file: Path, model: nn.Module | None) -> nn.Module:
    """The model in a file that `find_file` found; errors name where it came from."""
    try:
        return load(file, model)
    except ValueError as error:
        raise ValueError(f"{FILE} of {str(repo)!r}: {error}") from error


@contextmanager
def _failures_told(repo: str, revision: str | None = None) -> Iterator[None]:
    """What keeps a file from being downloaded, in words that say what to do."""
    with needed_for("loading from the Hub"):
        from huggingface_hub import errors
    try:
        yield
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"there is no model {repo!r} on the Hub, or you may not read it: check the name, or "
            "log in (`hf auth login`, or give token=)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ValueError(f"the model {repo!r} has no revision {revision!r}") from error
    except errors.LocalEntryNotFoundError as error:
        raise ConnectionError(
            f"{repo!r} is not in the cache, and the Hub could not be reached ({_reason(error)})"
        ) from error
    except errors.EntryNotFoundError as error:
        raise ValueError(
            f"the model {repo!r} holds no {FILE}: it was not pushed by explainfix. Weights of "
            "other origin: download the file and create_model(NAME, weights=FILE)"
        ) from error
    except errors.HfHubHTTPError as error:
        raise ValueError(f"{repo!r} could not be loaded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
