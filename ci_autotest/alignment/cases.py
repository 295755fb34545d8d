"""Run one case: try attempts until the reference accepts one, then run every candidate on the same program.

Recording is passed as a function, so that this package does not depend on how a body is recorded.
The reference runs once, and all candidates share its trace.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.alignment.accepted import judged_beyond
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.fast_path import is_surely_aligned, surely_aligned
from ci_autotest.alignment.repeatability import is_off, judge_confirmed, judge_first_run
from ci_autotest.alignment.verdict import REFUSED, Judged, live_of
from ci_autotest.backends.case_scope import without_gradients
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import spelled, step_operator
from ci_autotest.backends.protocol import out_of_scope, run_backward, run_forward
from ci_autotest.config.known_differences import nothing_accepted
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.ir import output_refs
from ci_autotest.program.refusal import refused_as
from ci_autotest.program.targets import last_name
from ci_autotest.values.case import ATTEMPTS_PER_CASE
from ci_autotest.values.verdict import Call, Misalignment, Verdict, unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.alignment.accepted import Accepts
    from ci_autotest.alignment.examination import InFloat64
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.kinds import Candidate


class Contender(NamedTuple):
    """A candidate with the rules of one test; the other attributes are those of ``TrialSides``.

    Attributes:
        accepts: Whether a row of ``known`` accepts the difference of a verdict.
        candidate: The row of the candidate, for what the source of a test knows of it.
    """

    backend: Backend
    rules: Rules
    in_float64: InFloat64 | None = nullcontext
    has_guard: bool = False
    checks_operators: bool = False
    accepts: Accepts = nothing_accepted
    candidate: Candidate | None = None

    def beside(self, reference: Backend) -> TrialSides:
        """Return the two sides of a trial."""
        return TrialSides(
            self.backend, reference, self.rules, self.in_float64, self.has_guard, self.checks_operators
        )  # fmt: skip


def accepts_of(attempt: Attempt, contender: Contender) -> Accepts:
    """Return whether a difference of a case is accepted: by a row of ``known``, or by the source of the test."""
    background, candidate = attempt.background, contender.candidate
    if background is None or candidate is None:
        return contender.accepts
    return lambda verdict: contender.accepts(verdict) or bool(background.known(candidate, verdict))


class Lenient(NamedTuple):
    """An attempt that a candidate accepts and the reference rejects: its number, its profile and the verdict."""

    number: int
    profile: str
    judged: Judged


class Accepted(NamedTuple):
    """The result of the attempts at one case.

    Attributes:
        attempt: The accepted attempt, ``None`` if the reference rejected all.
        number: Its number, or that of the last attempt.
        rejected: Number of attempts that the reference rejected.
        ordinary_rejected: Number of these with the ordinary profile.
        refusal: The reference's error for the last rejected attempt.
        lenient: Candidates that accepted what the reference rejects, with the first such attempt.
        refused: Candidates that refused what the reference rejects, or cannot run it, with the first such attempt.
        skipped: Why the body skipped the case; empty if it did not.
        unsupported: Why no candidate can run the body; ``None`` if it does not say so.
        point: If the reference refused a step of the last attempt: the values of the axes of the test's grid.
    """

    attempt: Attempt | None
    number: int
    rejected: int
    ordinary_rejected: int
    refusal: str
    lenient: dict[str, Lenient]
    refused: dict[str, Judged]
    skipped: str = ""
    unsupported: Unsupported | None = None
    point: tuple[object, ...] = ()

    @property
    def given_up(self) -> str:
        """Why the body itself has ended the case; empty if it did not."""
        return self.skipped or (self.unsupported.detail if self.unsupported is not None else "")

    @property
    def answered(self) -> set[str]:
        """The candidates that were compared by what they do with a case that the reference always refuses."""
        if self.attempt is not None or self.given_up:
            return set()
        return {*self.lenient, *(name for name, one in self.refused.items() if one.verdict.outcome == "aligned")}

    def untested(self, case: int, examples: int, grid: int) -> str:
        """Return a sentence if the reference rejects a case that the author wrote down; else nothing.

        A point of a grid that an assumption of the body rejects is no surprise to its author.

        Args:
            case: Its number.
            examples: Number of the test's first cases that have named draws.
            grid: Number of the points of its grid, which come next.
        """
        if self.attempt is not None or self.given_up:
            return ""
        if case < examples:
            what = f"examples[{case}]"
        elif case < examples + grid and self.point:
            values = ", ".join(f"{value!r:.40}" for value in self.point)
            what = f"grid point {case - examples + 1:,} of {grid:,} ({values})"
        else:
            return ""
        return f"{what} has no values to compare, because the reference rejects it: {self.refusal}"


ALIGNED = Verdict(outcome="aligned")


def accept(
    case: int,
    draw: Callable[[int, int], Attempt],
    contenders: Mapping[str, Contender],
    enter: Callable[[int, str, int], None],
) -> Accepted:
    """Draw attempts until the reference accepts one; try on the candidates what it rejects.

    Args:
        case: Its number.
        draw: Makes the attempt ``(case, number)``.
        contenders: Candidates by name.
        enter: Called with the case, the candidate whose code runs next ("" for the reference) and the attempt.
    """
    rejected = ordinary = 0
    refusal = ""
    point: tuple[object, ...] = ()
    lenient: dict[str, Lenient] = {}
    refused: dict[str, Judged] = {}
    for number in range(ATTEMPTS_PER_CASE):
        enter(case, "", number)
        attempt = draw(case, number)
        if attempt.skipped or attempt.unsupported:
            return Accepted(
                None, number, rejected, ordinary, refusal, lenient, refused, attempt.skipped, attempt.unsupported
            )  # fmt: skip
        if not attempt.is_rejected:
            return Accepted(attempt, number, rejected, ordinary, refusal, lenient, refused)
        rejected += 1
        # Whether a test is weak is decided by its ordinary attempts alone.
        ordinary += attempt.profile == "ordinary"
        refusal = refusal_of(attempt)
        point = attempt.point if attempt.refused is not None else ()
        for name, contender in contenders.items() if attempt.refused is not None else ():
            # One such attempt is enough, because the finding names the operator and not the inputs.
            if contender.backend.shows_steps and name not in lenient:
                enter(case, name, number)
                found = judge_refusal(attempt, contender)
                if found is not None and found.verdict.kind is None:
                    refused.setdefault(name, found)
                elif found is not None:
                    lenient[name] = Lenient(number, attempt.profile, found)
    return Accepted(None, ATTEMPTS_PER_CASE - 1, rejected, ordinary, refusal, lenient, refused, point=point)


def refusal_of(attempt: Attempt) -> str:
    """Return the reference's error for a rejected attempt, with the step's target, or its false assumption."""
    if attempt.refused is None:
        return attempt.assumption
    refusal = attempt.trace.values[output_refs(attempt.program)[0].index]
    return f"{attempt.refused.target}: {refusal}: {refusal.said}"[:500]


def judge_refusal(attempt: Attempt, contender: Contender) -> Judged | None:
    """Return the verdict on a step that the reference refused: aligned if the candidate refuses it, else a leniency.

    ``None`` if the candidate failed before that step.
    """
    outside = out_of_scope(contender.backend, attempt)
    if outside is not None:
        return Judged(unsupported_verdict(outside), live_of(attempt))
    attempt = contender.backend.adapted(attempt)
    index = output_refs(attempt.program)[0].index
    # The reference may have refused it only because of gradients, which the candidate is not asked for.
    if not contender.backend.case_scope.is_trained:
        again = TorchBackend().run(without_gradients(attempt.program), attempt.sources)
        if again.failure is not None or not again.values[index]:
            return None
    trace = contender.backend.run(attempt.program, attempt.sources)
    if trace.untested is not None:
        return Judged(unsupported_verdict(trace.untested), live_of(attempt))
    if trace.failure is not None or attempt.refused is None:
        return None
    # A refusal is a text that is not empty.
    if trace.values[index]:
        return Judged(ALIGNED, live_of(attempt), trace=trace)
    step = attempt.program.steps[index]
    misalignment = Misalignment(
        kind="leniency",
        step=index,
        at=Call(name=last_name(step.target)),
        candidate="accepts",
        reference=f"raises {refused_as(step)}",
        detail=refusal_of(attempt),
    )
    verdict = Verdict(
        outcome="misaligned",
        operator=step_operator(step, attempt.program.steps),
        target=spelled(step),
        kind="leniency",
        blame="candidate",
        step=index,
        misalignment=misalignment,
        oracle=REFUSED,
        notes=attempt.notes,
        is_of_a_rejected_attempt=True,
    )
    return Judged(verdict, live_of(attempt), trace=trace)


def try_case(attempt: Attempt, contender: Contender, reference: Backend) -> Judged:
    """Run one candidate on an accepted attempt and compare it with the reference.

    ``attempt.trace`` must hold the reference's gradients, which ``differentiate`` computes once for all candidates.
    """
    attempt = contender.backend.adapted(attempt)
    trace = _run(attempt, contender.backend)
    if is_aligned(attempt, contender, trace):
        return settled(Judged(ALIGNED, live_of(attempt)), trace)
    return settled(judge_case(attempt, contender, reference, trace), trace)


def settled(judged: Judged, trace: Trace) -> Judged:
    """Return a verdict that is not aligned where PyTorch ran every call of the candidate: it was held against itself.

    A difference stays one: something of the candidate has caused it.
    """
    is_own = trace.delegation is None or trace.delegation.part != "nothing"
    if is_own or judged.verdict.outcome != "aligned" or judged.verdict.kind is not None:
        return judged
    return judged._replace(verdict=unsupported_verdict(_NOT_DELEGATED))


_NOT_DELEGATED: Final = Unsupported(UnsupportedReason.NOT_DELEGATED, "PyTorch ran every call of the body")


def _run(attempt: Attempt, backend: Backend) -> Trace:
    trace = run_forward(backend, attempt)
    run_backward(backend, attempt, trace)
    return trace


def is_aligned(attempt: Attempt, contender: Contender, trace: Trace) -> bool:
    """Whether the fast path is sure that a case is aligned; otherwise the case must be judged."""
    return (
        not contender.rules.check_graph
        and is_surely_aligned(attempt.program, trace, attempt.trace, contender.rules)
        and _agrees_with_itself(attempt, contender, trace)
    )


def aligned_in_batch(
    attempts: Sequence[Attempt], contender: Contender, traces: Sequence[Trace], enter: Callable[[int], None]
) -> set[int]:
    """Return the positions of the cases that are surely aligned; all others must be judged.

    Args:
        attempts: With the reference's gradients.
        contender: The candidate.
        traces: The candidate's trace of each.
        enter: Called with the position of a case before its graph is compared with eager mode.
    """
    # Only a judgement compares the graph.
    if contender.rules.check_graph:
        return set()
    sure = surely_aligned(attempts, traces, contender.rules)
    if contender.backend.as_eager() is None:
        return sure
    agreeing = set()
    for position in sorted(sure):
        enter(position)
        if _agrees_with_itself(attempts[position], contender, traces[position]):
            agreeing.add(position)
    return agreeing


def _agrees_with_itself(attempt: Attempt, contender: Contender, trace: Trace) -> bool:
    """Whether a graph mode gives the same as its own eager mode; true for any other candidate."""
    eager = contender.backend.as_eager()
    if eager is None:
        return True
    trace.load()
    attempt = contender.backend.adapted(attempt)
    return is_surely_aligned(attempt.program, trace, _run(attempt, eager), contender.rules)


def judge_case(attempt: Attempt, contender: Contender, reference: Backend, trace: Trace) -> Judged:
    """Run both sides again with a copy of every value at its step, and return the verdict."""
    attempt = contender.backend.adapted(attempt)
    outside = out_of_scope(contender.backend, attempt)
    if outside is not None:
        return Judged(unsupported_verdict(outside), live_of(attempt))
    trace.load()
    sides = contender.beside(reference)
    beyond = judged_beyond(live_of(attempt), sides, accepts_of(attempt, contender))
    judged = beyond.judged._replace(verdict=beyond.verdict)
    if judged.verdict.outcome != "aligned" or judged.verdict.kind is not None or not is_off(attempt, trace, sides):
        return judged
    # Only the first run was off, so the candidate is compared with itself, including that first run.
    again = judge_confirmed(live_of(attempt), sides)
    if again.verdict.kind is not None:
        return again
    # Without copies, as the first run was.
    another = _run(attempt, contender.backend)
    return judge_first_run(attempt, (trace, another), sides) or again._replace(is_first_run_off=True)


def differentiate(attempt: Attempt, reference: Backend) -> None:
    """Run the reference's backward pass."""
    if attempt.cotangents:
        reference.backward(attempt.program, attempt.trace, attempt.cotangents)
