"""Carry out one step of ``action.yml``: ``python -I action plan|prepare|install|run|publish``.

Python puts the folder that it runs first on the import path, also under ``-I``. Its parent takes that place, so that
these modules are named ``action.…`` for every importer.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from action.steps import main

    sys.exit(main(sys.argv, os.environ))
