"""The driver of a shrinker: it tries each proposal on a fresh worker. A lost worker costs that trial and a restart."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.findings.diagnosis import shown_of
from ci_autotest.findings.tools import show_nothing
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.run.messages import Confirm, Record, Tried, TryProgram
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.ranks import on_fewest
from ci_autotest.shrink.shrinker import (
    CALLS_AT_MOST,
    COMPILATIONS_AT_MOST,
    TRIALS_AT_MOST,
    Inline,
    Redraw,
    ShownTrial,
    Shrinker,
    TrialProgram,
    is_same,
    shrunk,
)
from ci_autotest.values.amounts import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.kinds import CompileCandidate
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.messages import Broken
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.shrink.shrinker import Proposal
    from ci_autotest.values.verdict import Verdict

#: Compiler layers by the backend that stops above the layers below them, the cheapest first.
#: Source: https://docs.pytorch.org/docs/2.13/torch.compiler_troubleshooting.html, "Ablation".
LAYERS: Final = {"eager": "dynamo", "aot_eager": "aot_autograd"}
#: Trials for shrinking one finding where each has a fresh process, as for a sequence of calls.
FRESH_TRIALS_AT_MOST: Final = 120
#: Trials in each of which a body is exported, and compiled by a runtime: about a second.
EXPORTS_AT_MOST: Final = 60
#: Calls of all trials of one finding where each trial is compiled.
COMPILED_CALLS_AT_MOST: Final = 1_000
#: Trials for shrinking a crash: each success ends a worker.
CRASHES_AT_MOST: Final = 80
#: Seconds after which shrinking one finding ends all the same, and says so: a guard against a candidate that takes
#: seconds a call.
SECONDS_AT_MOST: Final = 600.0


@dataclass(frozen=True, slots=True)
class ShrinkTrial:
    """How proposals are tried.

    Args:
        suspect: The suspect whose program is shrunk.
        fresh: The worker.
        compiler: For a compiled candidate, the compiler backend to use instead of its own.
        is_alone: Whether each trial has a fresh process, where no call of an earlier trial counts.
        mesh: The mesh on which each proposal must lie, where another group of ranks takes long to start; ``None`` for
            any.
        most: Number of trials.
        most_calls: Number of calls of all of them.
        show: Shows how far shrinking is.
    """

    suspect: Suspect
    fresh: SingleWorker
    compiler: str = ""
    is_alone: bool = False
    mesh: tuple[int, ...] | None = None
    most: int = TRIALS_AT_MOST
    most_calls: int = CALLS_AT_MOST
    show: Callable[[str], None] = show_nothing

    def run(self, recording: Recording, inlined: int | None = None) -> Tried | Broken | WorkerLostError:
        """Run a program on both sides."""
        self._begin()
        return self.fresh.ask(
            TryProgram(
                program=encode_program(recording), tensors=encode_tensors(recording),
                candidate=self.suspect.candidate, test=self.suspect.test, inlined=inlined, compiler=self.compiler,
                wanted=self.suspect.identity,
            )
        )  # fmt: skip

    def is_of_other_group(self, proposal: Proposal) -> bool:
        """Whether a proposal needs a group of ranks of another size."""
        return (
            self.mesh is not None
            and isinstance(proposal, TrialProgram)
            and proposal.recording.program.mesh != self.mesh
        )

    def propose(self, proposal: Proposal) -> ShownTrial | None:
        """Return what a proposal shows; ``None`` if the trial gave no verdict."""
        if self.is_of_other_group(proposal):
            return None
        answer: Tried | Broken | WorkerLostError
        if isinstance(proposal, Redraw):
            self._begin()
            answer = self.fresh.ask(
                Confirm(
                    test=self.suspect.test, case=self.suspect.case, attempt=self.suspect.attempt,
                    candidate=self.suspect.candidate, edits=dict(proposal.edits), profile=proposal.profile,
                    compiler=self.compiler, wanted=self.suspect.identity,
                )
            )  # fmt: skip
        else:
            answer = self.run(proposal.recording, proposal.step if isinstance(proposal, Inline) else None)
        return shown_of(answer) if isinstance(answer, Tried) and answer.program else None

    def _begin(self) -> None:
        if self.is_alone:
            self.fresh.close()


def shrink(shown: ShownTrial, trial: ShrinkTrial) -> ShownTrial:
    """Return the smallest program that shows the same."""
    return _shrunk(shown, trial, trial.propose)


def _shrunk(shown: ShownTrial, trial: ShrinkTrial, judge: Callable[[Proposal], ShownTrial | None]) -> ShownTrial:
    most = min(trial.most, FRESH_TRIALS_AT_MOST) if trial.is_alone else trial.most
    end = time.monotonic() + SECONDS_AT_MOST
    return shrunk(
        shown, judge, (most, trial.most_calls),
        is_over=lambda: trial.fresh.is_over or time.monotonic() >= end,
        show=lambda shrinker: trial.show(f"shrinking: trial {shrinker.trials} of at most {most}, {_told(shrinker)}"),
    )  # fmt: skip


def _told(shrinker: Shrinker) -> str:
    reached = shrinker.size
    return f"{plural(reached.steps, 'step')}, {plural(reached.elements, 'element')}"


def shrink_on_hosts(shown: ShownTrial, trial: ShrinkTrial) -> ShownTrial:
    """Shrink on the ranks that run, then try two of them, once: starting that group takes as long as all else."""
    best = shrink(shown, trial)
    fewer = on_fewest(best.recording)
    if fewer is None or trial.fresh.is_over:
        return best
    seen = _same(trial.run(fewer), shown.verdict)
    # Without its draws: a case that is drawn anew lies on all ranks of the candidate.
    if seen is None or seen.size >= best.size:
        return best
    return shrink(seen, replace(trial, mesh=seen.recording.program.mesh))


def shrink_compiled(shown: ShownTrial, trial: ShrinkTrial, candidate: CompileCandidate) -> tuple[ShownTrial, str]:
    """Shrink on the cheapest layer that still fails, and confirm on the real one; return the layer at fault too.

    The whole compiler takes seconds for each new shape, but its upper layers take milliseconds.
    """
    real = candidate.compiler
    trial = replace(trial, most_calls=COMPILED_CALLS_AT_MOST)
    for compiler, layer in LAYERS.items():
        # This is the candidate's own compiler: deeper layers do not belong to it.
        if compiler == real:
            break
        cheap = replace(trial, compiler=compiler)
        seen = _same(cheap.run(shown.recording), shown.verdict)
        if seen is None:
            continue
        smallest = shrink(replace(seen, draws=shown.draws, profile=shown.profile), cheap)
        # The cheap layer may fail for another reason.
        confirmed = _same(trial.run(smallest.recording), shown.verdict)
        if confirmed is not None:
            # A device's own kernels run in every layer, so a failure of the first layer does not name a layer.
            is_named = compiler != "eager" or candidate.device == "cpu"
            return confirmed, layer if is_named else ""
        break
    return shrink(shown, replace(trial, most=COMPILATIONS_AT_MOST)), LAYERS.get(real, real)


def _same(answer: Tried | Broken | WorkerLostError, wanted: Verdict) -> ShownTrial | None:
    if not isinstance(answer, Tried) or not answer.program:
        return None
    return shown_of(answer) if is_same(answer.verdict, wanted) else None


def shrink_crash(shown: ShownTrial, trial: ShrinkTrial, step: int | None, *, has_backward: bool = False) -> ShownTrial:
    """Return the smallest program that ends its worker; the number of trials is limited, as each success is a restart.

    Args:
        shown: The culprit alone, or the whole body; its verdict names the operator.
        trial: How proposals are tried.
        step: The culprit's index in the body.
        has_backward: Whether the culprit's backward pass ends the worker.
    """
    limited = replace(trial, most=CRASHES_AT_MOST)
    return _shrunk(shown, limited, lambda proposal: _crashed(proposal, trial, (step, has_backward), shown.verdict))


def shrink_calls_that_crash(shown: ShownTrial, trial: ShrinkTrial) -> ShownTrial:
    """Return the fewest calls of which the last one ends its worker; each trial runs in a fresh process.

    Args:
        shown: The calls; its verdict names the call that ends the worker and is of kind ``stateful``.
        trial: How proposals are tried.
    """

    def judge(proposal: Proposal) -> ShownTrial | None:
        return None if isinstance(proposal, Redraw) else _lost_in_call(proposal.recording, trial, shown)

    return _shrunk(shown, replace(trial, most=CRASHES_AT_MOST), judge)


def _lost_in_call(recording: Recording, trial: ShrinkTrial, wanted: ShownTrial) -> ShownTrial | None:
    answer = trial.run(recording)
    if not isinstance(answer, WorkerLostError) or answer.spot.step < 0:
        return None
    verdict, step = wanted.verdict, answer.spot.step
    # By the target, because a shorter sequence has other indices.
    is_same_call = recording.program.steps[step].target == wanted.recording.program.steps[verdict.step].target
    return ShownTrial(msgspec.structs.replace(verdict, step=step), recording) if is_same_call else None


def _crashed(
    proposal: Proposal, trial: ShrinkTrial, at: tuple[int | None, bool], verdict: Verdict
) -> ShownTrial | None:
    # An inlined program could not be returned, because the worker would be lost before.
    if isinstance(proposal, Inline) or trial.is_of_other_group(proposal):
        return None
    found = (
        ShownTrial(verdict, proposal.recording) if not isinstance(proposal, Redraw) else _recorded(proposal, trial, *at)
    )
    if found is None or found.verdict.operator != verdict.operator:
        return None
    is_lost = isinstance(trial.run(found.recording), WorkerLostError)
    return replace(found, verdict=verdict) if is_lost else None


def _recorded(proposal: Redraw, trial: ShrinkTrial, step: int | None, has_backward: bool) -> ShownTrial | None:  # noqa: FBT001 - private, one caller
    """Record a redraw on the reference alone, because the candidate could end the worker before it answers."""
    suspect = trial.suspect
    answer = trial.fresh.ask(
        Record(
            test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate, step=step,
            edits=dict(proposal.edits), profile=proposal.profile, has_backward=has_backward,
        )
    )  # fmt: skip
    if not isinstance(answer, Tried):
        return None
    shown = shown_of(answer)
    return replace(shown, verdict=msgspec.structs.replace(shown.verdict, outcome="crashed"))
