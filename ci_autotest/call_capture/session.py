"""Capture of a part of a program: a context manager for its author."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ci_autotest.call_capture.call_groups import TESTS
from ci_autotest.call_capture.journal import TensorSpool
from ci_autotest.call_capture.mode import CallMode
from ci_autotest.call_capture.tests_folder import check_folder, write_tests

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def capture(
    output: str | Path, name: str = "", tests: int = TESTS, *, replace: bool = False, data: bool = False
) -> Iterator[None]:
    """Write the operator calls of the block as tests when it ends, also by an exception.

    Args:
        output: The folder of the tests.
        name: What was captured, which names the files; by default the program.
        tests: Number of tests at most; those of the operators with the most calls are kept.
        replace: Whether tests of that name that the folder has are replaced.
        data: Whether the elements of the first call of each kind are stored beside the tests, which use them. Otherwise
            elements are drawn from the observed ranges.

    Raises:
        UsageError: The folder has tests of that name.
        OutputError: The folder cannot be written.
    """
    folder, program = Path(output), name or Path(sys.argv[0]).name
    check_folder(folder, program, is_forced=replace)
    with TemporaryDirectory(prefix="ci-autotest-") as place:
        spool = TensorSpool(Path(place, "data")) if data else None
        mode = CallMode(spool=spool)
        try:
            with mode:
                yield
        finally:
            if spool is not None:
                spool.close()
            for line in write_tests(mode.capture(), folder, program, tests, spool.path if spool is not None else None):
                sys.stderr.write(f"{line}\n")
