"""The backend ``export``: a function of the user's makes a callable of each exported body, and that is run.

``torch.export`` exports the body, so that any exporter or runtime is one row: the function gets the
``ExportedProgram``, or the module and its example inputs. What torch runs in its place is seen as for a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from ci_autotest.backends.delegation import DelegationWatch
from ci_autotest.backends.exported_body import ExportingBackend, called_operators, export_key, quiet
from ci_autotest.backends.sameness import same_bits
from ci_autotest.backends.torch_compile import lines_of
from ci_autotest.backends.trace import Failure
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import UnavailableError, UnsupportedError, UnsupportedReason, error_text
from ci_autotest.program.codegen import function_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ci_autotest.backends.exported_body import ExportedBody
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

#: Sizes that an exporter always takes for constants.
_SPECIAL_SIZES: Final = frozenset({0, 1})
#: Characters of an error that a report shows.
_SHOWN: Final = 300


class ExportBackend(ExportingBackend):
    """Export each body, and run what the user's function makes of it.

    Args:
        function: Takes an ``ExportedProgram``, or a module and a tuple of its inputs, and returns a callable that takes
            tensors and returns one or several.
        path: Its dotted path, for messages.
        takes: What the function takes.
        is_dynamic: Whether bodies are exported for all sizes, and a callable is used again for others.
        delegated: As for ``CompileBackend``.
        device: ``cpu``.

    Raises:
        UnavailableError: The device is not ``cpu``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        path: str,
        takes: Literal["program", "module"] = "program",
        *,
        is_dynamic: bool = False,
        delegated: Callable[..., Any] | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        if device != "cpu":
            message = f"a candidate of backend 'export' asks for device '{device}': it runs on cpu. Write device: cpu."
            raise UnavailableError(message)
        self._function, self._path, self._takes = function, path, takes
        self._is_dynamic, self._delegated = is_dynamic, delegated

    def begin_window(self) -> None:
        """Make callables for several sizes anew: which size was the first must not depend on the number of workers."""
        if self._is_dynamic:
            self.forget_bodies()

    def _outputs(
        self, program: Program, body: ExportedBody, bound: Sequence[Any], trace: Trace, first: int
    ) -> tuple[list[torch.Tensor], tuple[bool, ...]]:
        tensors = tuple(value.detach().clone() for value in bound if isinstance(value, torch.Tensor))
        key = _key_of(program, bound) if self._is_dynamic else export_key(program, bound)

        def make() -> tuple[Callable[..., Any], Any]:
            graph = self._exported(body, tensors, called_operators(program))
            return self._compiled(body, tensors, graph), graph

        function, graph = self._made(key, first, make, lambda made: _fits(made[1], tensors))
        ran = _computed(graph)
        watch = DelegationWatch(self._path, lines_of(program), self._delegated)
        given = [tensor.clone() for tensor in tensors]
        watch.capture_run(body, [tensor.clone() for tensor in tensors])
        try:
            with torch.no_grad():
                returned = watch.watched(function)(*given)
        except FOREIGN as error:
            pass_interrupt(error)
            if isinstance(error, NotImplementedError):
                message = f"{self._path}: {_reason(error)}"
                raise UnsupportedError(message, reason=UnsupportedReason.NOT_IMPLEMENTED) from error
            trace.failure = Failure(first, type(error).__name__, error_text(error))
            return [], ran
        outputs = _tensors_of(returned)
        wrong = _contract_error(outputs, len(ran), tensors, given)
        if wrong:
            trace.failure = Failure(first, "ContractError", f"{self._path}: {wrong}")
            return [], ran
        trace.is_kept = key is not None
        trace.delegation = watch.found(program)
        return [output.detach().clone() for output in outputs], ran

    def _exported(self, body: ExportedBody, tensors: Sequence[torch.Tensor], called: str) -> Any:
        sizes = tuple(dict.fromkeys(range(tensor.dim()), torch.export.Dim.AUTO) for tensor in tensors)
        shapes = (sizes,) if self._is_dynamic else None
        try:
            with quiet("torch"), torch.no_grad():
                program = torch.export.export(body, tuple(tensors), strict=False, dynamic_shapes=shapes)
        except FOREIGN as error:
            pass_interrupt(error)
            message = f"torch.export: {_reason(error)} (the body calls {called})"
            raise UnsupportedError(message) from error
        if draws := _drawing(program):
            message = f"the exported graph draws random numbers ({draws}), which differ from torch's"
            raise UnsupportedError(message)
        if not any(_computed(program)):
            message = f"torch.export has made constants of the body ({called}), so that nothing of it is left to run"
            raise UnsupportedError(message, reason=UnsupportedReason.CONSTANT)
        return program

    def _compiled(self, body: ExportedBody, tensors: Sequence[torch.Tensor], program: Any) -> Callable[..., Any]:
        """Return what the user's function makes of a body.

        Raises:
            UnsupportedError: It refuses the body, or returns nothing that can be called.
        """
        given = (program,) if self._takes == "program" else (body, tuple(tensor.clone() for tensor in tensors))
        try:
            with quiet("torch"):
                function = self._function(*given)
        except FOREIGN as error:
            pass_interrupt(error)
            message = f"{self._path}: {_reason(error)}"
            raise UnsupportedError(message) from error
        if not callable(function):
            message = f"{self._path} returned {type(function).__name__}, which cannot be called"
            raise UnsupportedError(message)
        return function  # type: ignore[no-any-return]


