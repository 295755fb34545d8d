"""What every test has."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests import fork_server

if TYPE_CHECKING:
    from collections.abc import Iterator

# Under `nohup` an ignored SIGHUP would be inherited by the commands that tests send one; a handler is not inherited,
# and not by the processes of xdist either, which get their own.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or "PYTEST_XDIST_WORKER" in os.environ:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def temporary_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the folder that holds all temporary ones: pytest makes it at the first use, and two threads would make two."""
    tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module", autouse=True)
def own_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the commands of a module that looks at processes, signals or limits a fork server of their own."""
    with fork_server.unused() if getattr(request.module, "OWN_SERVER", False) else nullcontext():
        yield
