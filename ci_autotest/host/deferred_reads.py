"""Reads of a run's tensors that wait once for all of them, for frameworks that compute in their own threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework


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