def _key_of(program: Program, bound: Sequence[Any]) -> Hashable:
    """Return what a callable for several sizes holds for: the body's text, dtypes, and which sizes are special."""
    if not all(isinstance(each, torch.Tensor) for each in bound):
        return None  # The exporter takes other values, and the weights of modules, for constants.
    kinds = tuple(
        (str(each.dtype), tuple(size if size in _SPECIAL_SIZES else -1 for size in each.shape)) for each in bound
    )
    return function_text(program), kinds


def _fits(program: Any, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an exported program holds for tensors: each size that the exporter took for a constant is the same."""
    names = program.graph_signature.user_inputs
    inputs = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return all(
        type(size) is not int or size == given
        for name, tensor in zip(names, tensors, strict=True)
        for size, given in zip(inputs[name].meta["val"].shape, tensor.shape, strict=True)
    )


def _computed(program: Any) -> tuple[bool, ...]:
    """Return for each output whether it is an input, or the result of a call."""
    inputs = set(program.graph_signature.user_inputs)
    (returned,) = next(node for node in program.graph.nodes if node.op == "output").args
    count = len(program.graph_signature.user_outputs)
    return tuple(
        isinstance(node, torch.fx.Node) and (node.op == "call_function" or node.name in inputs)
        for node in returned[len(returned) - count :]
    )


def _drawing(program: Any) -> str:
    """Return the first operator of an exported program that draws random numbers; empty if none does."""
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return str(node.target)
    return ""


def _tensors_of(returned: Any) -> list[Any]:
    if isinstance(returned, dict):
        return list(returned.values())
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def _contract_error(
    outputs: Sequence[Any], count: int, inputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> str:
    """Return how a callable breaks its contract; empty if it does not."""
    if len(outputs) != count:
        return f"the callable returns {len(outputs)} values, the body {count}"
    others = [type(value).__name__ for value in outputs if not isinstance(value, torch.Tensor)]
    if others:
        return f"the callable returns {others[0]} in place of a tensor"
    changed = [at for at, (one, now) in enumerate(zip(inputs, given, strict=True)) if not same_bits(now, one)]
    return f"the callable changes its input {changed[0]}" if changed else ""


def _reason(error: BaseException) -> str:
    """Return an error in one line."""
    first = next((line.strip() for line in error_text(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}{f': {first[:_SHOWN]}' if first else ''}"
