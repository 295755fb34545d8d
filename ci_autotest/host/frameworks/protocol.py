"""The interface between a host and the framework that it runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ci_autotest.errors import Unsupported, UnsupportedReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ci_autotest.program.ir import Argument, Step, TensorSpec


#: Details of a case whose graph mode fell back to eager mode.
NOT_COMPILED: Final = "compiled graph of this body: its compiler never called the body"
STEP_BY_STEP: Final = "compiled graph of this body: it ran the body step by step"


class LackingError(LookupError):
    """The framework lacks a feature: the case is unsupported, and nobody's error.

    Args:
        feature: The missing feature, a noun phrase that completes "it has no ...".
        reason: Why the case is unsupported.
    """

    def __init__(self, feature: str, reason: UnsupportedReason = UnsupportedReason.NO_COUNTERPART) -> None:
        super().__init__(feature)
        self.reason = reason

    @property
    def why(self) -> Unsupported:
        """Why the case is unsupported."""
        return Unsupported(self.reason, f"it has no {self}")


class Framework(Protocol):
    """Tensors and autograd of one framework. The framework is imported when the adapter is constructed.

    An adapter may have more members than those below:

    - ``strided(storage, spec)`` makes a leaf over the storage's elements with the layout of ``spec``.
    - ``shares(spec)`` says whether ``tensor`` makes a leaf that shares the memory of its array.
    - ``backward(program, values, weights, leaves)`` replaces ``gradients`` if the framework differentiates functions
      and not values. Then ``function`` must resolve our adapters, too.
    - ``graph(body, inputs, modules)`` compiles ``body(inputs, modules) -> outputs`` and returns ``run(inputs) ->
      outputs``. ``body`` executes the steps; it may be called while the graph is compiled and never when it runs. A
      body that cannot be one graph is a ``LackingError``. ``graph_has_backward`` says whether the outputs of a graph
      have gradients, and ``not_in_graphs`` names targets that no graph may contain.
    - ``begin_read(tensor)`` and ``end_read(tensor, memory)`` replace ``array`` if the framework computes in its own
      threads: the first returns memory that holds the elements once ``synchronize`` has returned, the second what
      ``array`` would return. ``polls`` says whether these threads look for work in a busy loop.
    - ``gathers`` says that the framework is one rank of a group, in which all ranks must read a value at the same time.
      ``placement(tensor)`` returns how a tensor lies on the ranks, in the words of ``program/distribution.py``.
    - ``devices()`` and ``has_member(target)`` tell ``doctor`` what can be used.
    - ``begin()``, ``around``, ``calls()`` and ``untested()`` belong to a framework that calls the user's functions in
      place of operators: they start a run, surround each step, count the calls, and say why the run tested none.

    Attributes:
        name: The framework's name, as users spell it.
        version: The framework's version.
        has_flags: Whether ``requires_grad`` and ``is_leaf`` exist and are compared.
    """

    name: str
    version: str
    has_flags: bool

    def libraries(self) -> dict[str, str]:
        """Return the versions of what the framework computes with, by name."""

    def tensor(self, array: np.ndarray, spec: TensorSpec) -> Any:
        """Return a leaf.

        Args:
            array: Elements in the shape of ``spec``, in C order; bfloat16 as its bits in uint16. The leaf may keep it.
            spec: Dtype, ``requires_grad``, and the symbol of the device.
        """

    def array(self, tensor: Any) -> np.ndarray:
        """Return the elements in C order, bfloat16 as bits in uint16, in memory that no later step overwrites."""

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor of the framework."""

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return the dtype's name without the framework's, the shape, ``requires_grad`` and ``is_leaf``."""

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names.

        Raises:
            LookupError: The framework has no such function.
        """

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant of the framework.

        Raises:
            LookupError: The framework has no such constant.
        """

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call under the step's modes and seed."""

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradient of the outputs, weighted, for each input; ``None`` for an input that has none."""

    def lacking(self, error: BaseException) -> str:
        """Return the missing feature that an error reports, such as a kernel for a dtype; empty for any other error.

        A step with a missing feature is unsupported. Any other error is the outcome of the case.
        """

    def synchronize(self) -> None:
        """Wait until everything is computed, so that an error surfaces at its own step."""
