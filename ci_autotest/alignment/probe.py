"""Probes: a case's body called several times, with other values in between.

A probe uses no slot of the test and changes no draw, because its values are derived from the case's own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.input_copies import contiguous_spec, laid_out
from ci_autotest.backends.protocol import each_step
from ci_autotest.backends.trace import Attempt, Trace, overwritten
from ci_autotest.program.call_probe import SERIES_CALLS, SETS, probe, rewritten, series
from ci_autotest.program.call_sequence import SequencePart, is_repeatable, plain
from ci_autotest.program.edit import keeping, replaced, used_by
from ci_autotest.program.expectations import expected_input, without_expectations
from ci_autotest.program.ir import EXPECT, OUTPUT, Program
from ci_autotest.program.targets import is_overload
from ci_autotest.values.dtypes import FLOAT8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.values.probes import NoProbe

#: Most elements of all values of a case that is probed, so that the calls stay cheap.
_ELEMENTS_AT_MOST: Final = 1 << 15
_SCALE: Final = 0.75
_FLOAT8: Final = frozenset(getattr(torch, name) for name in FLOAT8)
#: Sets of values of a probe in addition to the case's own.
_OTHERS: Final = 2


def probe_of(
    attempt: Attempt,
    reference: Backend,
    enter: Callable[[int], None],
    *,
    of_series: bool = False,
    is_whole: bool = True,
    has_backward: bool = True,
) -> Attempt | NoProbe:
    """Return the probe of a case as an attempt that the reference has run, or why there is none.

    Args:
        attempt: Accepted, with the reference's gradients.
        reference: Runs the probe. Values that it refuses are not used.
        enter: Called with the index of each step before the reference enters it.
        of_series: Whether it is a series of calls instead of a sequence.
        is_whole: Whether the reference runs all of a series, and each call has a backward pass of its own.
        has_backward: Whether the calls have a backward pass. If not, only their values are compared.
    """
    obstacle = probe_obstacle(attempt)
    if obstacle is not None:
        return obstacle
    attempt = _without_expectations(attempt)
    part = part_of(attempt)
    if not has_backward:
        part = part._replace(cotangents={}, leaves=())
    # The reference may refuse mixed values, so that milder changes follow.
    changes: tuple[tuple[Callable[[torch.Tensor], tuple[torch.Tensor, ...]], bool], ...]
    changes = ((_mixed, True), (_scaled, True), (_mixed, False))
    if any(is_overload(step.target) for step in part.program.steps):
        changes = ((_scaled, True),)  # A kernel that is called directly may not check indices in another order.
    for change, with_parameters in changes:
        changed = _changed(part, change)
        with each_step(reference, enter):
            if of_series:
                program, sources, trace = _series(
                    part, changed, reference, with_parameters=with_parameters, is_whole=is_whole
                )
            else:
                program, sources = probe(part, changed, with_parameters=with_parameters)
                trace = reference.run(program, sources, copied=rewritten(program))
        if trace.failure is None and _is_readable(trace):
            return Attempt(program, trace, sources, {}, [], attempt.profile, None, is_probe=True)
    return "same_values"


def other_values(attempt: Attempt) -> Iterator[dict[str, Any]]:
    """Yield sources of a case with other values in the same places, the most different first."""
    steps = attempt.program.steps
    for change in (_mixed, _scaled):
        changed = {
            steps[index].target: others[0]
            for index, others in _changed(part_of(attempt), change).items()
            if attempt.program.inputs[index].is_contiguous
        }
        if changed:
            yield {**attempt.sources, **changed}


def is_telling(attempt: Attempt) -> bool:
    """Whether other input values are likely to give another result, and the reference's gradients are not all zero."""
    return _has_other_values(part_of(_without_expectations(attempt))) and _has_slope(attempt)


def probe_obstacle(attempt: Attempt) -> NoProbe | None:
    """Return why the calls of a case cannot be made again; ``None`` if they can."""
    if not is_repeatable(attempt.program):
        return "not_repeatable"
    elements = sum(value.numel() for value in attempt.trace.values if isinstance(value, torch.Tensor))
    if elements > _ELEMENTS_AT_MOST:
        return "too_large"
    return None if elements else "empty"  # A kernel cannot remember empty tensors.


def _without_expectations(attempt: Attempt) -> Attempt:
    """Return a case without what it expects of its values, because the calls of a probe have others."""
    program, trace = attempt.program, attempt.trace
    held = {i for i, step in enumerate(program.steps) if step.target == EXPECT}
    if not held:
        return attempt
    held |= {index for i in held if (index := expected_input(program.steps, i)) is not None}
    plain, indices = keeping(without_expectations(program), set(range(len(program.steps))) - held)
    found = Trace()
    found.values, found.facts = [trace.values[i] for i in indices], [trace.facts[i] for i in indices]
    found.gradients = {
        indices[key] if isinstance(key, int) else (indices[key[0]], key[1]): gradient
        for key, gradient in trace.gradients.items()
        if (key if isinstance(key, int) else key[0]) in indices
    }
    return attempt._replace(program=plain, trace=found)


