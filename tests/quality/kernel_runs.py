"""Run a test on a kernel in this process, as a worker does."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.errors import AuthorError
from ci_autotest.kinds import SubstituteCandidate, TorchCandidate
from ci_autotest.run.messages import CasesDone, Discover, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: The default of a run.
CASES = 20


def failures_of_kernel(
    tests: str, name: str, kernels: Mapping[str, Callable[..., Any]], folder: Path, **scope: Any
) -> list[tuple[str, str]]:
    """Return operator and kind of what twenty cases of a test in one worker show of kernels; as ``run_of_kernel``."""
    done = run_of_kernel(tests, name, kernels, folder, **scope)
    return [(failure.verdict.operator, str(failure.verdict.kind)) for failure in done.failures]


def run_of_kernel(
    tests: str, name: str, kernels: Mapping[str, Callable[..., Any]], folder: Path, before: str = "", **scope: Any
) -> CasesDone:
    """Run twenty cases of a test on kernels in one worker.

    Args:
        tests: Text of the test module.
        name: The test.
        kernels: By operator.
        folder: Where the module is written.
        before: A test that breaks in the same worker before.
        scope: What the kernels take, as in a candidate's row.
    """
    (folder / "bodies.py").write_text(tests)
    dispatcher = Dispatcher(ProgressBeacon.create(), lambda _: None)
    dispatcher.answer(
        Hello(
            root=str(folder), folders=[], seed=0, strictness="tolerance", reference_device="cpu",
            candidates=[TorchCandidate(name="kernel")], tolerances=[],
        )
    )  # fmt: skip
    backend = dispatcher.worker_context.backends["kernel"] = SubstituteBackend(
        {}, scope=SubstituteCandidate(name="kernel", replace=dict.fromkeys(kernels, ""), **scope).scope
    )
    backend.functions = {operator_of(operator): kernel for operator, kernel in kernels.items()}
    found = {test.name: test for test in dispatcher.answer(Discover("bodies.py")).tests}
    if before:
        with suppress(AuthorError):
            dispatcher.answer(RunCases(test=found[before], cases=list(range(400)), candidates=["kernel"]))
    return dispatcher.answer(RunCases(test=found[name], cases=list(range(CASES)), candidates=["kernel"]))
