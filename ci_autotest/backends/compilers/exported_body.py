"""A body as one module that exporters take, and what no model can contain."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import UnsupportedError, error_text
from ci_autotest.program.backward_passes import PASSES
from ci_autotest.program.ir import HOOK, REGISTERS
from ci_autotest.program.refusal import refused_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.program.ir import Program

#: Characters of an error that a report shows.
_SHOWN: Final = 300
#: Steps that a model cannot contain: reads of a tensor's elements while the body is exported, and gradients.
_READS: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "item", "numpy", "tolist", "retain_grad", *PASSES,
})  # fmt: skip


def called_operators(program: Program) -> str:
    """Return the operators that a body calls, in case the exporter's reason names none."""
    return ", ".join(dict.fromkeys(step_operator(step, program.steps) for _, step in program.calls))


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Silence warnings, and a logger of an exporter: its errors say what it refuses."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def refuse_unexportable(program: Program) -> None:
    """Refuse a body that reads elements, computes gradients or has hooks: the model would contain torch's results.

    Raises:
        UnsupportedError: The body has such a step.
    """
    for step in program.body:
        name = str(step.args[1]) if step.target == "builtins.getattr" else step.target
        if step.target in _READS or name in {"grad", "item", "numpy"}:
            message = f"a body that reads elements or gradients cannot be exported: {name}"
            raise UnsupportedError(message)
        if {*HOOK, *REGISTERS} & set(step.modes):
            message = "a model cannot contain hooks"
            raise UnsupportedError(message)
        if refused_as(step) is not None:
            message = "a model cannot contain a step that is expected to be refused"
            raise UnsupportedError(message)


class ExportedBody(torch.nn.Module):
    """A body and its modules as one module, so that the exporter treats their parameters as the model's.

    Args:
        function: The body as a function of its modules and tensors.
        arguments: Its arguments in order; ``forward`` replaces the tensors by its own.
        kept: Positions of the outputs that are tensors.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], kept: Sequence[int]) -> None:
        super().__init__()
        self._function = function
        self._arguments = [None if isinstance(value, torch.Tensor) else value for value in arguments]
        self._places = [i for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        self._kept = kept
        modules = [value for value in arguments if isinstance(value, torch.nn.Module)]
        for number, module in enumerate(modules):
            self.add_module(f"module_{number}", module)
        # The exporter only looks at the outermost module. Without a module in training, a body is exported for
        # inference.
        self.training = any(module.training for module in modules)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the body's outputs that are tensors."""
        arguments = list(self._arguments)
        for place, tensor in zip(self._places, tensors, strict=True):
            arguments[place] = tensor
        outputs = self._function(*arguments)
        return tuple(outputs[i] for i in self._kept)


def one_line(error: BaseException) -> str:
    """Return an error of an exporter or a runtime in one line."""
    first = next((line.strip() for line in error_text(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}{f': {first[:_SHOWN]}' if first else ''}"
