"""What every test has."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def temporary_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the folder that holds all temporary ones: pytest makes it at the first use, and two threads would make two."""
    tmp_path_factory.getbasetemp()
