"""The shrinker: propose a program, receive its verdict, keep what shows the same misalignment.

The rule kept here: a step is kept only when (outcome, operator, kind, blame) stay. It lives in the
parent and runs nothing, so that a worker that is lost in a trial costs that trial.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from ci_autotest.shrink.calls import fewer_calls, given_back, plain_calls, same_calls
from ci_autotest.shrink.data import simpler_data
from ci_autotest.shrink.draws import simpler_draws
from ci_autotest.shrink.inputs import simpler_inputs
from ci_autotest.shrink.steps import fewer_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from ci_autotest.program.ir import Recording
    from ci_autotest.values.case import Draw, DrawnValue
    from ci_autotest.values.verdict import Verdict

#: Trials that one finding may take.
TRIALS_AT_MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Redraw:
    """Propose to run the body again with some draws edited."""

    edits: Mapping[str, DrawnValue]
    profile: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Propose to run a program."""

    recording: Recording


@dataclass(frozen=True, slots=True)
class Inline:
    """Propose to run a program with one step made an input that holds the reference's value."""

    recording: Recording
    step: int


Proposal: TypeAlias = Redraw | Replace | Inline


@dataclass(frozen=True, slots=True)
class Shown:
    """Say what a trial showed.

    Args:
        verdict: Of the trial.
        recording: The program that shows it: the culprit alone, or the whole.
        draws: The draw log, for a redraw.
        profile: What the attempt turned out to be about.
    """

    verdict: Verdict
    recording: Recording
    draws: tuple[Draw, ...] = ()
    profile: str = "ordinary"


@dataclass(slots=True)
class Shrinker:
    """Shrink one finding.

    Args:
        best: The smallest that is known to show it; at first the confirmed failure.
        trials: Proposals made so far.
    """

    best: Shown
    trials: int = 0
    _passes: Generator[Proposal, bool, None] | None = field(default=None, repr=False)
    _answer: bool | None = field(default=None, repr=False)

    def propose(self) -> Proposal | None:
        """Return the next trial, or ``None`` when nothing is left to try."""
        if self.trials >= TRIALS_AT_MOST:
            return None
        if self._passes is None:
            self._passes = self._all()
        try:
            proposal = next(self._passes) if self._answer is None else self._passes.send(self._answer)
        except StopIteration:
            return None
        self.trials += 1
        return proposal

    def tell(self, shown: Shown | None) -> None:
        """Say what came of the last proposal; ``None``: nothing that could be judged."""
        kept = shown is not None and is_same(shown.verdict, self.best.verdict)
        if kept and shown is not None:
            self.best = shown
        self._answer = kept

    def _all(self) -> Generator[Proposal, bool, None]:
        """Draws, steps, data.

        Draws come first, because linked sizes stay linked only there, and because every redraw is cut to the culprit by
        the worker: fewer steps would be forgotten by the next one.
        """
        if self.best.verdict.kind == "stateful":
            yield from self._with_fewer_calls()
            yield from self._simplified()
            return
        edits: dict[str, DrawnValue] = {}
        profile = self.best.profile
        if profile != "ordinary" and (yield Redraw(dict(edits), "ordinary")):
            profile = "ordinary"
        if self.best.draws:
            yield from self._drawn(edits, profile)
        yield Replace(self.best.recording)
        yield from self._shortened()
        yield from self._simplified()

    def _with_fewer_calls(self) -> Generator[Proposal, bool, None]:
        """Make calls the same and leave calls out, and that once more of what is left."""
        for change in (plain_calls, same_calls, fewer_calls, plain_calls, same_calls, fewer_calls, given_back):
            for recording in change(lambda: self.best.recording, lambda: self.best.verdict.step):
                yield Replace(recording)

    def _shortened(self) -> Generator[Proposal, bool, None]:
        """Leave steps out where there is more than one, until a whole round makes no progress."""
        moved = len(self.best.recording.program.calls) > 1
        while moved:
            moved = False
            for item in fewer_steps(lambda: self.best.recording, gradient=self.best.verdict.kind == "gradient"):
                shorter = Inline(self.best.recording, item) if isinstance(item, int) else Replace(item)
                moved = (yield shorter) or moved

    def _drawn(self, edits: dict[str, DrawnValue], profile: str) -> Generator[Proposal, bool, None]:
        """Move draws until a whole round makes no progress: run again at once, the pass would make none."""
        moved = True
        while moved:
            moved = False
            for change in simpler_draws(lambda: self.best.draws):
                if (yield Redraw({**edits, **change.edits}, profile)):
                    edits.update(change.edits)
                    change.kept = moved = True

    def _simplified(self) -> Generator[Proposal, bool, None]:
        """Inputs, then data until a round makes no progress; once more, since simpler data may fit smaller sizes."""
        for _ in range(2):
            for recording in simpler_inputs(lambda: self.best.recording):
                yield Replace(recording)
            moved = True
            while moved:
                moved = False
                is_gradient = self.best.verdict.kind == "gradient"
                for recording in simpler_data(lambda: self.best.recording, gradient=is_gradient):
                    moved = (yield Replace(recording)) or moved


def is_same(verdict: Verdict, wanted: Verdict) -> bool:
    """Whether a verdict keeps what a shrinker must keep."""
    return (verdict.outcome, verdict.operator, verdict.kind, verdict.blame) == (
        wanted.outcome, wanted.operator, wanted.kind, wanted.blame,
    )  # fmt: skip
