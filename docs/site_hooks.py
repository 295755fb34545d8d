"""What the site does to pages: links to files of the repository, and a check that no public name is left out."""

from __future__ import annotations

import inspect
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.exceptions import PluginError

import ci_autotest
from ci_autotest import testing

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
_LINK: Final = re.compile(r"\]\((?P<path>\.\./[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
#: Another spelling of a name on the page.
_ALIASES: Final = {"random_pytorch_tensor": "random_tensor", "random_pytorch_dtype": "random_dtype"}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Turn links to files outside of the pages into links to the repository."""
    if page.file.src_uri == "reference/api.md":
        _require_names(markdown)
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match["path"]))
        if target.startswith("docs/"):
            return match[0]
        if not (ROOT / target).exists():
            message = f"{page.file.src_uri} links to {target}, which does not exist"
            raise PluginError(message)
        return f"]({config.repo_url}/blob/main/{target}{match['anchor'] or ''})"

    return _LINK.sub(link, markdown)


def _require_names(markdown: str) -> None:
    for name in ci_autotest.__all__:
        documented = _ALIASES.get(name, name)
        if not re.search(rf"(::: ci_autotest\.[\w.]*\b|## `ci_autotest\.){documented}\b", markdown):
            message = f"reference/api.md has no entry for the public name {name!r}"
            raise PluginError(message)
        if not inspect.getdoc(getattr(testing, name)):
            message = f"the public name {name!r} has no docstring"
            raise PluginError(message)
