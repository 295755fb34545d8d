"""Power of a test as values: which mutants it notices, which survive and why, and the score."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from ci_autotest.values.size_classes import SizeStanding
from ci_autotest.values.verdict import Kind, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class MutantKind(str, Enum):
    """The mistake of a mutant.

    Attributes:
        ZEROS: The result is all zeros.
        UNRELATED: The result has the right mean and spread, and a correlation of 0.086 with the right elements.
        COPY_OF_INPUT: The result is an input of the same shape.
        LAST_ELEMENT: The last element of the result is left out.
        DIVISOR: The divisor is N - 1 instead of N.
        AXIS: It runs over another axis.
        SWAPPED: The first two tensors are swapped.
        CONSTANT: A constant is off by a tenth.
        IGNORED: An optional argument is ignored.
        STUCK: An optional switch is always on, or always off, whatever the call says.
        WRITTEN_INPUT: The first element of an input is overwritten.
        DETACHED: The result has no gradient.
        DROPPED_TERM: The gradient of one input is left out.
        GRADIENT_TAIL: The last element of the input's gradient is left out.
        BEYOND_TOLERANCE: Each element is off by one and a half times the allowed error.
        BFLOAT16: It is computed in bfloat16.
        HALF_SUM: A sum is kept in float16.
        STALE: It returns the earlier result of the same shape.
        INT32: Indices are int32 instead of int64.
        NO_BROADCAST: The smaller operand is not broadcast: beyond its own elements it counts as zero.
        SOURCE: One change in the source of torch's Python decomposition.
    """

    ZEROS = "zeros"
    UNRELATED = "unrelated"
    COPY_OF_INPUT = "copy_of_input"
    LAST_ELEMENT = "last_element"
    DIVISOR = "divisor"
    AXIS = "axis"
    SWAPPED = "swapped"
    CONSTANT = "constant"
    IGNORED = "ignored"
    STUCK = "stuck"
    WRITTEN_INPUT = "written_input"
    DETACHED = "detached"
    DROPPED_TERM = "dropped_term"
    GRADIENT_TAIL = "gradient_tail"
    BEYOND_TOLERANCE = "beyond_tolerance"
    BFLOAT16 = "bfloat16"
    HALF_SUM = "half_sum"
    STALE = "stale"
    INT32 = "int32"
    NO_BROADCAST = "no_broadcast"
    SOURCE = "source"


class SurvivalReason(str, Enum):
    """Why a mutant survived, as a call shows that tells it from the reference.

    Attributes:
        TOLERANCE: The test's own cases differ, by less than the tolerance allows.
        MEASURED: The test's own cases differ, by less than ``strictness: measured`` allows.
        OPEN: The operator leaves its result open, and nothing that it promises is broken.
        VALUES_UNCHECKED: The test compares no elements (``check_allclose=False``).
        DTYPE_UNCHECKED: Only the dtype differs, and the test does not compare it (``check_dtype=False``).
        NO_GRADIENT: Only gradients differ, and the test asks for none.
        COTANGENT: Only gradients differ, and not for those that arrive from the outputs of the test.
        ARGUMENT: No case gives the argument the value that shows it.
        SHAPE: No case has the shapes that show it.
        VALUES: No case has the values that show it.
        DTYPE: No case has the dtype that shows it.
        REPEAT: No two calls with the same shapes have other values.
        UNKNOWN: A call that would tell it from the reference ended the process.
    """

    TOLERANCE = "tolerance"
    MEASURED = "measured"
    OPEN = "open"
    VALUES_UNCHECKED = "values_unchecked"
    DTYPE_UNCHECKED = "dtype_unchecked"
    NO_GRADIENT = "no_gradient"
    COTANGENT = "cotangent"
    ARGUMENT = "argument"
    SHAPE = "shape"
    VALUES = "values"
    DTYPE = "dtype"
    REPEAT = "repeat"
    UNKNOWN = "unknown"


class UnscoredReason(str, Enum):
    """Why a test has no score.

    Attributes:
        NOTHING_COMPARED: None of its cases compares anything.
        REFUSAL: Its body must raise an exception, so that there is no result to be wrong.
        NO_OPERATOR: It calls no operator that can be mutated.
        NOT_REPLACED: It calls no operator that the candidate replaces.
        ALL_EQUIVALENT: Every mutant is equivalent to the reference.
        LOADER: It tests a data loader, which computes nothing.
        BROKEN: It cannot be run.
        LOST: The reference, or the system, ended the worker.
        NOT_RUN: The time was up.
    """

    NOTHING_COMPARED = "nothing_compared"
    REFUSAL = "refusal"
    NO_OPERATOR = "no_operator"
    NOT_REPLACED = "not_replaced"
    ALL_EQUIVALENT = "all_equivalent"
    LOADER = "loader"
    BROKEN = "broken"
    LOST = "lost"
    NOT_RUN = "not_run"


#: Why a test has no score although it was run: these fail the command.
FAILURES: frozenset[UnscoredReason] = frozenset({UnscoredReason.BROKEN, UnscoredReason.LOST})
#: Why a test was not measured although it could be: ``--fail-under`` asks for the score of all tests.
UNMEASURED: frozenset[UnscoredReason] = frozenset({UnscoredReason.NOTHING_COMPARED, UnscoredReason.NOT_RUN})
#: Number of the attempt that a worker reports while it looks for the reason why a mutant survived.
EXPLAINING = 1
#: What became of a mutant. An equivalent one cannot be told from the reference by any call that was tried.
MutantOutcome: TypeAlias = Literal["killed", "survived", "equivalent"]
#: Mutants that show nothing of the reference: whoever lets them pass tests nothing.
HOLLOW: frozenset[MutantKind] = frozenset({MutantKind.ZEROS, MutantKind.UNRELATED})
#: Reasons for which a test is powerless if a hollow mutant survives.
_POWERLESS = frozenset({SurvivalReason.TOLERANCE, SurvivalReason.OPEN})


class MutantResult(Struct, frozen=True, kw_only=True):
    """What became of one mutant of a test.

    Attributes:
        operator: The operator whose calls are wrong.
        kind: The mistake.
        detail: Which argument or input, or the line of the source with what is there and what is there instead.
        outcome: ``killed`` if a case is misaligned, ``equivalent`` if no call tells it from the reference.
        case: The case that killed it.
        by: The kind of the difference.
        reason: Why it survived.
        evidence: What shows it: ``keepdim=False``, ``float16``. Of an equivalent mutant: why it is one, if its operator
            leaves the result open.
        error: The greatest error of the test's own cases, if a tolerance hides it.
        allowed: What the tolerance allows there.
        correlation: Of the mutant's elements with the reference's, if a tolerance hides it.
    """

    operator: str
    kind: MutantKind
    detail: str = ""
    outcome: MutantOutcome
    case: int | None = None
    by: Kind | None = None
    reason: SurvivalReason | None = None
    evidence: str = ""
    error: float | None = None
    allowed: float | None = None
    correlation: float | None = None


class SizeLimit(Struct, frozen=True, kw_only=True):
    """A free dimension of which no case is beyond 256, so that a fault of larger blocks is not seen.

    Attributes:
        dimension: Its draw, as the test names it: ``n``, or ``x.dim0``.
        most: Its greatest size, in elements.
        why: Why no case is larger.
    """

    dimension: str
    most: int
    why: SizeStanding


class TestPower(Struct, frozen=True, kw_only=True):
    """How much one test notices.

    Attributes:
        test: Id of the test.
        cases: Number of cases that were compared.
        killed: Number of mutants that a case shows.
        survived: Number of mutants that no case shows.
        equivalent: Number of mutants that no call tells from the reference; they do not count.
        score: Killed as a share of killed and survived; null without any.
        mutants: The mutants.
        unscored: Why there is no score.
        why: In words.
        limits: Free dimensions of which no case is beyond 256.
    """

    test: str
    cases: int = 0
    killed: int = 0
    survived: int = 0
    equivalent: int = 0
    score: float | None = None
    mutants: tuple[MutantResult, ...] = ()
    unscored: UnscoredReason | None = None
    why: str = ""
    limits: tuple[SizeLimit, ...] = ()

    @property
    def powerless(self) -> tuple[MutantResult, ...]:
        """The hollow mutants that a tolerance or an open result hides: with one, a test passes whatever is computed."""
        return tuple(item for item in self.mutants if item.kind in HOLLOW and item.reason in _POWERLESS)


class PowerResult(Struct, frozen=True, kw_only=True):
    """How much the tests of a run notice.

    Attributes:
        score: Killed as a share of killed and survived, over all tests; null without any.
        killed: Number of mutants that a case shows.
        survived: Number of mutants that no case shows.
        equivalent: Number of mutants that no call tells from the reference.
        seed: Root seed of the draws and of the choice of mutants.
        fail_under: The score that was asked for.
        tolerances: The candidate whose rows of ``tolerances`` decided; empty if only rows for all candidates did.
        tests: One for each test.
    """

    score: float | None
    killed: int
    survived: int
    equivalent: int
    seed: int
    fail_under: float | None = None
    tolerances: str = ""
    tests: tuple[TestPower, ...] = ()

    @property
    def is_too_low(self) -> bool:
        """Whether the score is below what was asked for."""
        return self.fail_under is not None and self.score is not None and self.score < self.fail_under

    @property
    def unmeasured(self) -> tuple[TestPower, ...]:
        """The tests that were not measured, if a score is asked for: what they would notice is unknown."""
        if self.fail_under is None:
            return ()
        return tuple(test for test in self.tests if test.unscored in UNMEASURED)


def share(killed: int, survived: int) -> float | None:
    """Return the share of noticed mutants, ``None`` if there is none."""
    return killed / (killed + survived) if killed + survived else None


def power_of_test(test: str, cases: int, mutants: Sequence[MutantResult]) -> TestPower:
    """Return the score of a test from its mutants; without one that counts, it says so."""
    killed, survived, equivalent = (
        sum(item.outcome == outcome for item in mutants) for outcome in ("killed", "survived", "equivalent")
    )
    unscored = None if killed + survived else UnscoredReason.ALL_EQUIVALENT
    return TestPower(
        test=test, cases=cases, killed=killed, survived=survived, equivalent=equivalent,
        score=share(killed, survived), mutants=tuple(mutants), unscored=unscored,
    )  # fmt: skip


def power_of_tests(
    tests: Iterable[TestPower], seed: int, fail_under: float | None = None, tolerances: str = ""
) -> PowerResult:
    """Return the score of all tests together: each mutant counts once."""
    found = tuple(sorted(tests, key=lambda item: item.test))
    killed, survived, equivalent = (
        sum(getattr(item, name) for item in found) for name in ("killed", "survived", "equivalent")
    )
    return PowerResult(
        score=share(killed, survived), killed=killed, survived=survived, equivalent=equivalent, seed=seed,
        fail_under=fail_under, tolerances=tolerances, tests=found,
    )  # fmt: skip


def merged_power(parts: Sequence[PowerResult]) -> PowerResult | None:
    """Return the power of several reports' tests together; of a test that is in several, the last one holds."""
    if not parts:
        return None
    tests = {test.test: test for part in parts for test in part.tests}
    asked = [part.fail_under for part in parts if part.fail_under is not None]
    return power_of_tests(tests.values(), parts[0].seed, max(asked, default=None), parts[0].tolerances)
