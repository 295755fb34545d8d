"""The service: it checks a request, runs it as a command in a process of its own, and returns that command's answer.

A request is a document with named fields, whichever way it comes. Requests beyond those that run wait in a queue, which
has an end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.config import duration_s
from ci_autotest.errors import ConfigError
from ci_autotest.run.fork_client import end_group
from ci_autotest.serve.handout import hand_out
from ci_autotest.serve.warm import WarmServers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The variable with the token of a service that speaks HTTP; without it, one is drawn and printed.
TOKEN: Final = "CI_AUTOTEST_SERVE_TOKEN"  # noqa: S105 - the name of a variable
#: As a worker starts: the current folder is not on the import path.
_COMMAND: Final = "import sys; sys.path[:] = [p for p in sys.path if p]; from ci_autotest.cli import main; main()"
#: Requests that may wait, and seconds that a request may take beside its budget.
_WAITING: Final = 32
_BESIDE_S: Final = 300.0
_ANSWER_BYTES: Final = 1 << 26
_USAGE, _UNAVAILABLE = 2, 4


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a verdict: two files, or their texts.

    Attributes:
        reference: ``FILE``, ``FILE:NAME`` or ``MODULE:NAME``, from the folder of the service.
        candidate: Likewise.
        reference_text: The text of the reference in place of a file.
        candidate_text: Likewise.
        name: The function or module that is meant, where texts are given.
        forward_only: Whether values are compared and no gradients.
        public: Whether nothing of the hidden cases is shown.
        authentic: Whether it is asked who did the work.
        allow: Operators that the candidate may call though the reference calls them.
        budget: Time for the cases.
        seed: Seed of the cases, to repeat a verification.
    """

    reference: str = ""
    candidate: str = ""
    reference_text: str = ""
    candidate_text: str = ""
    name: str = ""
    forward_only: bool = False
    public: bool = False
    authentic: bool = True
    allow: tuple[str, ...] = ()
    budget: str = "60s"
    seed: int | None = None


class FindingRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request about a finding: its folder, from the folder of the service."""

    finding: str


class RequestError(Exception):
    """A request cannot be answered.

    Args:
        message: Why, in a sentence.
        status: The status of HTTP.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Service:
    """Answers requests.

    Args:
        environ: The environment of the service.
        jobs: Requests that run at once.
    """

    def __init__(self, environ: Mapping[str, str], jobs: int) -> None:
        self._environ = environ
        self._warm = WarmServers(environ, jobs)
        hand_out(self._warm)
        self._running = threading.Semaphore(jobs)
        self._places = threading.Semaphore(jobs + _WAITING)

    def close(self) -> None:
        """End what is ready."""
        self._warm.close()

    def verify(self, fields: object) -> dict[str, Any]:
        """Return the verdict on a ``VerifyRequest``.

        Raises:
            RequestError: It has an unknown field or a wrong value, names no file, or there is no room.
        """
        request = _checked(fields, VerifyRequest)
        try:
            timeout_s = duration_s(request.budget, "budget") + _BESIDE_S
        except ConfigError as error:
            raise RequestError(str(error)) from error
        with self._place(), tempfile.TemporaryDirectory() as folder:
            words = ["verify", "--json", *_options(request), "--", *_subjects(request, Path(folder))]
            with contextlib.closing(self._warm.sandbox()) as sandbox:
                status, text, errors = self._run(words, timeout_s, sandbox.variables)
        try:
            found: dict[str, Any] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise _failed(status, errors) from None
        return found

    def replay(self, fields: object) -> dict[str, Any]:
        """Return what running the program of a finding again prints, and its status."""
        request = _checked(fields, FindingRequest)
        with self._place():
            status, text, errors = self._run(["replay", "--", request.finding], _BESIDE_S, {})
        if status in {_USAGE, _UNAVAILABLE}:
            raise _failed(status, errors)
        return {"status": status, "text": text}

    def explain(self, fields: object) -> dict[str, Any]:
        """Return a finding as a report for whoever mends the kernel."""
        request = _checked(fields, FindingRequest)
        with self._place():
            status, text, errors = self._run(["issue", "--", request.finding], _BESIDE_S, {})
        if status:
            raise _failed(status, errors)
        return {"status": status, "text": text}

    @contextlib.contextmanager
    def _place(self) -> Any:
        if not self._places.acquire(blocking=False):
            message = f"{_WAITING} requests wait already. Try again later, or start the service with more --jobs."
            raise RequestError(message, 503)
        try:
            with self._running:
                yield
        finally:
            self._places.release()

    def _run(self, words: Sequence[str], timeout_s: float, own: Mapping[str, str]) -> tuple[int, str, str]:
        """Run a command; return its status, its output and its errors."""
        with (
            self._warm.fork_server() as (descriptor, variables),
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            environ = {**self._environ, **variables, **own}
            environ.pop(TOKEN, None)
            process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                env=environ, pass_fds=(descriptor,), start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                message = f"it took longer than {timeout_s:g} s, and was ended."
                raise RequestError(message, 504) from None
            finally:
                end_group(process.pid)
                process.wait()
            return status, _read(output), _read(errors)


def _checked(fields: object, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message = f"the request is wrong: {error}."
        raise RequestError(message) from error


def _options(request: VerifyRequest) -> list[str]:
    flags = {
        "--forward-only": request.forward_only,
        "--public": request.public,
        "--no-authentic": not request.authentic,
    }
    seed = [] if request.seed is None else [f"--seed={request.seed}"]
    return [
        *(flag for flag, is_set in flags.items() if is_set), f"--budget={request.budget}", *seed,
        *(f"--allow={operator}" for operator in request.allow),
    ]  # fmt: skip


def _subjects(request: VerifyRequest, folder: Path) -> list[str]:
    """Return the two arguments; texts become files of a folder.

    Raises:
        RequestError: A side is given twice, or not at all.
    """
    found = []
    for role in ("reference", "candidate"):
        place, text = getattr(request, role), getattr(request, f"{role}_text")
        if bool(place) == bool(text):
            message = f"give either '{role}', a file, or '{role}_text', its text."
            raise RequestError(message)
        if text:
            own = folder / role
            own.mkdir()
            (own / f"{role}.py").write_text(text, "utf-8")
            place = f"{own / role}.py" + (f":{request.name}" if request.name else "")
        found.append(place)
    return found


def _failed(status: int, errors: str) -> RequestError:
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    message = lines[-1][:2000] if lines else f"the command ended with status {status}."
    return RequestError(message, {_USAGE: 400, _UNAVAILABLE: 501}.get(status, 500))


def _read(file: Any) -> str:
    file.seek(max(file.seek(0, os.SEEK_END) - _ANSWER_BYTES, 0))
    text: str = file.read().decode(errors="replace")
    return text
