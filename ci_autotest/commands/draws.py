"""The command ``draws``: prints the draw log of a case and runs the case again, with edited draws if any are given."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ci_autotest.commands.draw_log import DrawLog, render
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
    from collections.abc import Mapping
    from typing import TextIO

    from ci_autotest.commands.request import Request
    from ci_autotest.run.executor import Executor
    from ci_autotest.run.messages import TestInfo


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
