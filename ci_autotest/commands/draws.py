"""The command ``draws``: prints the draw log of a case and runs the case again, with edited draws if any are given.

A draw log is text: printed, edited by hand and read back, one ``name = value`` on a line.
"""

from __future__ import annotations

import ast
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ci_autotest.commands.executors import single_processes
from ci_autotest.commands.replay import say
from ci_autotest.commands.request import discovered, hello_for
from ci_autotest.config import duration_s
from ci_autotest.errors import AuthorError, UnavailableError, UsageError
from ci_autotest.program.codegen import function_text
from ci_autotest.program.serialize import decode
from ci_autotest.program.targets import is_own
from ci_autotest.run.messages import Confirm, Record, Tried
from ci_autotest.run.pool import Pool
from ci_autotest.run.single_worker import SingleWorker
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.case import made_by_name
from ci_autotest.values.judgement import FAILED, NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import TextIO

    from ci_autotest.commands.request import Request
    from ci_autotest.run.executor import Executor
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.values.case import Draw, DrawnValue

_FIELDS: Final[dict[str, type]] = {"test": str, "seed": int, "case": int, "attempt": int, "profile": str}


def draws(log: DrawLog, request: Request, environ: Mapping[str, str], stream: TextIO) -> int:
    """Print the draws, the program and the verdict of a case on each candidate; edited draws replace the test's own.

    Raises:
        UsageError: The path does not name exactly one test, or an edit names a draw that the case does not make.
        AuthorError: The test cannot be run.
    """
    names = [each.name for each in request.candidates]
    with single_processes(request, environ, duration_s(request.config.case_timeout, "case_timeout")) as executor:
        test = _test(log, request, executor)
        with closing(SingleWorker(lambda: executor.start(None), hello_for(request, log.seed))) as fresh:
            log = _placed(log, fresh, test, names[0])
            answers = {name: fresh.ask(_confirm(log, test, name)) for name in names}
    answer = next((each for each in answers.values() if isinstance(each, Tried)), None)
    if answer is None:
        return max(say(each, name, stream) for name, each in answers.items())
    # Only the attempt shows which draws the case makes, so the edits are checked after it.
    _refuse_unknown(log, answer)
    stream.write(render(log, answer.draws, answer.profile))
    if not answer.whole_program:
        stream.write("the reference rejects this case: there is nothing to compare\n")
        return NOTHING
    stream.write(f"\n{function_text(decode(answer.whole_program, answer.whole_tensors, is_own).program)}\n")
    statuses = {say(each, name, stream) for name, each in answers.items()}
    return FAILED if FAILED in statuses else min(statuses)


def _test(log: DrawLog, request: Request, executor: Executor) -> TestInfo:
    with closing(Pool(executor, hello_for(request, log.seed))) as pool:
        found = discovered(pool, request)
    for item in found.broken:
        message = f"{item.test} {item.message}\n{item.traceback}"
        raise AuthorError(message)
    # A path may also select the methods or rows below a name; the test of exactly that id comes first.
    chosen = [test for test in found.tests if test.id == log.test] or found.tests
    if len(chosen) != 1:
        message = f"'{log.test}' names {len(chosen)} tests. Give one, as FILE::TEST; `ci-autotest list` names them."
        raise UsageError(message)
    return chosen[0]


def _placed(log: DrawLog, fresh: SingleWorker, test: TestInfo, candidate: str) -> DrawLog:
    if log.attempt is not None:
        return replace(log, test=test.id)
    answer = fresh.ask(Record(test=test, case=log.case, attempt=None, candidate=candidate))
    if isinstance(answer, Tried):
        return replace(log, test=test.id, attempt=answer.attempt)
    if isinstance(answer, WorkerLostError):
        message = f"the worker {answer.reason} while case {log.case} of {test.id} was drawn."
        raise UnavailableError(message)
    raise AuthorError(answer.message)


def _confirm(log: DrawLog, test: TestInfo, candidate: str) -> Confirm:
    return Confirm(
        test=test,
        case=log.case,
        attempt=log.attempt or 0,
        candidate=candidate,
        edits=dict(log.values),
        profile=log.profile,
    )


