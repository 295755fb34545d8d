"""Read the tensors of a run together and wait once, for frameworks that compute in their own threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework


class DeferredReads:
    """Hold the elements of tensors that were asked for.

    Args:
        framework: Whose tensors they are.

    Attributes:
        size_bytes: Of what was asked for.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._ask = getattr(framework, "ask", framework.array)
        # With the tensor and the module themselves, so that their identity is nobody else's.
        self._asked: dict[int, tuple[Any, np.ndarray]] = {}
        self._states: dict[int, tuple[Any, Mapping[str, Any]]] = {}
        self.size_bytes = 0

    def ask(self, value: Any) -> None:
        """Ask for the elements of a tensor or of a module's state; of what cannot be read, reading it will tell."""
        key = id(value)
        if key in self._asked:
            return
        try:
            if self._framework.is_tensor(value):
                array = self._ask(value)
                self._asked[key] = value, array
                self.size_bytes += array.nbytes
            elif hasattr(value, "state_dict"):
                for each in self.state(value).values():
                    self.ask(each)
        except Exception:  # noqa: BLE001 - foreign tensors: who reads it by itself is told
            return

    def hold(self, tensor: Any, memory: np.ndarray) -> None:
        """Take a tensor's elements from memory that holds them already; what was asked for stays what it is."""
        if id(tensor) not in self._asked:
            self._asked[id(tensor)] = tensor, memory
            self.size_bytes += memory.nbytes

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's elements; of what was asked for, only after the framework was waited for."""
        asked = self._asked.get(id(tensor))
        if asked is None:
            return self._framework.array(tensor)
        told = getattr(self._framework, "told", None)
        return asked[1] if told is None else told(*asked)

    def state(self, module: Any) -> Mapping[str, Any]:
        """Return a module's state by name, as it was when it was first asked for."""
        found = self._states.get(id(module))
        if found is None:
            found = self._states[id(module)] = module, dict(module.state_dict())
        return found[1]

    def forget(self) -> None:
        """Let go of what was asked for, because it did not come: each tensor is then read by itself."""
        self._asked.clear()