def _series(
    part: SequencePart,
    changed: Mapping[int, tuple[torch.Tensor, torch.Tensor]],
    reference: Backend,
    *,
    with_parameters: bool,
    is_whole: bool,
) -> tuple[Program, dict[str, Any], Trace]:
    """Return a series of calls with the reference's trace of it."""
    if is_whole:
        program, sources, *_ = series(part, changed, with_parameters=with_parameters, is_joint=False)
        return program, sources, reference.run(program, sources, copied=rewritten(program))
    whole, short = (series(part, changed, calls, with_parameters=with_parameters) for calls in (SERIES_CALLS, SETS))
    seen = reference.run(short.program, short.data, copied=rewritten(short.program))
    if seen.failure is not None:
        return whole.program, whole.data, seen
    at = {what: index for index, what in enumerate(short.alike)}
    trace = Trace()
    trace.values = [seen.values[at[what]] for what in whole.alike]
    trace.facts = [seen.facts[at[what]] for what in whole.alike]
    trace.copies = (
        {index: seen.copies[at[what]] for index, what in enumerate(whole.alike) if at[what] in seen.copies}
        if seen.copies
        else seen.copies
    )
    if whole.gradients is not None and short.gradients is not None:
        trace.values[whole.gradients] = (None,) * (len(seen.values[short.gradients]) * SERIES_CALLS // SETS)
    return whole.program, whole.data, trace


def _is_readable(trace: Trace) -> bool:
    """Whether each value can be read after the run. Views of an overwritten tensor from a multi-output call cannot."""
    try:
        return all(value.is_leaf in {True, False} for value in trace.values if isinstance(value, torch.Tensor))
    except RuntimeError:
        return False


def _changed(
    part: SequencePart, change: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return two other values of each input that can have other values."""
    found = {}
    for index, spec in part.program.inputs.items():
        source = part.data[part.program.steps[index].target]
        tensor = laid_out(source, spec)
        flat = _plain(tensor.contiguous().reshape(-1))
        if others := change(flat):
            one, other = (each.to(tensor.dtype).reshape(spec.shape) for each in (others[0], others[-1]))
            found[index] = one, other
    return found


def _has_other_values(part: SequencePart) -> bool:
    """Whether all inputs are finite and can be changed."""
    inputs = part.program.inputs
    given = [part.data[part.program.steps[index].target] for index in inputs]
    return (
        all(bool(_plain(value).isfinite().all()) for value in given) and _changed(part, _mixed).keys() == inputs.keys()
    )


def _has_slope(attempt: Attempt) -> bool:
    """Whether some gradient differs from zero, if there are any: a saturated function hides a wrong factor."""
    gradients = [found for found in attempt.trace.gradients.values() if isinstance(found, torch.Tensor)]
    return not gradients or any(bool(gradient.any()) for gradient in gradients)


def _mixed(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the elements in another order with the first and last in place, and in a third order, scaled down.

    A kernel may cache by a key of the first and last element, the sum or the maximum, which the first order keeps; it
    may cache a norm, which scaling changes. Elements of the case itself stay within the bounds of the test. The result
    is empty if all elements are the same and cannot be scaled.
    """
    count = flat.numel()
    orders = [flat.flip(0), flat.roll(1)] if count > 1 else []
    if count > 3:  # noqa: PLR2004 - fewer have no two between the outer ones
        orders.insert(0, torch.cat([flat[:1], flat[1:-1].flip(0), flat[-1:]]))
    if flat.is_floating_point() or flat.is_complex():
        orders = [*orders[:1], *(order * _SCALE for order in orders[1:2]), *_scaled(flat)]
    found: list[torch.Tensor] = []
    for order in orders:
        if len(found) < _OTHERS and not any(torch.equal(order, other) for other in (flat, *found)):
            found.append(order)
    return tuple(found)


def _scaled(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the elements scaled: a matrix stays positive definite, and an index stays unchanged."""
    if flat.is_floating_point() or flat.is_complex():
        return flat * _SCALE, flat * (_SCALE * _SCALE)
    return flat.clone(), flat.clone()


def _plain(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor that torch's operators take: few take float8."""
    return value.float() if value.dtype in _FLOAT8 else value


def part_of(attempt: Attempt) -> SequencePart:
    """Return the part of a case that a probe calls. The reference must have run the case forward and backward."""
    leaves = [index for index in attempt.program.inputs if attempt.trace.gradients.get(index) is not None]
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
    values = attempt.trace.values
    tensors = frozenset(i for i in range(program.start, len(values)) if isinstance(values[i], torch.Tensor))
    return SequencePart(program, sources, cotangents, leaves, parameters, tensors, _writable(attempt, tensors))


def _laid_out(attempt: Attempt) -> tuple[Program, dict[str, torch.Tensor]]:
    """Return a program and its data without expanded inputs, so that each element can be written to."""
    program, sources = attempt.program, attempt.sources
    expanded = {index: spec for index, spec in program.inputs.items() if _is_expanded(spec.shape, spec.strides)}
    if not expanded:
        return program, sources
    inputs = {}
    for index, spec in expanded.items():
        step = program.steps[index]
        own = replace(plain(spec), requires_grad=spec.requires_grad, device=spec.device)
        inputs[index] = step._replace(args=(own,))
        sources = {**sources, step.target: laid_out(sources[step.target], spec).contiguous()}
    return replaced(program, inputs), sources


def _is_expanded(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    # Only then do several elements lie in one place.
    return any(size > 1 and not stride for size, stride in zip(shape, strides, strict=True))


def _writable(attempt: Attempt, tensors: frozenset[int]) -> frozenset[int]:
    """Return the values that only later steps of the body use and whose memory no other value shares."""
    program, trace = attempt.program, attempt.trace
    steps = program.steps
    # Outputs are compared, so that each call must keep its own.
    given = used_by(program.body[-1:])
    used = used_by(step for step in steps if step.op != OUTPUT)
    calls = {index for index, _ in program.calls}
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
