"""The backend ``module``: programs run by a host in the candidate's own interpreter, compared by what it tells."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ci_autotest.backends.hosting import HostLostError, HostProcess, end_as
from ci_autotest.backends.told import Reader, ToldError, about_of, elements_of, failure_of, fill
from ci_autotest.backends.torch_eager import IN_BACKWARD
from ci_autotest.backends.trace import Trace
from ci_autotest.errors import UnsupportedError
from ci_autotest.execute.plain import plain_program
from ci_autotest.program.ir import HOOK, PLACEHOLDER, REGISTERS, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.backends.hosting import Interpreter
    from ci_autotest.backends.mapping.translate import Translated, Translator
    from ci_autotest.backends.told import About
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Program

_HOOKS: Final = frozenset({*HOOK, *REGISTERS})


class _Ahead(NamedTuple):
    """A program that the host was given before it was asked for."""

    program: Program
    trace: _ToldTrace


class _ToldTrace(Trace):
    """A trace that a host tells.

    Attributes:
        translated: What the host ran.
        expected: The reference's trace of the same program, where it is known.
        has_gone_back: Whether the backward pass was part of the run.
    """

    is_told = True

    def __init__(self, program: Program, expected: Trace | None, *, snapshots: bool) -> None:
        super().__init__()
        count = len(program.steps)
        self.values, self.facts = [None] * count, [None] * count
        if snapshots:
            self.observations = [None] * count
        self.expected = expected
        self.translated: Translated | None = None
        self.has_gone_back = False


class RemoteBackend:
    """Execute programs in another interpreter.

    Args:
        where: The interpreter and the framework's module.
        translator: Says programs in the framework's words.
        ends_with_host: Whether this process ends as its host ends; else a lost host is an exception.

    Raises:
        UnavailableError: The host cannot be started.
    """

    shows_steps = True
    takes_copies = False

    def __init__(self, where: Interpreter, translator: Translator, *, ends_with_host: bool = False) -> None:
        """Start the host."""
        self.on_step: Callable[[int], None] | None = None
        self._translator = translator
        self._ends_with_host = ends_with_host
        self._where = where
        self.table = translator.table
        self._host = HostProcess(where)
        self.hello = self._host.hello
        self._ahead: deque[_Ahead] = deque()
        self._answered: list[tuple[_ToldTrace, Reader]] = []

    def ahead(self, attempts: Sequence[Attempt]) -> None:
        """Give the host a batch, forward and backward; ``run`` then takes the traces in this order.

        A trace is filled when ``run`` has returned the last of them.

        Args:
            attempts: Accepted, with the reference's side.
        """
        jobs: list[dict[str, Any]] = []
        buffers: list[memoryview] = []
        for attempt in attempts:
            trace = _ToldTrace(attempt.program, attempt.trace, snapshots=False)
            self._ahead.append(_Ahead(attempt.program, trace))
            if self._prepare(attempt.program, attempt.sources, trace):
                trace.has_gone_back = True
                jobs.append(_job(trace, attempt.sources, attempt.cotangents or None, buffers, snapshots=False))
        if jobs:
            with self._watched():
                self._host.ask({"jobs": jobs}, buffers)

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - a host tells of the end of the run
    ) -> Trace:
        """Run the program forward; what was given ahead is taken from there."""
        with self._watched():
            if self._ahead and self._ahead[0].program is program and not snapshots:
                trace = self._ahead.popleft().trace
                if trace.untested is None:
                    self._answered.append((trace, self._read()))
                if not self._ahead:
                    self._settle()
                return trace
            self._drain()
            trace = _ToldTrace(program, None, snapshots=snapshots)
            if self._prepare(program, sources, trace):
                if self.on_step is not None:
                    self.on_step(program.calls[0][0] if program.calls else 0)
                buffers: list[memoryview] = []
                job = _job(trace, sources, None, buffers, snapshots=snapshots)
                self._host.ask({"jobs": [job]}, buffers)
                self._take(trace, self._read())
            return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:  # noqa: ARG002
        """Run the backward pass of the program that was run last, where the run had none."""
        assert isinstance(trace, _ToldTrace)  # noqa: S101 - made above
        if trace.has_gone_back or trace.failure is not None or trace.untested is not None:
            return
        if self.on_step is not None:
            self.on_step(IN_BACKWARD)
        buffers: list[memoryview] = []
        with self._watched():
            self._host.ask({"backward": {"cotangents": _placed(cotangents, buffers)}}, buffers)
            reader = self._read()
            if reader.answer.lacking is not None:
                self._refuse(trace, reader.answer.lacking)
            self._take_gradients(trace, reader)
        trace.has_gone_back = True

    def take_seen(self) -> dict[str, int]:
        """Return nothing: no calls are counted."""
        return {}

    def about(self, targets: Sequence[str]) -> About:
        """Return which of some targets the framework has, and its devices.

        Raises:
            HostLostError: The host is gone, or sent what is no answer.
        """
        with self._watched():
            self._host.ask({"has": list(targets)})
            return about_of(self._host.told()[0], len(targets))

    def close(self) -> None:
        """End the host."""
        self._host.close()

    def _prepare(self, program: Program, sources: Mapping[str, Any], trace: _ToldTrace) -> bool:
        """Translate; say whether there is anything to run."""
        trace.has_flags = self.hello.has_flags
        if any(mode in _HOOKS for step in program.body for mode in step.modes):
            trace.untested = "hooks are not repeated in another interpreter"
            return False
        try:
            trace.translated = self._translator.translated(program, sources)
        except UnsupportedError as error:
            trace.untested = str(error)
            return False
        if -1 in trace.translated.moved:
            trace.shown = frozenset(i for i, place in enumerate(trace.translated.moved) if place >= 0)
        return True

    def _settle(self) -> None:
        """Fill the traces of a batch when its last answer is there: only then can elements be asked for."""
        for trace, reader in self._answered:
            self._take(trace, reader)
        self._answered.clear()

    def _drain(self) -> None:
        """Read what was given ahead and is no longer asked for."""
        while self._ahead:
            trace = self._ahead.popleft().trace
            if trace.untested is None:
                self._answered.append((trace, self._read()))
        self._settle()

    def _take(self, trace: _ToldTrace, reader: Reader) -> None:
        translated = trace.translated
        assert translated is not None  # noqa: S101 - prepared
        answer = reader.answer
        if answer.lacking is not None:
            self._refuse(trace, answer.lacking)
            return
        trace.failure = failure_of(answer, translated.moved)
        fill(trace, reader, translated.moved, trace.expected)
        if trace.failure is not None:
            del trace.values[trace.failure.step :], trace.facts[trace.failure.step :]
        self._take_gradients(trace, reader)

    def _refuse(self, trace: Trace, lacking: str) -> None:
        """Say that the framework has not what the program asks of it."""
        trace.untested = f"{self._where.module} {self.hello.version}: {lacking}"

    def _take_gradients(self, trace: _ToldTrace, reader: Reader) -> None:
        """Put the gradients under what they are with respect to as it was recorded."""
        assert trace.translated is not None  # noqa: S101 - prepared
        recorded: dict[Any, Any] = {place: i for i, place in enumerate(trace.translated.moved) if place >= 0}
        recorded |= {place: key for key, place in trace.translated.parameters.items()}
        expected = trace.expected.gradients if trace.expected is not None else {}
        found: dict[Any, Any] = {}
        for key, entry in reader.answer.gradients:
            own = recorded.get(key) if isinstance(key, int) else (recorded.get(key[0], key[0]), key[1])
            if own is not None:
                found[own] = None if entry is None else reader.tensor(entry, expected.get(own)).detach()
        trace.gradients = found
        trace.backward_failure = reader.answer.backward_failure

    def _read(self) -> Reader:
        head, buffers = self._host.told()
        return Reader(head, buffers, self._fetch)

    def _fetch(self, numbers: list[int]) -> list[bytes]:
        self._host.ask({"fetch": numbers})
        return self._host.told()[1]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """End as the host ended, or say that it is lost; what sends no answer is no host."""
        try:
            yield
        except ToldError as error:
            self._host.close()
            self._give_up(HostLostError(str(error), 1), error)
        except HostLostError as lost:
            self._give_up(lost, lost)

    def _give_up(self, lost: HostLostError, cause: Exception) -> NoReturn:
        if self._ends_with_host:
            end_as(lost)
        raise lost from cause


def _job(
    trace: _ToldTrace,
    sources: Mapping[str, Any],
    cotangents: Mapping[int, Any] | None,
    buffers: list[memoryview],
    *,
    snapshots: bool,
) -> dict[str, Any]:
    """Return a job, its tensors put into ``buffers``."""
    assert trace.translated is not None  # noqa: S101 - prepared
    program = trace.translated.program
    tensors: dict[str, tuple[str, int]] = {}
    for step in program.steps:
        if step.op == PLACEHOLDER and isinstance(spec := step.args[0], TensorSpec):
            buffers.append(elements_of(sources[step.target]))
            tensors[step.target] = spec.dtype, len(buffers) - 1
    return {
        "program": plain_program(program),
        "tensors": tensors,
        "cotangents": None if cotangents is None else _placed(cotangents, buffers),
        "snapshots": snapshots,
    }


def _placed(cotangents: Mapping[int, Any], buffers: list[memoryview]) -> dict[str, Any]:
    """Return each gradient's dtype, shape and buffer, by position."""
    found = {}
    for position, weight in cotangents.items():
        buffers.append(elements_of(weight))
        dtype = str(weight.dtype).removeprefix("torch.")
        found[str(position)] = dtype, tuple(weight.shape), len(buffers) - 1
    return found
