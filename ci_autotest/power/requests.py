"""Requests for the power of a test: its cases on the reference, and mutants of the reference on the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.alignment.cases import accept, differentiate
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.power.trial import MutantTrial, Terms
from ci_autotest.run.messages import MutantsTried
from ci_autotest.run.worker.context import REFERENCE
from ci_autotest.values.case import test_key
from ci_autotest.values.power import TestPower, UnscoredReason

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.record.declaration import Declaration
    from ci_autotest.run.messages import TryMutants
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.context import WorkerContext


class PowerRequests:
    """Answer the requests.

    Args:
        worker_context: The tests and the reference.
        beacon: Where the worker reports the case and the mutant in flight.
    """

    def __init__(self, worker_context: WorkerContext, beacon: ProgressBeacon) -> None:
        self._worker_context = worker_context
        self._beacon = beacon

    def answer(self, message: TryMutants) -> MutantsTried:
        """Return the power of a test."""
        context, test = self._worker_context, message.test.id
        declaration, _ = context.test(message.test)
        if declaration.raises:
            return MutantsTried(power=TestPower(test=test, unscored=UnscoredReason.REFUSAL))
        attempts = self._attempts(declaration, message)
        hello = context.hello
        terms = Terms(
            rules_for(hello.tolerances, hello.strictness, message.tolerances, declaration),
            frozenset(message.operators), f"{message.seed} {test}", message.mutants, message.sources,
            are_random=declaration.check_grad_use_random_data,
        )  # fmt: skip
        trial = MutantTrial(test, attempts, context.reference, terms)
        return MutantsTried(power=trial.power(self._beacon.enter, message.lost, message.unexplained))

    def _attempts(self, declaration: Declaration, message: TryMutants) -> dict[int, Attempt]:
        """Return the accepted attempts by case, with the reference's gradients."""
        context, test = self._worker_context, message.test.id
        _, body = context.test(message.test)
        key = test_key(context.hello.seed, test)
        context.attempts.prefetch(key, range(message.cases))

        def draw(case: int, number: int) -> Attempt:
            # With edits, though none, draws have the names of the test.
            return context.attempts.attempt(declaration, body, (key, test, case, number), {})

        found = {}
        for case in range(message.cases):
            accepted = accept(case, draw, {}, lambda case, _, number: self._beacon.enter(case, REFERENCE, number))
            if accepted.attempt is not None:
                differentiate(accepted.attempt, context.reference)
                found[case] = accepted.attempt
        return found
