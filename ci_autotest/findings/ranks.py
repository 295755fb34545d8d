"""What findings of ranks need: real processes must show them too, and a script must show them alone.

A script simulates the ranks, because that takes one process and no time. Whether the simulation shows a finding that
was made on processes is only known when it has run there; if it does not, the script starts its own ranks.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.findings.diagnosis import Doubt
from ci_autotest.kinds import DTensorCandidate
from ci_autotest.program.note import DTensorNote
from ci_autotest.program.repro.ranks import starts_ranks
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.run.messages import Tried, TryProgram
from ci_autotest.run.single_worker import SingleWorker
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from ci_autotest.findings.diagnosis import Diagnosis
    from ci_autotest.findings.tools import Inspection
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.messages import Broken


def confirm_on_processes(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Run the program of a finding of simulated ranks on processes; a finding that they do not show is doubted."""
    candidate = _candidate(diagnosis, inspection)
    if candidate is None or candidate.processes or diagnosis.shown is None or not diagnosis.is_confirmed:
        return diagnosis
    answer = _tried(diagnosis.shown.recording, diagnosis, candidate, inspection, has_processes=True)
    if not isinstance(answer, Tried):
        why = getattr(answer, "message", "") or str(answer)
        return diagnosis.noted(f"seen on simulated ranks only: real processes could not be asked ({why[:200]})")
    found = answer.verdict
    if found.outcome == "misaligned" and found.operator == diagnosis.verdict.operator:
        has_reason = found.misalignment is not None and found.misalignment.difference is None
        seen = f", {found.misalignment.candidate}" if has_reason and found.misalignment is not None else ""
        return diagnosis.noted(f"confirmed on processes: {found.kind}{seen}")
    detail = f"simulated ranks: {diagnosis.verdict.kind}; on processes: {found.outcome}"
    why = f" ({found.oracle[:200]})" if found.outcome == "unsupported" else ""
    return diagnosis.doubted(detail + why, Doubt.SIMULATED_ONLY)


def with_own_ranks(diagnosis: Diagnosis, status: int | None, inspection: Inspection) -> Diagnosis | None:
    """Return a finding whose script starts its ranks; ``None`` if it does already, or if simulated ranks show it.

    Args:
        diagnosis: The finding.
        status: How its script ended that simulates the ranks.
        inspection: The tools.
    """
    shown = diagnosis.shown
    if shown is None or diagnosis.whole is not None or not isinstance(shown.recording.note.side, DTensorNote):
        return None
    note, candidate = shown.recording.note, _candidate(diagnosis, inspection)
    if candidate is None or not candidate.processes:
        return None
    # The simulation may also raise an error of its own, which the script would take for one of the kernel.
    if starts_ranks(note) or (status == 1 and _is_simulated(diagnosis, shown.recording, candidate, inspection)):
        return None
    recording = replace(
        shown.recording, note=msgspec.structs.replace(note, side=msgspec.structs.replace(note.side, starts_ranks=True))
    )
    return replace(diagnosis, shown=replace(shown, recording=recording))


def _is_simulated(
    diagnosis: Diagnosis, recording: Recording, candidate: DTensorCandidate, inspection: Inspection
) -> bool:
    """Whether simulated ranks show a finding of processes."""
    answer = _tried(recording, diagnosis, candidate, inspection, has_processes=False)
    if not isinstance(answer, Tried):
        return isinstance(answer, WorkerLostError) and diagnosis.lost is not None
    found, wanted = answer.verdict, diagnosis.verdict
    return (found.outcome, found.operator, found.kind) == (wanted.outcome, wanted.operator, wanted.kind)


def _candidate(diagnosis: Diagnosis, inspection: Inspection) -> DTensorCandidate | None:
    """Return the candidate of a finding if it is a group of ranks."""
    for candidate in inspection.tools.hello.candidates:
        if candidate.name == diagnosis.suspect.candidate and isinstance(candidate, DTensorCandidate):
            return candidate
    return None


def _tried(
    recording: Recording,
    diagnosis: Diagnosis,
    candidate: DTensorCandidate,
    inspection: Inspection,
    *,
    has_processes: bool,
) -> Tried | Broken | WorkerLostError:
    """Run a program on the other kind of ranks, in a fresh worker, because only that can fork ranks."""
    tools = inspection.tools
    device = candidate.device if has_processes else "cpu"
    other = msgspec.structs.replace(candidate, processes=has_processes, device=device)
    hello = msgspec.structs.replace(tools.hello, candidates=[other])
    with closing(SingleWorker(tools.start, hello, tools.allowance.deadline)) as fresh:
        return fresh.ask(
            TryProgram(
                program=encode_program(recording), tensors=encode_tensors(recording),
                candidate=candidate.name, test=diagnosis.suspect.test, wanted=diagnosis.suspect.identity,
            )
        )  # fmt: skip
