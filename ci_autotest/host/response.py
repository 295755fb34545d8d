"""The response of a host: runs as plain values and buffers, which ``backends/framework/response.py`` decodes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.backward import record_backward_error
from ci_autotest.host.trace import Snapshot
from ci_autotest.program.json_values import plain_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import RunTrace


#: Bytes above which only a tensor's digest is sent. The worker fetches the elements if the digest differs from its own.
DIGEST_ABOVE: Final = 16_384
_MESSAGE_CHARS: Final = 4000


class ResponseEncoder:
    """Encoder of the results of several jobs.

    A tensor is ``["tensor", dtype, shape, requires_grad, is_leaf, where]``. ``where`` is the index of a buffer, or a
    digest with the number under which the host keeps the elements.

    Args:
        framework: The framework of the runs.
        kept: Receives the elements that are sent as a digest, by number.

    Attributes:
        results: Plain values of each job.
        buffers: Elements of the tensors of all jobs.
    """

    def __init__(self, framework: Framework, kept: dict[int, bytes]) -> None:
        self._framework = framework
        self._kept = kept
        self.results: list[dict[str, Any]] = []
        self.buffers: list[bytes] = []

    def add(self, run: RunTrace, reading: DeferredReads, *, has_values: bool = True) -> None:
        """Encode a run.

        Args:
            run: The run.
            reading: Reads of its tensors.
            has_values: Whether its values are included, or its backward pass only.
        """
        before = len(self._kept)  # tells the worker whether it may have to fetch elements of this run
        values = self._values(run, reading) if has_values else []
        copies = [self._snapshot(copy) for copy in run.copies] if has_values else []
        gradients, written = self._gradients(run, reading)
        self.results.append(
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
                "placements": self._placements(run) if has_values else {},
            }
        )

    def _placements(self, run: RunTrace) -> dict[int, str]:
        """Return how each tensor lies on the ranks of a group, by index."""
        placement = getattr(self._framework, "placement", None)
        if placement is None:
            return {}
        tensors = ((index, value) for index, value in enumerate(run.values) if self._framework.is_tensor(value))
        return {index: text for index, value in tensors if (text := placement(value))}

    def _gradients(self, run: RunTrace, reading: DeferredReads) -> tuple[list[Any], list[Any]]:
        """Encode the gradients, and the cotangents that the backward pass overwrote, with their new elements."""
        try:
            found = [[key, None if each is None else self._tensor(each, reading)] for key, each in run.gradients]
            arrays = [(position, given, reading.array(given.tensor)) for position, given in run.cotangents.items()]
        except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
            record_backward_error(run, error, self._framework)
            return [], []
        written = [(place, given, array) for place, given, array in arrays if array.tobytes() != given.elements]
        facts = self._framework.facts
        return found, [[place, self._snapshot(Snapshot(facts(given.tensor), array))] for place, given, array in written]

    def _values(self, run: RunTrace, reading: DeferredReads) -> list[Any]:
        """Encode the values at the end of the run, up to the first that cannot be read."""
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
        return self._snapshot(Snapshot(None, value))

    def _tensor(self, tensor: Any, reading: DeferredReads) -> list[Any]:
        dtype, shape, requires_grad, is_leaf = self._framework.facts(tensor)
        return ["tensor", dtype, shape, requires_grad, is_leaf, self._where(reading.array(tensor))]

    def _snapshot(self, copy: Snapshot) -> Any:
        if copy.facts is not None:
            dtype, shape, requires_grad, is_leaf = copy.facts
            return ["tensor", dtype, shape, requires_grad, is_leaf, self._where(copy.array)]
        if isinstance(copy.array, np.ndarray):
            return ["array", copy.array.dtype.name, copy.array.shape, self._where(copy.array)]
        return _plain(copy.array)

    def _where(self, array: np.ndarray) -> int | list[Any]:
        data = array.tobytes()
        if len(data) <= DIGEST_ABOVE:
            self.buffers.append(data)
            return len(self.buffers) - 1
        number = len(self._kept)
        self._kept[number] = data
        return [hashlib.blake2b(data, digest_size=16).hexdigest(), number]


def _plain(value: Any) -> Any:
    """Return a value as plain values. A tuple is sent as its length, because its tensors are steps of their own."""
    if isinstance(value, tuple | list) and not all(isinstance(item, int) for item in value):
        return ["items", len(value)]
    try:
        return ["plain", plain_result(tuple(value) if isinstance(value, list) else value)]
    except TypeError:
        return ["other", type(value).__name__]


# Reads of a run's tensors that wait once for all of them, for frameworks that compute in their own threads.


class DeferredReads:
    """The elements of tensors that are being read.

    Attributes:
        size_bytes: Size of all elements.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._begin_read = getattr(framework, "begin_read", framework.array)
        # The tensor and the module are kept too: while they live, no other object can get their ``id``.
        self._reads: dict[int, tuple[Any, np.ndarray]] = {}
        self._states: dict[int, tuple[Any, Mapping[str, Any]]] = {}
        self.size_bytes = 0

    def begin(self, value: Any) -> None:
        """Begin to read a tensor or the state of a module; an error is left to ``array``, which reads again."""
        key = id(value)
        # One tensor may be the value of several steps.
        if key in self._reads:
            return
        try:
            if self._framework.is_tensor(value):
                array = self._begin_read(value)
                self._reads[key] = value, array
                self.size_bytes += array.nbytes
            elif hasattr(value, "state_dict"):
                for each in self.state(value).values():
                    self.begin(each)
        except Exception:  # noqa: BLE001 - foreign tensors: ``array`` raises the same error to its caller
            return

    def provide(self, tensor: Any, memory: np.ndarray) -> None:
        """Use memory that already holds a tensor's elements, unless its read has begun."""
        if id(tensor) not in self._reads:
            self._reads[id(tensor)] = tensor, memory
            self.size_bytes += memory.nbytes

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's elements. If its read has begun, the framework must have been waited for."""
        read = self._reads.get(id(tensor))
        if read is None:
            return self._framework.array(tensor)
        end_read = getattr(self._framework, "end_read", None)
        return read[1] if end_read is None else end_read(*read)

    def state(self, module: Any) -> Mapping[str, Any]:
        """Return a module's state by name, as it was at the first call."""
        found = self._states.get(id(module))
        if found is None:
            found = self._states[id(module)] = module, dict(module.state_dict())
        return found[1]

    def forget(self) -> None:
        """Drop the reads that have begun, because waiting for them failed: each tensor is then read by itself."""
        self._reads.clear()
