"""The page of the package, made from README.md when it is built.

A package index shows that page without the files beside it. So its links and pictures are made
absolute by one setting, `home` in pyproject.toml, the address of the project on GitHub. While there
is none, pictures are left out and links to files become plain text.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCED = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)(\n\n)?")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)")


def package_page(text: str, home: str = "", version: str = "") -> str:
    """Markdown with every link and picture absolute, as of that version, or without them.

    >>> page = "See [the docs](docs/a.md#b), [a paper](https://arxiv.org).\\n\\n![x](a.png)\\n\\nEnd"
    >>> print(package_page(page))
    See the docs, [a paper](https://arxiv.org).
    <BLANKLINE>
    End
    >>> print(package_page(page, "https://host/us/it/", "1.0").replace("https://host/us/it/", "~"))
    See [the docs](~blob/v1.0/docs/a.md#b), [a paper](https://arxiv.org).
    <BLANKLINE>
    ![x](~raw/v1.0/a.png)
    <BLANKLINE>
    End
    """
    home = home.rstrip("/")
    picture = rf"![\1]({home}/raw/v{version}/\2)\3" if home else ""
    link = rf"[\1]({home}/blob/v{version}/\2)" if home else r"\1"
    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(link, _PICTURE.sub(picture, part)) for part in parts[::2]]
    return "".join(parts)


class PackagePage(MetadataHookInterface):
    """What hatchling calls."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = self.config.get("home", "")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        page = package_page(text, home, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
        if home:
            metadata["urls"]["Source"] = home
