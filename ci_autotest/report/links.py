"""Where things are on the server: addresses made from what the workflow knows, never from a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from ci_autotest.result import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Know a repository at a commit, and the run.

    Args:
        server: ``https://github.com``, or an own server's address.
        repository: ``owner/name``.
        sha: The commit that was tested.
        prefix: The configuration's folder in the repository, ``""`` for its top.
        run: Address of the workflow run, ``""`` where there is none.
        artifact: Address of the artifact, ``""`` where there is none yet.
    """

    server: str
    repository: str
    sha: str
    prefix: str = ""
    run: str = ""
    artifact: str = ""

    def source(self, location: Location) -> str:
        """Return the address of a line of a file; every character that Markdown could read is quoted."""
        path = "/".join(part for part in (self.prefix.strip("/"), location.file) if part not in {"", "."})
        repository = f"{self.server.rstrip('/')}/{quote(self.repository)}"
        return f"{repository}/blob/{quote(self.sha, safe='')}/{quote(path, errors='replace')}#L{location.line}"
