"""The commands ``list``, ``replay`` and ``report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.config import duration_s
from ci_autotest.errors import ProgramError, UnavailableError, UsageError
from ci_autotest.program.serialize import decode
from ci_autotest.report.artifacts import check_writable
from ci_autotest.report.markdown_text import plural
from ci_autotest.report.merge import merge
from ci_autotest.run.messages import Broken, Tried, TryProgram
from ci_autotest.run.pool import Fresh, Pool
from ci_autotest.run.process import WorkerLostError, WorkerProcess
from ci_autotest.session.baseline import against
from ci_autotest.session.requested import Request, discovered, hello_for
from ci_autotest.session.results import FAILED, FINE, NOTHING, settled
from ci_autotest.session.surfaces import read_report, setting_for, write_surfaces

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import TextIO

    from ci_autotest.result import RunResult

_SILENCE_S = 300.0


def list_tests(request: Request, environ: Mapping[str, str], stream: TextIO) -> int:
    """Print the tests by file; say which files do not import."""
    pool = Pool(lambda: WorkerProcess(environ, _SILENCE_S), hello_for(request, 0), 1)
    try:
        tests, broken = discovered(pool, request)
    finally:
        pool.close()
    file = ""
    for test in tests:
        if test.location.file != file:
            file = test.location.file
            stream.write(f"{file}\n")
        cases = plural(test.n or request.config.cases, "case")
        stream.write(f"  {test.id}  line {test.location.line}, {cases}\n")
    for item in broken:
        stream.write(f"{item.test} {item.message}\n{item.traceback}\n")
    files = len({test.location.file for test in tests})
    stream.write(f"{plural(len(tests), 'test')} in {plural(files, 'file')}\n")
    return FAILED if broken else FINE


def replay(path: Path, request: Request, environ: Mapping[str, str], stream: TextIO) -> int:
    """Run a saved program again on its candidate.

    Raises:
        ProgramError: The program is damaged, or names what is not allowed.
        UsageError: There is none, or its candidate is not known here.
    """
    folder = path if path.is_dir() else path.parent
    program, tensors = folder / "program.json", folder / "tensors.safetensors"
    for file in (program, tensors):
        if not file.is_file():
            message = f"'{path}' holds no {file.name}. Give the folder of a finding."
            raise UsageError(message)
    data = program.read_bytes(), tensors.read_bytes()
    recording = decode(*data)
    name = recording.note.get("candidate")
    candidate = next((item for item in request.candidates if item.name == name), None)
    if candidate is None:
        known = ", ".join(item.name for item in request.candidates) or "none"
        message = f"the program was found on candidate {name!r}; known here: {known}. Give --config or --candidate."
        raise UsageError(message)
    if candidate.backend != recording.note.get("backend"):
        message = (
            f"candidate {name!r} is {candidate.backend} here and {recording.note.get('backend')!r} in the program."
        )
        raise ProgramError(message)
    silence_s = duration_s(request.config.case_timeout, "case_timeout")
    fresh = Fresh(lambda: WorkerProcess(environ, silence_s), hello_for(request, 0))
    try:
        answer = fresh.ask(TryProgram(program=data[0], tensors=data[1], candidate=candidate.name))
    finally:
        fresh.close()
    return say(answer, candidate.name, stream)


def say(answer: Tried | Broken | WorkerLostError, candidate: str, stream: TextIO) -> int:
    """Print what a program showed on its candidate, and return the exit status of that."""
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
    found = verdict.misalignment
    stream.write(f"misaligned: {verdict.operator} on {candidate}, {found.what if found else ''} ({verdict.kind})\n")
    if found is not None:
        stream.write(f"  candidate {found.candidate}; reference {found.reference}\n")
        if found.difference is not None:
            numbers = found.difference
            stream.write(
                f"  mismatched elements: {numbers.mismatched} / {numbers.total}, first at {numbers.first_index}: "
                f"candidate {numbers.first_pair_decimal[0]}, reference {numbers.first_pair_decimal[1]}\n"
            )
        if found.detail:
            stream.write(f"  {found.detail}\n")
    stream.write(f"  blame: {verdict.blame}; {verdict.oracle}\n")
    return FAILED


def report(
    folders: tuple[Path, ...], output: Path, fail_on: str, baseline: tuple[str, str], environ: Mapping[str, str]
) -> RunResult:
    """Merge the shards of one run, and write the whole; ``baseline`` is what it is held against, and its artifact."""
    merged = merge([read_report(folder) for folder in folders])
    check_writable(output)
    result = settled(against(merged, *baseline, environ), fail_on)
    for folder in folders:
        _copy_findings(folder, output)
    write_surfaces(result, output, setting_for(result, output, environ, is_own=False))
    return result


def _copy_findings(folder: Path, output: Path) -> None:
    from ci_autotest.report.artifacts import FILES, FINDINGS, is_finding_id, write_finding  # noqa: PLC0415 - one use

    source = folder / FINDINGS
    if not source.is_dir() or source.resolve() == (output / FINDINGS).resolve():
        return
    for finding in sorted(source.iterdir()):
        files = {name: (finding / name).read_bytes() for name in sorted(FILES) if (finding / name).is_file()}
        if is_finding_id(finding.name) and files and not (output / FINDINGS / finding.name).exists():
            write_finding(output / FINDINGS / finding.name, files)
