"""The part of a case that a probe calls several times, with its inputs and the values that a probe may overwrite."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.backends.trace import overwritten
from ci_autotest.program.call_sequence import Part, placeholders, plain
from ci_autotest.program.ir import OUTPUT, Program, is_unpacking, output_refs, used_by

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt


def part_of(attempt: Attempt) -> Part:
    """Return the part of a case that a probe calls. The reference must have run the case forward and backward."""
    leaves = [index for index in placeholders(attempt.program) if attempt.trace.gradients.get(index) is not None]
    parameters = [
        key
        for key, gradient in attempt.trace.gradients.items()
        # A step reads an attribute of a module, but not one of a part of it.
        if isinstance(key, tuple) and gradient is not None and "." not in key[1]
    ]
    cotangents = {
        position: (contiguous_spec(weight), weight.contiguous()) for position, weight in attempt.cotangents.items()
    }
    program, sources = _laid_out(attempt)
    tensors = frozenset(
        index
        for index, value in enumerate(attempt.trace.values)
        if isinstance(value, torch.Tensor) and index >= len(program.setup)
    )
    return Part(program, sources, cotangents, leaves, parameters, tensors, _writable(attempt, tensors))


def _laid_out(attempt: Attempt) -> tuple[Program, dict[str, torch.Tensor]]:
    """Return a program and its data without expanded inputs, so that each element can be written to."""
    program, sources = attempt.program, attempt.sources
    expanded = {index: spec for index, spec in placeholders(program).items() if _is_expanded(spec.shape, spec.strides)}
    if not expanded:
        return program, sources
    body, start = list(program.body), len(program.setup)
    for index, spec in expanded.items():
        step = body[index - start]
        own = replace(plain(spec), requires_grad=spec.requires_grad, device=spec.device)
        body[index - start] = step._replace(args=(own,))
        data = sources[step.target].as_strided(spec.shape, spec.strides, spec.offset).contiguous()
        sources = {**sources, step.target: data}
    return program.with_body(body), sources


def _is_expanded(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    # Only then do several elements lie in one place.
    return any(size > 1 and not stride for size, stride in zip(shape, strides, strict=True))


def _writable(attempt: Attempt, tensors: frozenset[int]) -> frozenset[int]:
    """Return the values that only later steps of the body use and whose memory no other value shares."""
    program, trace = attempt.program, attempt.trace
    steps = program.steps
    # Outputs are compared, so that each call must keep its own.
    given = {ref.index for ref in output_refs(program)}
    used = used_by(step for step in steps if step.op != OUTPUT)
    calls = {index for index, step in program.calls if not is_unpacking(step)}
    wanted = sorted((tensors & used & calls) - given)
    if not wanted:
        return frozenset()
    values, written = trace.values, overwritten(trace)
    pointers = Counter(_memory(values[index]) for index in tensors)
    return frozenset(
        index
        for index in wanted
        if pointers[_memory(values[index])] == 1
        and values[index].layout is torch.strided
        and values[index].numel()
        and not _is_expanded(tuple(values[index].shape), values[index].stride())
        and index not in written
    )


def _memory(value: torch.Tensor) -> int:
    # A sparse tensor has several storages, and counts as memory of its own.
    return value.untyped_storage().data_ptr() if value.layout is torch.strided else id(value)
