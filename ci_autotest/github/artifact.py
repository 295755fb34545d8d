"""Find the artifacts to read: those of one run by name, and those of the base branch."""

from __future__ import annotations

import re
import tempfile
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import UsageError
from ci_autotest.github.archive import MOST_BYTES
from ci_autotest.github.environ import ARTIFACT_NAME, COMMIT
from ci_autotest.github.http_messages import Forbidden, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from ci_autotest.github.client import Client

#: Most artifacts of one run that are read: a matrix has at most 256 legs.
MOST_LEGS: Final = 256
#: Most artifacts that are searched for those of the base branch.
_MOST_LOOKED_AT: Final = 300
#: Commits up to the tested one that are asked for: a page. The base branch is usually tested at each of its own.
_COMMITS_BEFORE: Final = 100

_NAME: Final = re.compile(ARTIFACT_NAME)


class ArtifactRun(msgspec.Struct, frozen=True):
    """The run that uploaded an artifact; for a fork, the head's repository is another one."""

    id: int = 0
    repository_id: int = 0
    head_repository_id: int = -1
    head_branch: str = ""
    head_sha: str = ""


class Artifact(msgspec.Struct, frozen=True):
    """An artifact.

    Attributes:
        digest: Of its archive, if a recent version of the action uploaded it.
        created_at: When it was uploaded, in UTC.
    """

    id: int
    name: str
    expired: bool
    digest: str | None = None
    created_at: str | None = None
    workflow_run: ArtifactRun | None = None


class _Page(msgspec.Struct, frozen=True):
    artifacts: list[Artifact]


class _Parent(msgspec.Struct, frozen=True):
    sha: str


class _Commit(msgspec.Struct, frozen=True):
    sha: str
    parents: tuple[_Parent, ...] = ()


_PAGE: Final = msgspec.json.Decoder(_Page)
_COMMITS: Final = msgspec.json.Decoder(list[_Commit])


def check_artifact_name(name: str) -> str:
    """Return ``name`` if it is safe in a request and as a folder.

    Raises:
        UsageError: It has characters other than letters, digits, blanks and ``_ . -``.
    """
    if not _NAME.fullmatch(name):
        message = f"artifact name {name[:100]!r} is not allowed. Use letters, digits, '_', '.', '-' and blanks only."
        raise UsageError(message)
    return name


def of_run(client: Client, repository: str, run_id: int, name: str) -> list[Artifact] | Forbidden:
    """Return the latest artifact ``name`` of a run, and those whose names begin with it and a dash.

    Raises:
        PublishError: GitHub does not answer as GitHub.
    """
    listing = Listing(path=f"/repos/{repository}/actions/runs/{run_id}/artifacts", shape=_PAGE, items=_artifacts)
    found = client.pages(listing)
    if isinstance(found, Forbidden):
        return found
    # Ids grow with time: a job that was run again has uploaded under the same name.
    latest = {item.name: item for item in sorted(found, key=lambda item: item.id) if not item.expired}
    own = [latest[name]] if name in latest else []
    legs = (item for key, item in sorted(latest.items()) if key.startswith(f"{name}-") and _NAME.fullmatch(key))
    return [*own, *legs][:MOST_LEGS]


def of_branch(client: Client, repository: str, branch: str, name: str, but: int) -> list[Artifact] | Forbidden:
    """Return the artifacts with this name from the repository's own ``branch``, the latest first.

    Args:
        client: Sends the requests.
        repository: ``owner/name``.
        branch: Name of the branch.
        name: Name of the artifacts.
        but: A run to skip: the one that is compared, which may have uploaded before it was run again.

    Raises:
        PublishError: GitHub does not answer as GitHub.
    """
    path = f"/repos/{repository}/actions/artifacts"
    found = client.pages(Listing(path=path, shape=_PAGE, items=_artifacts, params={"name": name}))
    if isinstance(found, Forbidden):
        return found
    return [item for item in islice(found, _MOST_LOOKED_AT) if item.name == name and _is_of(item, branch, but)]


def _is_of(item: Artifact, branch: str, but: int) -> bool:
    run = item.workflow_run
    # A branch of a fork may have the same name, so the head's repository is compared too.
    is_own = run is not None and run.head_repository_id == run.repository_id and run.head_branch == branch
    return is_own and run is not None and run.id != but and not item.expired


def commits_before(client: Client, repository: str, tested: str, head: str) -> frozenset[str]:
    """Return the tested commit and the latest before it; none if the token may not read them.

    Args:
        client: Sends the requests.
        repository: ``owner/name``.
        tested: The commit that a report names, which is a merge of the head where a pull request was tested. Its author
            may have named any, so that it counts only if the head is one of its parents.
        head: The head of the pull request, or the commit that was tested; empty if it is unknown.

    Raises:
        PublishError: GitHub does not answer as GitHub.
    """
    found: list[_Commit] = []
    for sha in dict.fromkeys((tested, head)):
        if not found and re.fullmatch(COMMIT, sha):
            page = client.get(f"/repos/{repository}/commits", _COMMITS, {"sha": sha, "per_page": _COMMITS_BEFORE})
            commits = [] if isinstance(page, Forbidden) else page
            is_head = bool(commits) and head in {sha, *(parent.sha for parent in commits[0].parents)}
            found = commits if is_head else []
    return frozenset(commit.sha for commit in found)


def download(client: Client, repository: str, artifact: Artifact) -> BinaryIO | Forbidden:
    """Return the archive of an artifact in an unnamed file, because ten of 100 MB would fill the memory.

    Raises:
        PublishError: It is too large, or the answer is not from GitHub.
    """
    file: BinaryIO = client.files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack is one
    refusal = client.file(f"/repos/{repository}/actions/artifacts/{artifact.id}/zip", MOST_BYTES, file)
    return file if refusal is None else refusal


def _artifacts(page: _Page) -> Iterable[Artifact]:
    return page.artifacts
