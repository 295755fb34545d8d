"""Make the environments named on the command line, all without a name; what cannot be made is said, and is status 1."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from candidates.making import made
from ci_autotest.environments import FOLDER, RECIPES


def main(names: list[str]) -> int:
    """Make environments below ``.venvs``.

    Args:
        names: Of environments.
    """
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        sys.stderr.write(f"there is no candidate {unknown[0]!r}. There are {', '.join(RECIPES)}.\n")
        return 2
    failed = 0
    for name in names or RECIPES:
        said = made(name, RECIPES[name], Path(FOLDER), os.environ)
        sys.stdout.write(f"{said.text}\n")
        sys.stdout.flush()
        failed += not said.is_there
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
