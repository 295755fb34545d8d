"""The shrinker: it proposes a program, receives its verdict, and keeps the program if it shows the same misalignment.

The rule: a program is kept only if it is smaller and (outcome, operator, kind, blame) stay the same. What is smaller is
``size.size``; the passes only propose. The shrinker is part of the parent process and runs nothing itself, so that a
worker that dies in a trial costs only that trial.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ci_autotest.program.ir import EXPECT
from ci_autotest.shrink.calls import fewer_calls, given_back, plain_calls, same_calls
from ci_autotest.shrink.data import simpler_data
from ci_autotest.shrink.passes import fewer_steps, simpler_draws, simpler_inputs
from ci_autotest.shrink.ranks import simpler_ranks
from ci_autotest.shrink.size import Size, size

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from ci_autotest.program.recording import Recording
    from ci_autotest.values.case import Draw, DrawnValue
    from ci_autotest.values.verdict import Verdict

#: Greatest number of trials for one finding. Trials are counted and not timed, so that a busy machine finds the same.
TRIALS_AT_MOST: Final = 200
#: Calls of all trials of one finding, because a trial of a long program takes as long as many of a short one.
CALLS_AT_MOST: Final = 20_000
#: Trials on a whole compiler, which takes seconds for each.
COMPILATIONS_AT_MOST: Final = 24


@dataclass(frozen=True, slots=True)
class Redraw:
    """A trial that runs the body again with some draws edited."""

    edits: Mapping[str, DrawnValue]
    profile: str


@dataclass(frozen=True, slots=True)
class TrialProgram:
    """A trial that runs a program.

    Args:
        recording: The program.
        is_completed: Whether the program returns what a repro has to compare, for which it may be larger.
    """

    recording: Recording
    is_completed: bool = False


@dataclass(frozen=True, slots=True)
class Inline:
    """A trial that runs a program with one step replaced by an input that has the reference's value."""

    recording: Recording
    step: int


Proposal: TypeAlias = Redraw | TrialProgram | Inline


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """The result of a trial.

    Args:
        verdict: Of the trial.
        recording: The program that shows it: the culprit alone or the whole.
        draws: The draw log, for a redraw.
        profile: Of the attempt.
        is_cut: Whether shrinking was ended before its last trial.
    """

    verdict: Verdict
    recording: Recording
    draws: tuple[Draw, ...] = ()
    profile: str = "ordinary"
    is_cut: bool = False

    @property
    def size(self) -> Size:
        """The size of the program."""
        return size(self.recording, self.draws, self.profile)


