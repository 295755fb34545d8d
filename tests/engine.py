"""Record a body and try a candidate in this process: what the tests of the engines share. Real torch on one thread."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.examination import TrialSides, examined
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.recordings import to_recording, with_expected
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declaration import Declaration
from ci_autotest.values.case import test_key as stream_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.verdict import Judged
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.recording import Recording
    from ci_autotest.values.case import DrawnValue
    from ci_autotest.values.verdict import Misalignment, Verdict

torch.set_num_threads(1)

RULES = Rules()


class Unreported:
    """Reports to nobody which case of a batch begins."""

    def __call__(self, position: int, /) -> None:
        pass

    def step(self, index: int, /) -> None:
        pass

    def calls(self, position: int, passes: object, /) -> None:
        pass

    def restored(self) -> nullcontext[None]:
        return nullcontext()


@lru_cache(maxsize=1)
def attempts() -> Attempts:
    """One maker of attempts: it takes over numpy's global generator."""
    return Attempts()


def record(
    body: Callable[[], object],
    case: int = 0,
    *,
    seed: int = 0,
    number: int = 0,
    test: str = "a_test",
    edits: Mapping[str, DrawnValue] | None = None,
    profile: str | None = None,
    **declared: Any,
) -> Attempt:
    """Make one attempt at a case; case 0 is ordinary."""
    name = (stream_key(seed, test), test, case, number)
    made = attempts()
    # Each body is a test of its own here, and its classes may be newer than the last one's.
    made._tracers.clear()
    made._intercepted.clear()
    return made.attempt(Declaration(body, **declared), body, name, edits, profile)


def substitute(**functions: Callable[..., Any]) -> SubstituteBackend:
    """Return a candidate that answers operators of torch by functions: ``softmax=mine``."""
    backend = SubstituteBackend({})
    backend.functions = {operator_of(f"torch.{name}"): function for name, function in functions.items()}
    return backend


def judged(attempt: Attempt, backend: Backend, rules: Rules = RULES) -> Judged:
    """Hold a candidate against the reference's side of a fresh attempt, as a worker does."""
    reference = TorchBackend()
    differentiate(attempt, reference)
    return try_case(attempt, Contender(backend, rules), reference)


def tried(body: Callable[[], object], backend: Backend, rules: Rules = RULES, **how: Any) -> Verdict:
    """Record one case of a body and return the verdict on a candidate."""
    return judged(record(body, **how), backend, rules).verdict


def differences(attempt: Attempt, backend: Backend, rules: Rules = RULES) -> list[Misalignment]:
    """Examine a candidate with a copy of every value."""
    return examined(live_of(attempt), TrialSides(backend, TorchBackend(), rules))[0]


def is_sure(attempt: Attempt, backend: Backend, rules: Rules = RULES) -> bool:
    """Say what the fast path says."""
    differentiate(attempt, TorchBackend())
    trace = backend.run(attempt.program, attempt.sources)
    if trace.failure is None and attempt.cotangents:
        backend.backward(attempt.program, trace, attempt.cotangents)
    return is_surely_aligned(attempt.program, trace, attempt.trace, rules)


def run_test(body: Callable[[], object], backend: Backend, cases: int = 20, rules: Rules = RULES) -> list[Verdict]:
    """Run a test's cases as a worker does; a rejected case has no verdict."""
    found = []
    contenders = {"candidate": Contender(backend, rules)}
    for case in range(cases):
        draw = partial(record, body, case, test=body.__name__)
        accepted = accept(
            0, lambda _case, number, draw=draw: draw(number=number), contenders, lambda _case, _name, _number: None
        )
        found += [item.judged.verdict for item in accepted.lenient.values()]
        if accepted.attempt is not None:
            found.append(judged(accepted.attempt, backend, rules).verdict)
    return found


def recorded(body: Callable[[], object], **how: Any) -> Recording:
    """Return a body's program with what the reference gives, as it is saved."""
    live = live_of(record(body, **how))
    return with_expected(to_recording(live), live, TorchBackend())
