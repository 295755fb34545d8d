"""A program that fills a host's free memory with a number and releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ci_autotest.program.ir import (
    CALL_FUNCTION,
    OUTPUT,
    PLACEHOLDER,
    Program,
    Ref,
    Step,
    TensorSpec,
    contiguous_strides,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def filling_program(blocks: Sequence[tuple[torch.Tensor, int]]) -> tuple[Program, dict[str, torch.Tensor]]:
    """Return a program whose results are blocks of memory with numbers in them, held until its end, and its inputs.

    Args:
        blocks: Tensors of one dtype that hold half the number, each with how many blocks of its size are made.
    """
    given = [*(tensor for tensor, _ in blocks), torch.zeros(1)]
    steps = [Step(PLACEHOLDER, f"r{i}", (_spec(tensor),), name=f"r{i}") for i, tensor in enumerate(given)]
    adds = [
        Step(CALL_FUNCTION, "torch.add", (Ref(i), Ref(i)), name="residue")
        for i, (_, count) in enumerate(blocks)
        for _ in range(count)
    ]
    outputs = tuple(Ref(len(steps) + i) for i in range(len(adds)))
    program = Program((), (*steps, *adds, Step(OUTPUT, "output", outputs, name="output")))
    return program, {f"r{i}": tensor for i, tensor in enumerate(given)}


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(tensor.shape)
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), shape, contiguous_strides(shape), 0, tensor.numel())
