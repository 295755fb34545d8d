"""The command ``init``: writes the files that a repository needs to start, never over existing ones."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ci_autotest.doc_links import Page, link
from ci_autotest.errors import OutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import TextIO

System = Literal["github", "gitlab", "jenkins"]

_COMMON: Final = {"autotest.yml": "autotest.yml", "autotests/autotest_first.py": "autotest_first.py"}
#: Templates by CI system and by the path of the file below the repository's root.
FILES: Final[dict[System, dict[str, str]]] = {
    "github": {
        **_COMMON,
        ".github/workflows/autotest.yml": "workflows/autotest.yml",
        ".github/workflows/autotest-report.yml": "workflows/autotest-report.yml",
    },
    "gitlab": {
        **_COMMON,
        ".gitlab/autotest.gitlab-ci.yml": "autotest.gitlab-ci.yml",
        ".gitlab-ci.yml": "gitlab-ci.yml",
    },
    "jenkins": {**_COMMON, "Jenkinsfile": "Jenkinsfile"},
}
#: Placeholder in the templates for the organisation whose release of ci-autotest is used.
PLACEHOLDER: Final = "org"
_PROJECT: Final = "ci-autotest"
_NEXT: Final = """
Next:
  1. {organisation}
  2. ci-autotest run                      the test in autotests/ on the candidate in autotest.yml
  3. list your kernels in autotest.yml under `candidates:`, and write a test for each in autotests/:
     {tutorial}
     {configuration}
  4. add `autotest-report*/` and `.autotest/` to .gitignore
  5. {last}
     {page}
