"""Replace a step by an input that holds the reference's value, so that the steps before it can be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.alignment.single_step import Live, pruned, source_of
from ci_autotest.errors import ProgramError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, PLACEHOLDER, Program

if TYPE_CHECKING:
    from ci_autotest.backends.protocol import Backend

_KEY: Final = "inlined"


def inlined(live: Live, index: int, reference: Backend) -> Live:
    """Return the program with one step replaced by an input, and without the steps that nothing uses any more.

    Args:
        live: The program.
        index: A call of the body that gives a tensor.
        reference: Computes the value, as it was at the step.

    Raises:
        ProgramError: The step returns no tensor.
    """
    program = live.program
    at = index - len(program.setup)
    step = program.body[at] if 0 <= at < len(program.body) else None
    if step is None or step.op not in {CALL_FUNCTION, CALL_METHOD}:
        message = f"step {index} is no call of the body and cannot be replaced by an input."
        raise ProgramError(message)
    before = reference.run(Program(program.setup, program.body[: at + 1]), live.sources)
    value = before.values[index] if before.failure is None and len(before.values) > index else None
    if not isinstance(value, torch.Tensor):
        message = f"step {index}, {step.target}, returns no tensor and cannot be replaced by an input."
        raise ProgramError(message)
    key = f"{_KEY}{sum(name.startswith(_KEY) for name in live.sources)}"
    source, spec = source_of(value, requires_grad=value.requires_grad)
    placed = step._replace(op=PLACEHOLDER, target=key, args=(spec,), kwargs=(), modes=(), seed=None)
    body = (*program.body[:at], placed, *program.body[at + 1 :])
    return pruned(Live(Program(program.setup, body), {**live.sources, key: source}, live.cotangents))
