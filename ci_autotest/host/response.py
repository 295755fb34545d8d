"""Encode what a host's runs gave as plain values and buffers; ``backends/remote/response.py`` decodes it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.backward import failed_backward
from ci_autotest.host.trace import Seen
from ci_autotest.program.json_values import plain_argument

if TYPE_CHECKING:
    from ci_autotest.host.deferred_reads import DeferredReads
    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import Run

#: Bytes above which a tensor is told by its digest, and sent only where that differs.
DIGEST_ABOVE: Final = 16_384
_MESSAGE_CHARS: Final = 4000


class Answers:
    """Collect the answers of some jobs and the buffers that are sent with them.

    A tensor is ``["tensor", dtype, shape, requires_grad, is_leaf, where]``: ``where`` is a buffer, or a digest with the
    number under which the elements are kept.

    Args:
        framework: Ran them.
        kept: Elements that are told by their digest, by number.

    Attributes:
        told: One for each job.
        buffers: Of all of them.
    """

    def __init__(self, framework: Framework, kept: dict[int, bytes]) -> None:
        self._framework = framework
        self._kept = kept
        self.told: list[dict[str, Any]] = []
        self.buffers: list[bytes] = []

    def add(self, run: Run, reading: DeferredReads, *, has_values: bool = True) -> None:
        """Tell of a run.

        Args:
            run: What it left.
            reading: Of its tensors.
            has_values: Whether its values are told; else the backward pass alone.
        """
        before = len(self._kept)
        values = self._values(run, reading) if has_values else []
        copies = [self._seen(copy) for copy in run.copies] if has_values else []
        gradients, written = self._gradients(run, reading)
        self.told.append(
            {
                "values": values,
                "copies": copies,
                "gradients": gradients,
                "written": written,
                "failure": run.failure and [run.failure[0], run.failure[1], run.failure[2][:_MESSAGE_CHARS]],
                "backward_failure": run.backward_failure
                and [run.backward_failure[0], run.backward_failure[1][:_MESSAGE_CHARS]],
                "lacking": run.lacking,
                "has_kept": len(self._kept) > before,
                "calls": run.calls,
                "left_out": run.left_out,
            }
        )

    def _gradients(self, run: Run, reading: DeferredReads) -> tuple[list[Any], list[Any]]:
        """Tell the gradients, and what became of those that were put in, where the backward pass wrote to them."""
        try:
            found = [[key, None if each is None else self._tensor(each, reading)] for key, each in run.gradients]
            arrays = [(position, put_in, reading.array(put_in.tensor)) for position, put_in in run.put_in.items()]
        except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
            failed_backward(run, error, self._framework)
            return [], []
        written = [(place, put_in, array) for place, put_in, array in arrays if array.tobytes() != put_in.elements]
        facts = self._framework.facts
        return found, [[place, self._seen(Seen(facts(put_in.tensor), array))] for place, put_in, array in written]

    def _values(self, run: Run, reading: DeferredReads) -> list[Any]:
        """Tell the values at the end of the run, up to the one that cannot be read."""
        values: list[Any] = []
        try:
            for value in run.values:
                values.append(self._value(value, reading))
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            run.failure = (len(values), type(error).__name__, f"its result cannot be read: {error}")
        return values

    def _value(self, value: Any, reading: DeferredReads) -> Any:
        if self._framework.is_tensor(value):
            return self._tensor(value, reading)
        if hasattr(value, "state_dict"):
            state = reading.state(value)
            return ["module", {name: self._value(each, reading) for name, each in state.items()}]
        return self._seen(Seen(None, value))

    def _tensor(self, tensor: Any, reading: DeferredReads) -> list[Any]:
        dtype, shape, requires_grad, is_leaf = self._framework.facts(tensor)
        return ["tensor", dtype, shape, requires_grad, is_leaf, self._where(reading.array(tensor))]

    def _seen(self, seen: Seen) -> Any:
        if seen.facts is not None:
            dtype, shape, requires_grad, is_leaf = seen.facts
            return ["tensor", dtype, shape, requires_grad, is_leaf, self._where(seen.array)]
        if isinstance(seen.array, np.ndarray):
            return ["array", seen.array.dtype.name, seen.array.shape, self._where(seen.array)]
        return _plain(seen.array)

    def _where(self, array: np.ndarray) -> int | list[Any]:
        data = array.tobytes()
        if len(data) <= DIGEST_ABOVE:
            self.buffers.append(data)
            return len(self.buffers) - 1
        number = len(self._kept)
        self._kept[number] = data
        return [hashlib.blake2b(data, digest_size=16).hexdigest(), number]


def _plain(value: Any) -> Any:
    """Return what a step gave as plain values: of a tuple its length, because its tensors are steps of their own."""
    if isinstance(value, tuple | list) and not all(isinstance(item, int) for item in value):
        return ["items", len(value)]
    try:
        return ["plain", plain_argument(tuple(value) if isinstance(value, list) else value)]
    except TypeError:
        return ["other", type(value).__name__]
