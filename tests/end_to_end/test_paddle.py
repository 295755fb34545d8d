"""Paddle in an interpreter of its own: operators of each family are aligned, wrong rows are seen, what is absent is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ci_autotest.backends.hosting import Interpreter
from ci_autotest.backends.mapping.table import load_table
from ci_autotest.backends.mapping.translate import Translator
from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.record.profiles import ORDINARY
from tests.engine import record, tried

PYTHON = Path(__file__).parents[2] / ".venvs" / "paddle" / "bin" / "python"

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason="needs Paddle: python3.11 -m venv .venvs/paddle && .venvs/paddle/bin/pip install paddlepaddle==3.3.1",
    ),
]
LINEAR = "torch.nn.functional.linear"


def backend_with(**rows):
    where = Interpreter("paddle", str(PYTHON), "paddle", "cpu", ())
    table = load_table("paddle").extended({name.replace("__", "."): row for name, row in rows.items()}, "a test")
    return RemoteBackend(where, Translator(table))


@pytest.fixture(scope="module")
def paddle():
    backend = backend_with()
    yield backend
    backend.close()


def wrong(**rows):
    """Return the verdict on the first of a few cases that a candidate with these rows is misaligned on."""
    raise NotImplementedError
