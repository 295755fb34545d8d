"""Where things are on the server: addresses made from what the workflow knows, never from a report."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.finding import Location

#: Image that replays what a stranger wrote, where the job names none. Source: the release workflow.
IMAGE: Final = "ghcr.io/org/ci-autotest:v1"
#: The server that ``gh`` asks unless told another.
PUBLIC: Final = "https://github.com"
#: Folder that a report is downloaded to.
FOLDER: Final = "autotest-report"

# An image of this project's release workflow, without its variant: there is one for each device.
_OWN_IMAGE: Final = re.compile(r"(ghcr\.io/)[\w.-]+/[\w.-]*ci-autotest(:v[\d.]+)(?:-cuda)?", re.ASCII)
_ANY_IMAGE: Final = re.compile(r"[\w][\w./:@-]{0,254}", re.ASCII)
_SLUG: Final = re.compile(r"\w[\w.-]{0,99}/\w[\w.-]{0,99}", re.ASCII)


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
        pull: Number of the pull request, 0 where there is none: its code is what is tested again.
        image: That replays a stranger's program.
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
    pull: int = 0
    image: str = IMAGE

    def replay(self, finding: str, *, on_gpu: bool = False) -> str:
        """Return lines for a shell that run a finding's program on the code of the pull request; "" where none can.

        Of a stranger's pull request it runs in a container without network, and its script is not offered.

        Args:
            finding: Its id.
            on_gpu: Whether its candidate runs on CUDA.
        """
        if not self.run_id or not self.artifact_name:
            return ""
        host = "" if self.server == PUBLIC else f"{urlsplit(self.server).netloc}/"
        repository = shlex.quote(host + self.repository)
        fetch = f"gh pr checkout {self.pull} --repo {repository} &&\n  " if self.pull else ""
        load = (
            f"gh run download {self.run_id} --repo {repository} \\\n"
            f"    --name {shlex.quote(self.artifact_name)} --dir {FOLDER} &&\n  "
        )
        again = f"replay {FOLDER}/findings/{finding}"
        return f"{fetch}{load}{self._confined(again, on_gpu=on_gpu) if self.is_foreign else f'ci-autotest {again}'}"

    def _confined(self, command: str, *, on_gpu: bool) -> str:
        own = _OWN_IMAGE.fullmatch(self.image)
        image = f"{self.image.removesuffix('-cuda')}{'-cuda' if on_gpu else ''}" if own else self.image
        return (
            f"docker run --rm {'--gpus all ' if on_gpu else ''}--network none --read-only --cap-drop ALL \\\n"
            '    --tmpfs /tmp:exec -v "$PWD:/github/workspace:ro" -w /github/workspace \\\n'
            '    --user "$(id -u):$(id -g)" \\\n'
            f"    {shlex.quote(image)} \\\n"
            f"    {command}"
        )

    @property
    def commit(self) -> str:
        """Address of the commit that was tested."""
        return f"{self._repository}/commit/{quote(self.sha, safe='', errors='replace')}"

    def kernel(self, location: Location) -> str:
        """Return the address of a line of a file, which is named from the repository's top; "" where it is outside."""
        parts = location.file.split("/")
        is_inside = not {"", ".", ".."}.intersection(parts) and "\\" not in location.file and location.line > 0
        return self._line(location.file, location.line) if is_inside else ""

    def source(self, location: Location) -> str:
        """Return the address of a line of a file; every character that Markdown could read is quoted."""
        # A browser follows `..`, out of the repository.
        parts = f"{self.prefix}/{location.file}".split("/")
        path = "/".join(part for part in parts if part not in {"", ".", ".."})
        return self._line(path, location.line)

    def _line(self, path: str, line: int) -> str:
        commit = quote(self.sha, safe="", errors="replace")
        return f"{self._repository}/blob/{commit}/{quote(path, errors='replace')}#L{line}"

    @property
    def _repository(self) -> str:
        return f"{self.server.rstrip('/')}/{quote(self.repository, errors='replace')}"


def repository_path(folder: str, file: str) -> str:
    """Return a file's path from the repository's top.

    Args:
        folder: The configuration's folder in the repository, ``""`` for its top.
        file: Relative to that folder.
    """
    return "/".join(part for part in (folder.strip("/"), file) if part not in {"", "."})


def image_of(environ: Mapping[str, str]) -> str:
    """Return the image that a job names: that of its input, in the registry of the action's own repository."""
    given, repository = environ.get("AUTOTEST_IMAGE", "").strip(), environ.get("AUTOTEST_REPOSITORY", "").strip()
    image = given if _ANY_IMAGE.fullmatch(given) else IMAGE
    own = _OWN_IMAGE.fullmatch(image)
    return f"{own[1]}{repository.lower()}{own[2]}" if own and _SLUG.fullmatch(repository) else image
