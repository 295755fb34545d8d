"""A program that writes numbers to a host's free memory and releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step

if TYPE_CHECKING:
    from collections.abc import Sequence


def filling_program(blocks: Sequence[tuple[torch.Tensor, int]]) -> tuple[Program, dict[str, torch.Tensor]]:
    """Return a program and its inputs; the results are blocks of memory with numbers in them, kept until its end.

    Args:
        blocks: Tensors of one dtype with half of each number, and how many blocks of that size to make.
    """
    given = [*(tensor for tensor, _ in blocks), torch.zeros(1)]
    steps = [Step(PLACEHOLDER, f"r{i}", (contiguous_spec(tensor),), name=f"r{i}") for i, tensor in enumerate(given)]
    adds = [
        Step(CALL_FUNCTION, "torch.add", (Ref(i), Ref(i)), name="residue")
        for i, (_, count) in enumerate(blocks)
        for _ in range(count)
    ]
    outputs = tuple(Ref(len(steps) + i) for i in range(len(adds)))
    program = Program((), (*steps, *adds, Step(OUTPUT, "output", outputs, name="output")))
    return program, {f"r{i}": tensor for i, tensor in enumerate(given)}
