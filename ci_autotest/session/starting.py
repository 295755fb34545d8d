"""The command ``init``: files that a repository needs to begin, written where there are none, and what to do next."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import OutputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

#: Template by the file that it becomes, below the repository's root.
FILES: Final = {
    "autotest.yml": "autotest.yml",
    "autotests/autotest_first.py": "autotest_first.py",
    ".github/workflows/autotest.yml": "autotest.workflow.yml",
    ".github/workflows/autotest-report.yml": "autotest-report.workflow.yml",
}
NEXT: Final = """
Next:
  1. ci-autotest run                      the test in autotests/ on the candidate in autotest.yml
  2. name your kernels in autotest.yml under `candidates:`, and write a test for each in autotests/
  3. add `autotest-report/` to .gitignore
  4. commit, and open a pull request. The workflow `autotest` tests it from there on. The workflow `autotest-report`
     comments, and works only once it is on the default branch: GitHub starts it from nowhere else.
"""


def init(root: Path, stream: TextIO) -> int:
    """Write the files that are missing below ``root``; nothing that is there is changed.

    Raises:
        UsageError: ``root`` lies inside a repository, and not at its root, where GitHub looks for workflows.
        OutputError: A file cannot be written.
    """
    refuse_inside(root.resolve())
    written = [name for name in FILES if write(root / name, template(FILES[name]))]
    for name in FILES:
        stream.write(f"{'wrote' if name in written else 'kept '} {name}\n")
    stream.write(NEXT)
    return 0


def refuse_inside(root: Path) -> None:
    """Refuse a folder of a repository that is not its root."""
    above = next((parent for parent in root.parents if (parent / ".git").exists()), None)
    if above is not None and not (root / ".git").exists():
        message = (
            f"'{root}' lies inside the repository '{above}': GitHub reads workflows from its root. Run init there."
        )
        raise UsageError(message)


def template(name: str) -> str:
    """Return the text of a template of the package."""
    return (files("ci_autotest.session") / "templates" / name).read_text(encoding="utf-8")


def write(path: Path, text: str) -> bool:
    """Write a new file and its folders; whether it was not there before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.is_file():
            return False
        message = f"'{path}' cannot be written: something else has its place. Move it away."
        raise OutputError(message) from None
    except OSError as error:
        message = f"'{path}' cannot be written: {error.strerror}. Correct that, and run init again."
        raise OutputError(message) from error
    return True
