"""The trace of a program that a host ran: it is filled from the host's response when somebody needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.backends.framework.response import failure_of, fill
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Raised, Trace
from ci_autotest.program.refusal import ACCEPTED, Refusal, refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.framework.mapping.translation import Translated
    from ci_autotest.backends.framework.response import Reader
    from ci_autotest.errors import Unsupported
    from ci_autotest.program.ir import Program


class ResponseTrace(Trace):
    """The trace of a program that a host ran.

    Attributes:
        translated: What the host ran.
        is_graph: Whether it ran the body as one graph.
        expected: The reference's trace of the same program, if it is known.
        has_gone_back: Whether no backward pass is left to run: the run included it, or this side has none.
        reader: Reader of a response that is not in the trace yet.
        loader: Puts that response into the trace.
    """

    is_remote = True

    def __init__(
        self, program: Program, expected: Trace | None, *, snapshots: bool = False, is_graph: bool = False
    ) -> None:
        super().__init__()
        count = len(program.steps)
        self.values, self.facts = [None] * count, [None] * count
        if snapshots:
            self.observations = [None] * count
        self.expected = expected
        self.is_graph = is_graph
        self.translated: Translated | None = None
        self.has_gone_back = False
        self.reader: Reader | None = None
        self.loader: Callable[[ResponseTrace, Reader], None] | None = None
        self._recorded: dict[Any, Any] | None = None
        self._refused = refusals(program.steps)

    def load(self) -> None:
        """Put the host's response into the trace unless it is there already."""
        if self.reader is not None and self.loader is not None:
            self.loader(self, self.reader)

    def take(self, reader: Reader) -> None:
        """Put a host's response to a run into the trace.

        Raises:
            ResponseError: The response is invalid.
        """
        assert self.translated is not None  # noqa: S101 - what was run was translated
        moved = self.translated.moved
        self.failure = failure_of(reader.answer, moved)
        fill(self, reader, moved, self.expected)
        self._note_refusals()
        if self.failure is not None:
            del self.values[self.failure.step :], self.facts[self.failure.step :]
        self.take_gradients(reader)

    def take_gradients(self, reader: Reader) -> None:
        """Put the gradients of a response into the trace, by what they are with respect to in the recorded program.

        Raises:
            ResponseError: The response is invalid.
        """
        expected = self.expected.gradients if self.expected is not None else {}
        found: dict[Any, Any] = {}
        for key, entry in reader.answer.gradients:
            own = self.recorded(key)
            if own is not None:
                found[own] = None if entry is None else reader.tensor(entry, expected.get(own)).detach()
        self.gradients = found
        # A host returns only those cotangents that its backward pass wrote to.
        self.cotangents = {position: reader.tensor(entry).detach() for position, entry in reader.answer.written}
        raised = reader.answer.backward_failure
        self.backward_failure = None if raised is None else Raised(*raised)

    def lack_backward(self, why: Unsupported) -> None:
        """Note that the framework lacks something of the backward pass; the values are those of the forward pass."""
        self.backward_lacking = why = why._replace(detail=f"in the backward pass, {why.detail}")
        self.backward_failure = self.backward_failure or Raised("NotImplementedError", why.detail)

    def _note_refusals(self) -> None:
        """Note for each step that the reference refused whether this side refused it or what it returned."""
        for index in self._refused:
            failure = self.failure
            if failure is not None and failure.step <= index:
                if failure.step < index or failure.kind == "NotImplementedError":
                    return
                self.values[index], self.failure = Refusal(failure.kind, failure.message), None
            elif not isinstance(self.values[index], Refusal):
                self.values[index], self.facts[index] = ACCEPTED, None
            if self.observations:
                self.observations[index] = observed(self.values[index])

    def recorded(self, key: int | tuple[int, str]) -> Any:
        """Return the key that a gradient has in the recorded program, by its key in the translated one."""
        if self._recorded is None:
            assert self.translated is not None  # noqa: S101 - what was run was translated
            self._recorded = {place: i for i, place in enumerate(self.translated.moved) if place >= 0}
            self._recorded |= {place: own for own, place in self.translated.parameters.items()}
        if isinstance(key, int):
            return self._recorded.get(key)
        return self._recorded.get(key[0], key[0]), key[1]