"""
_LAST: Final[dict[System, str]] = {
    "github": """commit, and open a pull request. The workflow `autotest` tests it. The workflow `autotest-report`
     comments; it works only once it is on the default branch, because GitHub starts it only from there.""",
    "gitlab": """commit, and open a merge request. If `.gitlab-ci.yml` existed before, add this to it:
     include: [{local: .gitlab/autotest.gitlab-ci.yml}]""",
    "jenkins": """commit, and make a multibranch pipeline of this repository; it needs the plugins
     `docker-workflow` and `junit`. If `Jenkinsfile` existed before, this page has the stage to add:""",
}
_PAGE: Final[dict[System, Page]] = {
    "github": Page.PULL_REQUESTS,
    "gitlab": Page.CI_SYSTEMS,
    "jenkins": Page.CI_SYSTEMS,
}
#: Remotes that name the organisation, in this order: the `origin` of a fork is a person's.
_REMOTES: Final = ("upstream", "origin")
#: `https://user:word@host:443/acme/kernels.git` and `git@host:acme/kernels.git`.
_ADDRESSES: Final = (
    re.compile(r"[a-z+]+://(?:[^@/]*@)?(?P<host>[^/:]+)(?::[0-9]+)?/(?P<owner>[^/]+)/"),
    re.compile(r"(?:[^@/:]+@)?(?P<host>[^/:]+):(?P<owner>[^/]+)/"),
)
#: Registry to which ci-autotest's release workflow pushes the images.
_IMAGE_REGISTRY: Final = "ghcr.io"
_PUBLIC_HOST: Final = "github.com"


class Organisation(NamedTuple):
    """The owner of a repository, and the remote that names it."""

    name: str
    host: str
    remote: str


def init(root: Path, stream: TextIO, system: System = "github") -> int:
    """Write the files for ``system`` that are missing below ``root``; existing files do not change.

    Raises:
        UsageError: ``root`` is a folder inside a repository: CI systems read their files from the repository's root.
        OutputError: A file cannot be written.
    """
    refuse_inside(root.resolve())
    owner = organisation(root)
    # The images are in GitHub's registry, so an organisation of another server has none.
    named = owner if owner and (system == "github" or owner.host == _PUBLIC_HOST) else None
    texts = {name: template(source) for name, source in FILES[system].items()}
    # All are checked before the first is written: a failure must not leave half of the files behind.
    written = [name for name in texts if is_missing(root, name)]
    write_all({root / name: filled(texts[name], named) for name in written})
    for name in texts:
        stream.write(f"{'wrote' if name in written else 'kept '} {name}\n")
    is_open = any(f"{PLACEHOLDER}/{_PROJECT}" in text for text in texts.values())
    pages = {"tutorial": Page.TUTORIAL, "configuration": Page.CONFIGURATION, "page": _PAGE[system]}
    links = {name: link(page) for name, page in pages.items()}
    stream.write(_NEXT.format(organisation=about(named, is_open=is_open), last=_LAST[system], **links))
    return 0


def organisation(root: Path) -> Organisation | None:
    """Return the owner of the repository in ``root`` from its remotes; ``None`` if they do not name one."""
    for remote in _REMOTES:
        try:
            argv = ["git", "-C", str(root), "remote", "get-url", remote]
            done = subprocess.run(argv, check=False, capture_output=True, text=True)
        except FileNotFoundError:
            return None
        found = next((match for address in _ADDRESSES if (match := address.match(done.stdout.strip()))), None)
        if found and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", found["owner"]):
            return Organisation(found["owner"], found["host"], remote)
    return None


def filled(text: str, owner: Organisation | None) -> str:
    """Return a template with the organisation in place of ``org``."""
    if owner is None:
        return text
    # A registry accepts lower case only.
    text = text.replace(f"{_IMAGE_REGISTRY}/{PLACEHOLDER}/", f"{_IMAGE_REGISTRY}/{owner.name.lower()}/")
    return re.sub(rf"(?<=[ /]){PLACEHOLDER}/{_PROJECT}", f"{owner.name}/{_PROJECT}", text)


def about(owner: Organisation | None, *, is_open: bool) -> str:
    """Return the first of the next steps: what to do about the organisation in the files.

    Args:
        owner: The organisation that was filled in.
        is_open: Whether the templates have a placeholder for it.
    """
    if not is_open:
        return "look at the files: they use ci-autotest from the organisation that released this version"
    if owner is None:
        return f"replace `{PLACEHOLDER}/{_PROJECT}` in these files by the organisation that releases ci-autotest"
    return (
        f"the files use `{owner.name}/{_PROJECT}`, because remote '{owner.remote}' belongs to '{owner.name}': "
        "change that if another organisation releases ci-autotest"
    )


def refuse_inside(root: Path) -> None:
    """Refuse a folder of a repository that is not its root."""
    above = next((parent for parent in root.parents if (parent / ".git").exists()), None)
    if above is not None and not (root / ".git").exists():
        message = (
            f"'{root}' is inside the repository '{above}': CI systems read their files from its root. Run init there."
        )
        raise UsageError(message)


def template(name: str) -> str:
    """Return the text of a template; the workflows are in the package, or beside it in a checkout."""
    root = files("ci_autotest")
    places = (root / "commands" / "templates" / name, root / name, root.joinpath("..", name))
    return next(place for place in places if place.is_file()).read_text(encoding="utf-8")


def is_missing(root: Path, name: str) -> bool:
    """Return whether the file ``name`` below ``root`` has to be written; ``False`` if it exists.

    Raises:
        OutputError: Something else is in the way, or the file's folder cannot be written.
    """
    path = root / name
    if path.is_file():
        return False
    folder = path.parent
    while not folder.exists() and not folder.is_symlink():
        folder = folder.parent
    blocking = path if path.is_symlink() or path.exists() else folder
    if blocking == path or not folder.is_dir():
        wanted = "file" if blocking == path else "folder"
        message = (
            f"'{blocking}' is in the way: it is {_kind(blocking)}, and init needs a {wanted} there. "
            "Move it away, and run init again. Nothing was written."
        )
        raise OutputError(message)
    if not os.access(folder, os.W_OK | os.X_OK):
        message = (
            f"'{path}' cannot be written: permission denied in '{folder}'. "
            "Make that folder writable, and run init again. Nothing was written."
        )
        raise OutputError(message)
    return True


def _kind(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return "a broken link"
    return "a folder" if path.is_dir() else "a file" if path.is_file() else "no regular file"


def write_all(texts: Mapping[Path, str]) -> None:
    """Write new files and their folders: all of them, or none, also if it is interrupted.

    Raises:
        OutputError: A file cannot be written.
    """
    with ExitStack() as undo:
        for path, text in texts.items():
            try:
                _write_new(path, text, undo)
            except OSError as error:
                message = (
                    f"'{path}' cannot be written: {error.strerror}. "
                    "Correct that, and run init again. Nothing was written."
                )
                raise OutputError(message) from error
        undo.pop_all()


def _write_new(path: Path, text: str, undo: ExitStack) -> None:
    for folder in reversed(path.parents):
        if not folder.is_dir():
            undo.callback(_remove_empty, folder)
            folder.mkdir(exist_ok=True)
    # "x": a link that appeared since the check is not followed.
    with path.open("x", encoding="utf-8") as file:
        undo.callback(path.unlink)
        file.write(text)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # Someone else has put a file there.
        folder.rmdir()
