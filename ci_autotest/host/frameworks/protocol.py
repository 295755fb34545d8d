"""What a host asks of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ci_autotest.errors import Unsupported, UnsupportedReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ci_autotest.program.ir import Argument, Step, TensorSpec


#: What is said of a graph that is none.
NOT_COMPILED: Final = "graph that is made of the body: nothing was compiled"
STEP_BY_STEP: Final = "graph of this body: it was run step by step"


class LackingError(LookupError):
    """Say what a framework has not: a step that asks for it is unsupported, and nobody's error.

    Args:
        what: It has not, for reading.
        reason: Why the case is unsupported.
    """

    def __init__(self, what: str, reason: UnsupportedReason = UnsupportedReason.NO_COUNTERPART) -> None:
        super().__init__(what)
        self.reason = reason

    @property
    def why(self) -> Unsupported:
        """Why the case is unsupported."""
        return Unsupported(self.reason, f"it has no {self}")


class Framework(Protocol):
    """Tensors and autograd of one framework. The framework is imported when the adapter is made.

    An adapter may also have ``strided(storage, spec)``, which makes a leaf in the layout of ``spec`` of the storage's
    elements; ``backward(program, values, weights, leaves)`` in place of ``gradients``, where a framework differentiates
    functions and not values: it runs adapters of arguments and results by itself, from ``function``; and
    ``graph(body, inputs, modules)``, which compiles ``body(inputs, modules) -> outputs`` into one graph and returns the
    function ``run(inputs) -> outputs`` that runs it. ``body`` carries out the steps on what it is given; it is entered
    while the graph is made and never when it runs. What cannot be one graph is a ``LackingError``.
    ``graph_has_backward`` says whether such outputs have gradients, ``not_in_graphs`` what cannot be in one. Of a
    framework that computes in threads of its own, ``ask(tensor)`` returns memory that has a copy of the elements
    once ``synchronize`` has waited, and ``told(tensor, memory)`` what ``array`` would; ``polls`` says whether those
    threads look for work all the time. ``shares(spec)`` says whether ``tensor`` makes a leaf that is in the very
    memory of its array. ``devices()`` and ``has_member(target)`` tell ``doctor`` what can be used. Of one that
    answers operators by functions of the user's, ``begin()`` begins a run, ``around`` is entered for each step,
    ``calls()`` says which were called how often, and ``untested()`` why a run says nothing of them.

    Attributes:
        name: As users spell it.
        version: Of the framework.
        has_flags: Whether ``requires_grad`` and ``is_leaf`` exist, and are to be compared.
        shows_steps: Whether the value of every step can be seen.
    """

    name: str
    version: str
    has_flags: bool
    shows_steps: bool

    def libraries(self) -> dict[str, str]:
        """Return the versions of what the framework computes with, by name."""

    def tensor(self, array: np.ndarray, spec: TensorSpec) -> Any:
        """Return a leaf.

        Args:
            array: Elements in the shape of ``spec``, in C order, the callee's own; bfloat16 as its bits in uint16.
            spec: Dtype, whether it requires grad, and the symbol of its device.
        """

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's elements in C order, bfloat16 as bits in uint16, in memory that no later step changes."""

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor of the framework."""

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return the dtype's name without framework, the shape, ``requires_grad`` and ``is_leaf``."""

    def function(self, target: str) -> Callable[..., Any]:
        """Return what a target names.

        Raises:
            LookupError: The framework has no such thing.
        """

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant of the framework.

        Raises:
            LookupError: The framework has no such thing.
        """

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call under the step's modes and seed."""

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradient of ``outputs``, weighted by ``weights``, for each of ``inputs``, ``None`` where none."""

    def lacking(self, error: BaseException) -> str:
        """Return what an error says that the framework has not (a kernel of a dtype, an argument), else nothing.

        A step that raises it is unsupported; any other error is the outcome of the case.
        """

    def synchronize(self) -> None:
        """Wait until what was asked for is computed, so that an error is told at its step."""
