"""Where things are on the server: addresses made from what the workflow knows, never from a report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from ci_autotest.result import Location

#: Image that replays what a stranger wrote. Source: the release workflow.
IMAGE: Final = "ghcr.io/org/ci-autotest:v1"
#: The server that ``gh`` asks unless told another.
PUBLIC: Final = "https://github.com"
#: Folder that a report is downloaded to.
FOLDER: Final = "autotest-report"

_CONFINED: Final = (
    '--rm --network none --read-only --cap-drop ALL --tmpfs /tmp:exec -v "$PWD:/github/workspace:ro" '
    '-w /github/workspace --user "$(id -u):$(id -g)"'
)


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
        digest: sha256 of the artifact's archive, ``""`` where it is not known.
        run_id: The run, 0 where there is none.
        artifact_name: Name under which the report was uploaded, ``""`` where it is not known.
        is_foreign: Whether a stranger may have written the programs: scripts of theirs are not to be run.
    """

    server: str
    repository: str
    sha: str
    prefix: str = ""
    run: str = ""
    artifact: str = ""
    digest: str = ""
    run_id: int = 0
    artifact_name: str = ""
    is_foreign: bool = False

    def replay(self, finding: str) -> str:
        """Return one line for a shell that downloads the report and runs a finding's program again; "" where none can.

        Of a stranger's pull request it runs in a container without network, and its script is not offered.
        """
        if not self.run_id or not self.artifact_name:
            return ""
        host = "" if self.server == PUBLIC else f"{urlsplit(self.server).netloc}/"
        where = f"--repo {shlex.quote(host + self.repository)} --name {shlex.quote(self.artifact_name)}"
        load = f"gh run download {self.run_id} {where} --dir {FOLDER}"
        again = f"replay {FOLDER}/findings/{finding}"
        run = f"docker run {_CONFINED} {IMAGE} {again}" if self.is_foreign else f"ci-autotest {again}"
        return f"{load} && {run}"

    def source(self, location: Location) -> str:
        """Return the address of a line of a file; every character that Markdown could read is quoted."""
        # A browser follows `..`, out of the repository.
        parts = f"{self.prefix}/{location.file}".split("/")
        path = "/".join(part for part in parts if part not in {"", ".", ".."})
        repository = f"{self.server.rstrip('/')}/{quote(self.repository, errors='replace')}"
        commit = quote(self.sha, safe="", errors="replace")
        return f"{repository}/blob/{commit}/{quote(path, errors='replace')}#L{location.line}"
