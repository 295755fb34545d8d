"""A test of a data loader that pytest or unittest runs: its loader runs in a process of its own all the same."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci_autotest.config import duration_s
from ci_autotest.config.known_differences import apply_known
from ci_autotest.errors import AuthorError
from ci_autotest.in_process import configuration_of, relative_path
from ci_autotest.loader.observer import Asked, judgement_of
from ci_autotest.pytest_options import PYTEST_OPTIONS
from ci_autotest.report.finding_message import About, finding_of, message_lines
from ci_autotest.values.case import root_seed
from ci_autotest.values.finding import counts_against
from ci_autotest.values.result import LOADER_CANDIDATE

if TYPE_CHECKING:
    from ci_autotest.loader.declaration import LoaderDeclaration

#: unittest leaves out the frames of modules that have this name, so a failure shows its message alone.
__unittest = True


def run_loader_here(declared: LoaderDeclaration, arguments: str) -> None:
    """Run a test of a data loader in a process of its own, and raise if its workers, epochs or ranks share numbers.

    Args:
        declared: The test's declaration.
        arguments: ``[3-same]`` if it is called with arguments.

    Raises:
        AssertionError: They do, and the configuration does not accept it.
        AuthorError: Nothing was compared.
    """
    __tracebackhide__ = True
    body, options = declared.body, PYTEST_OPTIONS.get()
    source, name = Path(body.__code__.co_filename).resolve(), body.__qualname__
    config, root = configuration_of(source)
    file = relative_path(source, root)
    test = (declared.id or f"{file}::{name.replace('.', '::')}") + arguments
    seed = options.seed if options.seed is not None else root_seed(config.seed, os.environ)
    asked = Asked(str(root), [str(source.parent), str(root), *sys.path], file, name + arguments, seed, declared)
    timeout_s = duration_s(config.case_timeout, "case_timeout")
    judgement = judgement_of(asked, timeout_s, os.environ)
    verdict = judgement.verdict
    if verdict.outcome == "unsupported":
        message = f"{test} compared nothing: {verdict.oracle}."
        raise AuthorError(message)
    finding = finding_of(verdict, About(LOADER_CANDIDATE, test, name, 0, seed))
    known = apply_known((finding,), config.known, datetime.now().astimezone().date())
    if verdict.outcome == "misaligned" and counts_against(known[0]):
        again = f"  its repro: {shlex.join(['ci-autotest', 'run', test, '--seed', str(seed)])}"
        raise AssertionError("\n".join([*message_lines(finding), again]))
