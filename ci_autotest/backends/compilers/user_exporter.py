"""An exporter or runtime of the user's: a function that makes a callable of each exported body."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from ci_autotest.backends.compilers.export import Exporter, Model
from ci_autotest.backends.compilers.exported_body import one_line, quiet
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import UnsupportedError, UnsupportedReason
from ci_autotest.program.codegen import function_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ci_autotest.backends.compilers.exported_body import ExportedBody
    from ci_autotest.program.ir import Program

#: Sizes that an exporter always takes for constants.
_SPECIAL_SIZES: Final = frozenset({0, 1})


class UserExporter(Exporter):
    """``torch.export`` exports the body, and a function makes a callable of that.

    Args:
        function: Takes an ``ExportedProgram``, or a module and a tuple of its inputs, and returns a callable that takes
            tensors and returns one or several.
        path: Its dotted path, for messages.
        takes: What the function takes.
        is_dynamic: Whether bodies are exported for all sizes, and a callable is used again for others.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        path: str,
        takes: Literal["program", "module"] = "program",
        *,
        is_dynamic: bool = False,
    ) -> None:
        self._function, self.name, self._takes = function, path, takes
        self.is_dynamic = is_dynamic

    def key(self, program: Program, bound: Sequence[Any]) -> Hashable:
        """Return what a callable holds for; one for several sizes does for more."""
        return _key_of(program, bound) if self.is_dynamic else super().key(program, bound)

    def model(self, body: ExportedBody, tensors: Sequence[torch.Tensor], called: str) -> Model:
        """Return what the user's function makes of a body."""
        program = self._exported(body, tensors, called)
        return Model(self._compiled(body, tensors, program), _computed(program), partial(_fits, program))

    def _exported(self, body: ExportedBody, tensors: Sequence[torch.Tensor], called: str) -> Any:
        sizes = tuple(dict.fromkeys(range(tensor.dim()), torch.export.Dim.AUTO) for tensor in tensors)
        shapes = (sizes,) if self.is_dynamic else None
        try:
            with quiet("torch"), torch.no_grad():
                program = torch.export.export(body, tuple(tensors), strict=False, dynamic_shapes=shapes)
        except FOREIGN as error:
            pass_interrupt(error)
            message = f"torch.export: {one_line(error)} (the body calls {called})"
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
            message = f"{self.name}: {one_line(error)}"
            raise UnsupportedError(message) from error
        if not callable(function):
            message = f"{self.name} returned {type(function).__name__}, which cannot be called"
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
