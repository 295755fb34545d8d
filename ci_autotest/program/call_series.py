"""A series: calls of a body on many inputs of one size that stay alive, then all backward passes, then two calls again.

It shows kernels with room for only a few weights, results or tensors saved for backward passes. The calls take turns
with three sets of values, so that each differs from those 1, 2, 4, 8 and 16 calls earlier, and the reference computes
only three calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.program.call_sequence import CallSequence, SequencePart, change_parameters, placeholders, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Program

#: Calls of a series: more than the sixteen slots that a kernel's cache may have.
CALLS: Final = 18
#: Sets of values: the case's own and two others.
SETS: Final = 3
#: Calls that are repeated at the end.
_AGAIN: Final = 2


class Series(NamedTuple):
    """A series of calls.

    Attributes:
        program: The calls.
        data: Of its placeholders, by key.
        alike: A key for what each step computes; steps with the same key compute the same, also in a longer series.
        gradients: Index of the step that computes all gradients together, if there is one.
    """

    program: Program
    data: dict[str, Any]
    alike: list[tuple[str | int, ...]]
    gradients: int | None


def series(
    part: SequencePart,
    changed: Mapping[int, tuple[Any, Any]],
    calls: int = CALLS,
    *,
    with_parameters: bool = True,
    is_joint: bool = True,
) -> Series:
    """Return a series of calls of a body.

    Args:
        part: The body; ``is_repeatable``.
        changed: Contiguous data of two other sets of values, by index of the input.
        calls: Number of calls.
        with_parameters: Whether one more call with changed weights follows.
        is_joint: Whether one backward pass goes through all calls, which is cheaper than one for each.
    """
    found, alike = CallSequence(), _Alike()
    setup = found.setup(part)
    alike.add(found, "setup")
    called = []
    for number in range(calls):
        given = {**setup, **_inputs(found, part, changed, number % SETS)}
        alike.add(found, "input", number % SETS)
        called.append((given, found.forward(part, given)))
        alike.add(found, "call", number % SETS)
    joint = None
    if part.leaves and part.cotangents:
        weights = [found.placeholder(spec, data, "cotangent") for spec, data in part.cotangents.values()]
        alike.add(found, "weight")
        for numbers in [range(calls)] if is_joint else [[number] for number in range(calls)]:
            joint = found.gradients_of(part, [called[number][1] for number in numbers], weights)
            # The pass itself comes first; what is unpacked from it repeats with the sets of values.
            alike.add(found, "gradients", count=1)
            for number in numbers:
                alike.add(found, "gradient", number % SETS, count=len(part.leaves))
    # The oldest calls: a cache with fewer slots than calls has replaced what it kept of them.
    for number, (given, _) in enumerate(called[:_AGAIN]):
        found.forward(part, given)
        alike.add(found, "call", number % SETS)
    if with_parameters and change_parameters(found, part, setup):
        found.forward(part, called[0][0])
        alike.add(found, "changed")
    return Series(found.program(), found.data, [*alike.found, ("output",)], joint)


class _Alike:
    def __init__(self) -> None:
        self.found: list[tuple[str | int, ...]] = []

    def add(self, sequence: CallSequence, *what: str | int, count: int | None = None) -> None:
        """Give keys to the steps appended since the last time, or to the first ``count`` of them."""
        new = len(sequence) - len(self.found) if count is None else count
        self.found += [(*what, position) for position in range(new)]


def _inputs(
    found: CallSequence, part: SequencePart, changed: Mapping[int, tuple[Any, Any]], values: int
) -> dict[int, int]:
    """Append inputs with one of the sets of values, each at an address of its own; return their indices."""
    given = {}
    for index, spec in placeholders(part.program).items():
        step = part.program.steps[index]
        own, data = spec, part.data[step.target]
        if values and index in changed:
            # Data of the other sets are contiguous, whatever layout the case's own have.
            own, data = replace(plain(spec), requires_grad=spec.requires_grad), changed[index][values - 1]
        given[index] = found.placeholder(own, data, step.name).index
    return given