@dataclass(slots=True)
class Shrinker:
    """Shrink one finding.

    Args:
        best: The smallest program known to show the finding; at first the confirmed failure.
        trials: Proposals made so far.
        size: Of the best one.
    """

    best: ShownTrial
    trials: int = 0
    _passes: Generator[Proposal, bool, None] | None = field(default=None, repr=False)
    _proposal: Proposal | None = field(default=None, repr=False)
    _answer: bool | None = field(default=None, repr=False)
    size: Size = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Measure the first program."""
        self.size = self.best.size

    def propose(self) -> Proposal | None:
        """Return the next trial; ``None`` if nothing is left to try."""
        if self.trials >= TRIALS_AT_MOST:
            return None
        if self._passes is None:
            self._passes = self._all()
        try:
            # Python refuses to send a value to a generator that has not started.
            proposal = next(self._passes) if self._answer is None else self._passes.send(self._answer)
        except StopIteration:
            return None
        self.trials += 1
        self._proposal = proposal
        return proposal

    def tell(self, shown: ShownTrial | None) -> None:
        """Take the result of the last proposal; ``None`` if it could not be judged."""
        self._answer = False
        if shown is None or not is_same(shown.verdict, self.best.verdict):
            return
        is_completed = isinstance(self._proposal, TrialProgram) and self._proposal.is_completed
        found = shown.size
        if found < self.size or is_completed:
            self.best, self.size, self._answer = shown, found, True

    def _all(self) -> Generator[Proposal, bool, None]:
        """Yield trials with simpler draws, then fewer steps, then simpler inputs and data.

        Draws come first because only they keep linked sizes linked, and because the worker cuts every redraw to the
        culprit, which would undo earlier work on steps.
        """
        # This program was put together from several calls, so that no body draws it again.
        if self.best.verdict.kind == "stateful":
            yield from self._with_fewer_calls()
            yield from self._simplified()
            return
        edits: dict[str, DrawnValue] = {}
        profile = self.best.profile
        # An ordinary attempt has plainer data and layouts, so that all later trials are simpler too.
        if profile != "ordinary" and (yield Redraw(dict(edits), "ordinary")):
            profile = "ordinary"
        if self.best.draws:
            yield from self._drawn(edits, profile)
        yield TrialProgram(self.best.recording)
        # What is expected of these inputs and steps is expected of no others; only a redraw computes it again.
        if self.best.recording.program.steps[self.best.verdict.step].target == EXPECT:
            return
        yield from self._shortened()
        yield from self._simplified()

    def _with_fewer_calls(self) -> Generator[Proposal, bool, None]:
        """Make calls identical and leave calls out, twice, because fewer calls allow more of both."""
        for change in (plain_calls, same_calls, fewer_calls, plain_calls, same_calls, fewer_calls):
            for recording in change(lambda: self.best.recording, lambda: self.best.verdict.step):
                yield TrialProgram(recording)
        for recording in given_back(lambda: self.best.recording, lambda: self.best.verdict.step):
            yield TrialProgram(recording, is_completed=True)

    def _shortened(self) -> Generator[Proposal, bool, None]:
        """Leave steps out until a whole round makes no progress."""
        moved = len(self.best.recording.program.calls) > 1
        while moved:
            moved = False
            for item in fewer_steps(lambda: self.best.recording, gradient=self.best.verdict.kind == "gradient"):
                shorter = Inline(self.best.recording, item) if isinstance(item, int) else TrialProgram(item)
                moved = (yield shorter) or moved

    def _drawn(self, edits: dict[str, DrawnValue], profile: str) -> Generator[Proposal, bool, None]:
        """Simplify draws until a whole round makes no progress."""
        moved = True
        while moved:
            moved = False
            for change in simpler_draws(lambda: self.best.draws):
                # Edits that were kept stay in all later trials.
                if (yield Redraw({**edits, **change.edits}, profile)):
                    edits.update(change.edits)
                    change.kept = moved = True

    def _simplified(self) -> Generator[Proposal, bool, None]:
        """Simplify ranks, inputs, then data; twice, because simpler data may allow smaller sizes and fewer ranks."""
        for _ in range(2):
            for recording in simpler_ranks(lambda: self.best.recording):
                yield TrialProgram(recording)
            for recording in simpler_inputs(lambda: self.best.recording):
                yield TrialProgram(recording)
            moved = True
            while moved:
                moved = False
                is_gradient = self.best.verdict.kind == "gradient"
                for recording in simpler_data(lambda: self.best.recording, gradient=is_gradient):
                    moved = (yield TrialProgram(recording)) or moved


def shrunk(
    shown: ShownTrial,
    judge: Callable[[Proposal], ShownTrial | None],
    most: tuple[int, int],
    is_over: Callable[[], bool] = lambda: False,
    show: Callable[[Shrinker], None] = lambda _: None,
) -> ShownTrial:
    """Return the smallest program that shows the same.

    Args:
        shown: The confirmed failure.
        judge: Returns what a proposal shows; ``None`` if its trial gave no verdict.
        most: Number of trials, and of the calls of all of them.
        is_over: Whether to stop before the next trial.
        show: Shows how far shrinking is.
    """
    shrinker, calls = Shrinker(shown), 0
    while shrinker.trials < most[0] and calls < most[1]:
        if is_over():
            return replace(shrinker.best, is_cut=True)
        calls += len(shrinker.best.recording.program.calls)
        proposal = shrinker.propose()
        if proposal is None:
            break
        show(shrinker)
        shrinker.tell(judge(proposal))
    return shrinker.best


def is_same(verdict: Verdict, wanted: Verdict) -> bool:
    """Whether a verdict is about the same misalignment."""
    return verdict.identity == wanted.identity and verdict.blame == wanted.blame
