"""The backward pass of a side that torch ran: from which outputs, with which gradients put in, to which values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.engine import gradients
from ci_autotest.backends.foreign import FOREIGN, pass_interrupt
from ci_autotest.errors import said
from ci_autotest.program.ir import (
    PLACEHOLDER,
    output_refs,
    ref_to,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module


def backward(program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
    """Run one backward pass over all outputs of a trace, into ``trace.gradients``.

    Outputs that require grad are found on each side by itself (rule 9); each side gets its own copy
    of the cotangents (rule 8). Gradients are taken for leaves, parameters and intermediates alike.
    """
    roots, weights = _roots(program, trace, cotangents)
    if not roots:
        return
    keys, inputs = _inputs(program, trace, roots)
    if not keys:
        return
    try:
        found = gradients(roots, weights, inputs)
    except FOREIGN as error:
        pass_interrupt(error)
        trace.backward_failure = f"{type(error).__name__}: {said(error)}"
        return
    trace.gradients = dict(zip(keys, found, strict=True))
    if trace.shown is not None:
        _forget_outputs(program, trace)


def _forget_outputs(program: Program, trace: Trace) -> None:
    """Keep the gradients of leaves and parameters of a body that was run as a whole.

    Of an output that is made into another one inside, as the cell state of an LSTM is, a whole shows no more than the
    gradient that was put in.
    """
    steps = program.steps
    trace.gradients = {
        key: gradient
        for key, gradient in trace.gradients.items()
        if isinstance(key, tuple) or steps[key].op == PLACEHOLDER
    }


def _roots(
    program: Program, trace: Trace, cotangents: Mapping[int, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    roots: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []
    given = trace.cotangents = {}
    values, refs = trace.values, output_refs(program)
    for position, source in cotangents.items():
        value = values[refs[position].index] if position < len(refs) else None
        if not isinstance(value, _Tensor) or not value.requires_grad or value.shape != source.shape:
            continue
        weight = source.clone() if value.is_cpu else source.to(value.device)
        given[position] = weight
        roots.append(value)
        weights.append(weight if weight.dtype is value.dtype else weight.to(value.dtype))
    return roots, weights


def _inputs(program: Program, trace: Trace, roots: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Return what gradients are taken for: every tensor that requires grad, once, and every module's parameters."""
    keys: list[Any] = []
    inputs: list[Any] = []
    edges, values, copies = trace.edges, trace.values, trace.copies
    last = len(values) - 1
    # The gradient of an output that nothing else uses is the cotangent itself; a leaf's is compared like any other's.
    is_cotangent = len(roots) == 1 and program.body[-1].args == (ref_to(last - 1),) and not roots[0].is_leaf
    seen = {id(roots[0])} if is_cotangent else set()
    for index, facts in enumerate(trace.facts):
        value = values[index]
        if facts is None:
            if isinstance(value, _Module):
                _add_parameters(index, value, seen, (keys, inputs))
        elif edges:
            if edges[index] is not None and not (id(value) in seen and index == last - 1):
                keys.append(index)
                inputs.append(edges[index])
        elif index in copies:
            if copies[index][1] is not None:
                keys.append(index)
                inputs.append(copies[index][1])
        elif value.requires_grad and id(value) not in seen:
            seen.add(id(value))
            keys.append(index)
            inputs.append(value)
    return keys, inputs


def _add_parameters(index: int, module: torch.nn.Module, seen: set[int], found: tuple[list[Any], list[Any]]) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in seen:
            seen.add(id(parameter))
            found[0].append((index, name))
            found[1].append(parameter)
