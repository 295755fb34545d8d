"""What registers a candidate's own operators with torch: its libraries and its modules."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import torch

from ci_autotest.errors import UnavailableError, error_text, import_failure

if TYPE_CHECKING:
    from ci_autotest.config import Candidate


def register(candidate: Candidate) -> None:
    """Load the libraries and import the modules with which a candidate registers operators.

    Raises:
        UnavailableError: One cannot be loaded or imported.
    """
    for path in candidate.load:
        try:
            torch.ops.load_library(path)  # type: ignore[no-untyped-call]
        except Exception as error:
            message = (
                f"library {path!r} of `load` cannot be loaded: {error_text(error)}. Build it, or correct the path."
            )
            raise UnavailableError(message) from error
    for name in candidate.imports:
        try:
            importlib.import_module(name)
        except Exception as error:
            message = f"module {name!r} of `import` cannot be imported: {import_failure(error, name)}"
            raise UnavailableError(message) from error
