"""The command ``replay``: runs a saved program again on its candidate."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ci_autotest.commands.executors import single_processes
from ci_autotest.commands.request import Request, hello_for
from ci_autotest.config import duration_s, named_by, of_reference
from ci_autotest.discovery import select
from ci_autotest.errors import ProgramError, UnavailableError, UsageError
from ci_autotest.program.serialize import decode
from ci_autotest.program.targets import named_in
from ci_autotest.report.finding_message import About, finding_of, message_lines
from ci_autotest.run.messages import Broken, Tried, TryProgram
from ci_autotest.run.single_worker import SingleWorker
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.judgement import FAILED, FINE, NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import TextIO

    from ci_autotest.discovery import Selection


def _own_files(request: Request) -> Selection:
    """Return the test files of the configuration, whose folders may hold a module that the program names."""
    return select(request.config.paths, request.root, request.root)


def replay(path: Path, request: Request, environ: Mapping[str, str], stream: TextIO) -> int:
    """Run a saved program again on its candidate.

    Raises:
        ProgramError: The program is damaged, or names something that is not allowed.
        UsageError: There is no program, or its candidate is unknown here.
    """
    folder = path if path.is_dir() else path.parent
    program, tensors = folder / "program.json", folder / "tensors.safetensors"
    for file in (program, tensors):
        if not file.is_file():
            message = f"'{path}' holds no {file.name}. Give the folder of a finding."
            raise UsageError(message)
    data = program.read_bytes(), tensors.read_bytes()
    recording = decode(*data, named_in(named_by(request.candidates, request.config.paths)))
    name = recording.note.candidate
    candidate = next((item for item in (*request.candidates, of_reference()) if item.name == name), None)
    if candidate is None:
        known = ", ".join(item.name for item in request.candidates) or "none"
        message = (
            f"the program was saved for candidate {name!r}, which is unknown here; known: {known}. "
            "Give --config or --candidate."
        )
        raise UsageError(message)
    # The same name with another backend would run the program on something else than the finding is about.
    if candidate.backend != recording.note.backend:
        message = (
            f"candidate {name!r} has the backend {candidate.backend} here and {recording.note.backend!r} in the "
            "program. Give the --config of the run that saved it."
        )
        raise ProgramError(message)
    silence_s = duration_s(request.config.case_timeout, "case_timeout")
    hello = hello_for(request, 0, _own_files(request))
    with (
        single_processes(request, environ, silence_s) as executor,
        closing(SingleWorker(lambda: executor.start(None), hello)) as fresh,
    ):
        answer = fresh.ask(TryProgram(program=data[0], tensors=data[1], candidate=candidate.name))
    return say(answer, candidate.name, stream)


def say(answer: Tried | Broken | WorkerLostError, candidate: str, stream: TextIO) -> int:
    """Print the verdict on a program and return its exit status."""
    if isinstance(answer, WorkerLostError):
        stream.write(f"{'timed out' if answer.timed_out else 'crashed'}: the worker {answer.reason}\n{answer.output}\n")
        return FAILED
    if isinstance(answer, Broken):
        raise (ProgramError if answer.is_refusal else UnavailableError)(answer.message)
    verdict = answer.verdict
    if verdict.outcome == "unsupported":
        stream.write(f"unsupported on {candidate}: {verdict.oracle}\n")
        return NOTHING
    if verdict.outcome == "aligned":
        stream.write(f"aligned on {candidate}\n")
        return FINE
    finding = finding_of(verdict, About(candidate=candidate, test="", name="program", case=0, seed=0))
    stream.write("".join(f"{line}\n" for line in message_lines(finding)))
    return FAILED
