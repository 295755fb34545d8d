"""A test run where it was called: under pytest or unittest, in their process, without isolation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ci_autotest import config as configuration
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.rules import Rules, ToleranceRow
from ci_autotest.backends.build import available_device, build
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import AuthorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.config import Candidate, Config
    from ci_autotest.result import Verdict

SAID_ONCE: Final = "ci-autotest: tests run in this process, without isolation; `ci-autotest run` gives each a worker.\n"


def rules_for(config: Config, candidate: Candidate, declared: Any) -> Rules:  # noqa: ANN401 - a Declaration
    """Return how a test's values are compared on a candidate."""
    rows = tuple(
        ToleranceRow(row.operator, row.rtol, row.atol, row.dtype, row.candidate)
        for row in config.tolerances
        if row.candidate in {None, candidate.name}
    )
    return Rules(declared.rtol, declared.atol, declared.check_dtype, config.strictness, rows)


def run_here(declared: Any, test: str, draw: Callable[[int, int], Attempt]) -> None:  # noqa: ANN401 - a Declaration
    """Run a test's cases and raise on the first that is misaligned.

    Args:
        declared: The test's declaration.
        test: Its name, for messages.
        draw: Makes the attempt ``(case, number)``.

    Raises:
        AssertionError: A candidate is misaligned.
        AuthorError: Nothing was compared.
    """
    path = configuration.find(Path.cwd())
    config = configuration.read(path) if path else configuration.Config()
    if path and str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    candidates = config.candidates or (configuration.BUILT_IN["torch"],)
    contenders = {
        candidate.name: Contender(
            build(candidate, available_device(candidate.device)),
            rules_for(config, candidate, declared),
        )
        for candidate in candidates
    }
    compared = 0
    refusal = ""
    reference = TorchBackend()
    for case in range(declared.n or config.cases):
        found = accept(case, draw, contenders, lambda _case, _name: None)
        refusal = found.refusal or refusal
        if found.attempt is None:
            continue
        differentiate(found.attempt, reference)
        for name, contender in contenders.items():
            verdict = try_case(found.attempt, contender, reference).verdict
            if verdict.outcome == "misaligned":
                raise AssertionError(_message(verdict, name, test, case))
            compared += verdict.outcome == "aligned"
    if not compared:
        message = f"{test} compared nothing: {refusal or 'no candidate supports it'}. Change the ranges of its draws."
        raise AuthorError(message)


def _message(verdict: Verdict, candidate: str, test: str, case: int) -> str:
    found = verdict.misalignment
    lines = [f"misaligned: {verdict.operator} on {candidate}, case {case} of {test}"]
    if found is not None:
        lines.append(f"  {found.what}: candidate {found.candidate}; reference {found.reference}")
        if found.difference is not None:
            lines.append(f"  mismatched elements: {found.difference.mismatched} / {found.difference.total}")
        lines += [f"  {found.detail}"] if found.detail else []
    return "\n".join([*lines, f"  blame: {verdict.blame}; {verdict.oracle}"])
