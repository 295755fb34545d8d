"""Addresses on the server, made from the workflow's variables and never from a report."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.finding import Location

#: Image in which a program from a fork is replayed, unless the job names one. Source: the release workflow.
IMAGE: Final = "ghcr.io/org/ci-autotest:v1"
#: Default server of ``gh``.
PUBLIC: Final = "https://github.com"
#: The default of ``--output``.
FOLDER: Final = "autotest-report"

# An image of this project's release workflow, which has a variant for CUDA.
_OWN_IMAGE: Final = re.compile(r"(ghcr\.io/)[\w.-]+/[\w.-]*ci-autotest(:v[\d.]+)(?:-cuda)?", re.ASCII)
_ANY_IMAGE: Final = re.compile(r"[\w][\w./:@-]{0,254}", re.ASCII)
_SLUG: Final = re.compile(r"\w[\w.-]{0,99}/\w[\w.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses of a repository at a commit, and of the run.

    Args:
        server: ``https://github.com``, or the address of an own server.
        repository: ``owner/name``.
        sha: Commit to link to; the head of a pull request.
        prefix: The configuration's folder in the repository, ``""`` for its top.
        run: Address of the workflow run, or ``""``.
        artifact: Address of the artifact, ``""`` before it is uploaded.
        digest: sha256 of the artifact's archive, ``""`` if unknown.
        uploaded: When the artifact was uploaded, in UTC as GitHub writes it; ``""`` if unknown.
        run_id: Id of the run, or 0.
        artifact_name: Name of the uploaded report, ``""`` if unknown.
        is_foreign: Whether the programs may come from a fork; then its scripts must not be run.
        pull: Number of the pull request whose code is replayed, or 0.
        image: Image in which a program from a fork is replayed.
    """

    server: str
    repository: str
    sha: str
    prefix: str = ""
    run: str = ""
    artifact: str = ""
    digest: str = ""
    uploaded: str = ""
    run_id: int = 0
    artifact_name: str = ""
    is_foreign: bool = False
    pull: int = 0
    image: str = IMAGE

    def replay(self, finding: str, *, on_gpu: bool = False) -> str:
        """Return shell commands that run a finding's program on the code of the pull request; "" without an artifact.

        A program from a fork runs in a container without network, and its script is not offered.

        Args:
            finding: Id of the finding.
            on_gpu: Whether its candidate runs on CUDA.
        """
        if not self.run_id or not self.artifact_name:
            return ""
        host = "" if self.server == PUBLIC else f"{urlsplit(self.server).netloc}/"
        repository = shlex.quote(host + self.repository)
        folder, load = folder_of(self.run_id), f"gh run download {self.run_id} --repo {repository}"
        # From any folder of a checkout, and again: `gh` does not write over what is there.
        steps = [
            'cd "$(git rev-parse --show-toplevel)"',
            *([f"gh pr checkout {self.pull} --repo {repository}"] if self.pull else []),
            *([f"cd {shlex.quote(self._inside)}"] if self._inside else []),
            f"rm -rf {folder}",
            f"{load} \\\n    --name {shlex.quote(self.artifact_name)} --dir {folder}",
        ]
        again = f"replay {folder}/findings/{finding}"
        steps.append(self._confined(again, on_gpu=on_gpu) if self.is_foreign else f"ci-autotest {again}")
        return " &&\n  ".join(steps)

    @property
    def _inside(self) -> str:
        """The configuration's folder, from which the configuration is found; empty if it is no folder inside."""
        parts = [part for part in self.prefix.split("/") if part]
        is_inside = self.prefix.isprintable() and not self.prefix.startswith("/") and not {".", ".."} & {*parts}
        return "/".join(parts) if is_inside else ""

    def _confined(self, command: str, *, on_gpu: bool) -> str:
        own = _OWN_IMAGE.fullmatch(self.image)
        image = f"{self.image.removesuffix('-cuda')}{'-cuda' if on_gpu else ''}" if own else self.image
        place = shlex.quote(f"/github/workspace/{self._inside}".rstrip("/"))
        return (
            f"docker run --rm {'--gpus all ' if on_gpu else ''}--network none --read-only --cap-drop ALL \\\n"
            f'    --tmpfs /tmp:exec -v "$(git rev-parse --show-toplevel):/github/workspace:ro" -w {place} \\\n'
            '    --user "$(id -u):$(id -g)" \\\n'
            f"    {shlex.quote(image)} \\\n"
            f"    {command}"
        )

    @property
    def commit(self) -> str:
        """Address of the commit."""
        return f"{self._repository}/commit/{quote(self.sha, safe='', errors='replace')}"

    def kernel(self, location: Location) -> str:
        """Return the address of a line of a file, relative to the repository's top; "" for a path outside of it."""
        parts = location.file.split("/")
        is_inside = not {"", ".", ".."}.intersection(parts) and "\\" not in location.file and location.line > 0
        return self._line(location.file, location.line) if is_inside else ""

    def source(self, location: Location) -> str:
        """Return the address of a line of a file; characters that Markdown interprets are quoted."""
        # A browser resolves `..`, which could lead out of the repository.
        parts = f"{self.prefix}/{location.file}".split("/")
        path = "/".join(part for part in parts if part not in {"", ".", ".."})
        return self._line(path, location.line)

    def _line(self, path: str, line: int) -> str:
        commit = quote(self.sha, safe="", errors="replace")
        return f"{self._repository}/blob/{commit}/{quote(path, errors='replace')}#L{line}"

    @property
    def _repository(self) -> str:
        return f"{self.server.rstrip('/')}/{quote(self.repository, errors='replace')}"


def folder_of(run_id: int) -> str:
    """Return the folder into which the report of a run is downloaded, beside that of a run here."""
    return f"{FOLDER}-{run_id}"


def repository_path(folder: str, file: str) -> str:
    """Return a file's path from the repository's top.

    Args:
        folder: The configuration's folder in the repository, ``""`` for its top.
        file: Relative to that folder.
    """
    return "/".join(part for part in (folder.strip("/"), file) if part not in {"", "."})


def image_of(environ: Mapping[str, str]) -> str:
    """Return the image of the job's input, in the registry of the action's own repository."""
    given, repository = environ.get("AUTOTEST_IMAGE", "").strip(), environ.get("AUTOTEST_REPOSITORY", "").strip()
    image = given if _ANY_IMAGE.fullmatch(given) else IMAGE
    own = _OWN_IMAGE.fullmatch(image)
    return f"{own[1]}{repository.lower()}{own[2]}" if own and _SLUG.fullmatch(repository) else image
