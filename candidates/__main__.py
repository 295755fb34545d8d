"""Install the environments that the command line names, or all of them. If one fails, the status is 1."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from candidates.installation import install
from ci_autotest.environments import FOLDER, RECIPES


def main(names: list[str]) -> int:
    """Install environments in ``.venvs``.

    Args:
        names: Names of environments; empty for all of them.
    """
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        sys.stderr.write(f"there is no candidate {unknown[0]!r}. There are {', '.join(RECIPES)}.\n")
        return 2
    failed = 0
    for name in names or RECIPES:
        result = install(name, RECIPES[name], Path(FOLDER), os.environ)
        sys.stdout.write(f"{result.text}\n")
        sys.stdout.flush()
        failed += not result.is_installed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