def _refuse_unknown(log: DrawLog, answer: Tried) -> None:
    made = made_by_name(answer.draws)
    for name, edited in log.values.items():
        if name not in made:
            names = ", ".join(sorted(draw.label for draw in answer.draws)) or "none"
            message = f"case {log.case} of {log.test} has no draw {name!r}. It has {names}."
            raise UsageError(message)
        draw = made[name]
        if draw.value != edited:
            message = f"{name} = {edited!r} is outside its range: {draw.kind} of [{draw.low:g}, {draw.high:g})."
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class DrawLog:
    """A case and its draws.

    Args:
        test: Id of the test.
        seed: Root seed, which determines the data of tensors.
        case: Number of the case.
        attempt: ``None`` for the attempt that the reference accepts.
        profile: Profile of the attempt; ``None`` for the one of the case.
        values: Edited draws by site; all others are drawn anew.
    """

    test: str
    seed: int
    case: int
    attempt: int | None = None
    profile: str | None = None
    values: Mapping[str, DrawnValue] = field(default_factory=dict)


def render(log: DrawLog, draws: Iterable[Draw], profile: str) -> str:
    """Return the text of a case: the fields that name it, then each draw with its kind and range.

    The profile is a comment, because it follows from the case's number unless the log names one.
    """
    lines = [f"{name} = {getattr(log, name)!r}" for name in _FIELDS if getattr(log, name) is not None]
    lines.append(f"# profile: {profile}")
    for draw in draws:
        line = f"{draw.label} = {draw.value!r}"
        lines.append(f"{line:<28}  # {draw.kind} of [{draw.low:g}, {draw.high:g})")
    return "\n".join(lines) + "\n"


def parse(text: str, file: str) -> DrawLog:
    """Parse a draw log, edited or not.

    Raises:
        UsageError: A line is not ``name = value``, a name occurs twice, or the test or case is missing.
    """
    found: dict[str, DrawnValue] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("def "):
            break  # The program below the draws follows from them.
        if not line.partition("#")[0].strip():
            continue
        name, value = edit_of(line, f"{file}, line {number}")
        if name in found:
            message = f"{file}, line {number}: {name} is given twice. Keep one."
            raise UsageError(message)
        found[name] = value
    fields = {name: found.pop(name) for name in _FIELDS if name in found}
    for name, kind in _FIELDS.items():
        if name in {"test", "case"} and name not in fields:
            message = f"{file} names no {name}. Keep the lines that `ci-autotest draws` printed."
            raise UsageError(message)
        if name in fields and type(fields[name]) is not kind:
            message = f"{file}: {name} is {fields[name]!r}. Give {'a number' if kind is int else 'a text in quotes'}."
            raise UsageError(message)
    return DrawLog(**{"seed": 0, **fields}, values=found)  # type: ignore[arg-type]


def edit_of(text: str, source: str) -> tuple[str, DrawnValue]:
    """Return the name and the value of ``name = value``.

    Args:
        text: The assignment.
        source: Where it stands, for messages.

    Raises:
        UsageError: It is not an assignment, or the value is not a number, boolean or quoted text.
    """
    name, equals, rest = text.partition("=")
    try:
        value = ast.literal_eval(rest.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # the last two for deep nesting
        value = ...
    if not equals or not name.strip() or not isinstance(value, bool | int | float | str):
        message = f"{source}: {text.strip()!r} is no draw. Write SITE=VALUE, such as 0.ndim=2."
        raise UsageError(message)
    return name.strip(), value


def asked_for(test: str | None, case: int, edits: Iterable[str], file: Path | None, seed: int | str) -> DrawLog:
    """Return the log of a command line, which gives a test and a case, or a file; edits override it.

    Raises:
        UsageError: Both or neither are given, or an edit cannot be parsed.
    """
    values = dict(edit_of(text, "--edit") for text in edits)
    if (test is None) == (file is None):
        message = "give either a test, as PATH::TEST, or --log FILE with what `ci-autotest draws` printed."
        raise UsageError(message)
    if file is not None:
        read = parse(_text(file), str(file))
        return replace(read, values={**read.values, **values})
    return DrawLog(test or "", seed if isinstance(seed, int) else 0, case, values=values)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is not UTF-8 ({error})"
        message = f"{file} cannot be read: {reason}. Give --log a file with what `ci-autotest draws` printed."
        raise UsageError(message) from error
