"""Observed calls become tests: calls that differ in numbers and sizes alone are the rows of one test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.call_capture.layouts import PLAIN, Layout, layout_of
from ci_autotest.call_capture.observation import Elements, ObservedTensor, Omission
from ci_autotest.program.edit import mapped_step
from ci_autotest.program.ir import NO_GRAD, List, Ref
from ci_autotest.program.written_values import outputs_of, written_receiver
from ci_autotest.values.dtypes import COMPLEX, DIFFERENTIABLE, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.call_capture.observation import ObservedCall
    from ci_autotest.program.ir import Argument, Step, TensorSpec

#: Rows of one test: as many as a run has cases by default, so that each row is a case.
ROWS: Final = 20
#: Up to this many tensors of a list each have a name.
_FEW: Final = 3
#: Tests of a capture.
TESTS: Final = 150


@dataclass(frozen=True, slots=True)
class NumberPlace:
    """A place among the arguments of a test's call that holds a number, in the order of the row."""

    index: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """A list or tuple of tensors that are alike.

    Args:
        ref: The first of them.
        count: Their number.
        is_list: Whether it is a list.
    """

    ref: Ref
    count: int
    is_list: bool


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """What the tensors at one place among the arguments have in common.

    Args:
        dtype: Name without framework.
        layout: How the tensor is made of a contiguous one.
        members: Its distinct elements, if they are few.
        property: What its elements have in common.
        is_approximate: Whether the layout could not be expressed and is contiguous instead.
    """

    dtype: str
    layout: Layout = PLAIN
    members: tuple[str, ...] = ()
    property: str = ""
    is_approximate: bool = False


@dataclass(slots=True)
class CallRow:
    """One kind of call: its numbers, and the sizes and elements of its tensors.

    Args:
        numbers: The integers and floats among the arguments.
        dims: Sizes of the contiguous tensor behind each tensor.
        elements: What was seen of the elements of each tensor.
        count: Number of calls.
        tensors: The tensors of the first call.
    """

    numbers: tuple[float, ...]
    dims: tuple[tuple[int, ...], ...]
    elements: tuple[Elements, ...]
    count: int
    tensors: tuple[ObservedTensor, ...]

    def places(self) -> tuple[tuple[int, ...], ...]:
        """Return where the elements of the first call are stored."""
        return tuple(one.data for one in self.tensors)


@dataclass(slots=True)
class CallGroup:
    """The calls of one test.

    Args:
        step: The call; numbers are ``NumberPlace``, tensors are ``Ref``.
        slots: One for each tensor.
        place: File and line of its first call.
        grads: Whether each tensor requires grad in any of the calls.
        rows: The kinds of calls, most frequent first.
        count: Number of calls, those of rows that were left out included.
        kinds: Number of kinds of calls, before some were left out.
    """

    step: Step
    slots: tuple[TensorPlace, ...]
    place: str
    grads: list[bool]
    rows: list[CallRow] = field(default_factory=list)
    count: int = 0
    kinds: int = 0

    def is_stored(self, index: int) -> bool:
        """Whether the test takes the elements of a tensor from a file: each of its rows has them."""
        return all(row.tensors[index].data for row in self.rows)

    def is_left_out(self, index: int) -> bool:
        """Whether they are drawn because some row has too many of them."""
        return any(row.tensors[index].is_left_out for row in self.rows)

    def is_repeated(self, index: int) -> bool:
        """Whether a tensor stands for a list of tensors that are alike."""
        return self.repeated(index) is not None

    def repeated(self, index: int) -> Repeated | None:
        """Return the list that a tensor stands for; ``None`` if it is one tensor."""
        given: tuple[Any, ...] = (*self.step.args, *(value for _, value in self.step.kwargs))
        return next((value for value in given if isinstance(value, Repeated) and value.ref.index == index), None)

    def data_rows(self) -> list[CallRow]:
        """Return a row for each call whose elements are stored; rows that differ in floats alone share them."""
        found: dict[tuple[tuple[int, ...], ...], CallRow] = {}
        for row in self.rows:
            found.setdefault(row.places(), row)
        return [*found.values()]


def call_groups(calls: Sequence[ObservedCall], limit: int = TESTS) -> tuple[list[CallGroup], list[Omission]]:
    """Return the tests, those with the most calls first, and what was left out because there are too many.

    Args:
        calls: The observed calls.
        limit: Number of tests at most.
    """
    found: dict[Any, CallGroup] = {}
    for call in calls:
        step, tensors = _collapsed(call.step(), call.tensors)
        specs = [tensor.tensor_spec() for tensor in tensors]
        parts = [_slot(spec, tensor) for spec, tensor in zip(specs, tensors, strict=True)]
        slots = tuple(slot for slot, _ in parts)
        numbers: list[float] = []
        skeleton = _skeleton(step, numbers)
        group = found.setdefault((skeleton, slots), CallGroup(skeleton, slots, call.place, [False] * len(slots)))
        group.grads = [grad or spec.requires_grad for grad, spec in zip(group.grads, specs, strict=True)]
        group.count += call.count
        dims = tuple(size for _, size in parts)
        elements = tuple(tensor.elements for tensor in tensors)
        rows = [*_filled(numbers, call.floats)]
        group.rows += [CallRow(row, dims, elements, max(1, call.count // len(rows)), tuple(tensors)) for row in rows]
    groups = sorted(found.values(), key=lambda group: -group.count)
    for group in groups:
        _reduce(group)
    return groups[:limit], _left_out(groups[limit:])


def _collapsed(step: Step, tensors: Sequence[ObservedTensor]) -> tuple[Step, list[ObservedTensor]]:
    """Return a call with each list of tensors that are alike as ``Repeated``, and the tensors that are left."""
    kept: list[ObservedTensor] = []

    def renumbered(value: Argument) -> Argument:
        if not isinstance(value, Ref):
            return value
        kept.append(tensors[value.index])
        return Ref(len(kept) - 1)

    def repeated(value: Argument) -> Any:
        items = value.items if isinstance(value, List) else value if isinstance(value, tuple) else ()
        alike = [tensors[item.index] for item in items if isinstance(item, Ref)]
        if not len(alike) == len(items) > _FEW or any(item.spec != alike[0].spec for item in alike):
            return None
        kept.append(_merged(alike))
        return Repeated(Ref(len(kept) - 1), len(items), isinstance(value, List))

    return mapped_step(step, renumbered, repeated), kept


def _merged(alike: Sequence[ObservedTensor]) -> ObservedTensor:
    """Return one tensor for several that are alike; its elements are stored if those of all of them are."""
    elements = reduce(Elements.merged, (item.elements for item in alike))
    places = tuple(place for item in alike for place in item.data) if all(item.data for item in alike) else ()
    return ObservedTensor(alike[0].spec, elements, places, any(item.is_left_out for item in alike))


def _left_out(groups: Sequence[CallGroup]) -> list[Omission]:
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.step.target] = counts.get(group.step.target, 0) + group.count
    return [Omission(name, "called less often than the calls of the tests", count) for name, count in counts.items()]


def _slot(spec: TensorSpec, tensor: ObservedTensor) -> tuple[TensorPlace, tuple[int, ...]]:
    """Return what a test keeps of a tensor, and its sizes."""
    found, elements = layout_of(spec), tensor.elements
    dims, layout = found or (spec.shape, PLAIN)
    if tensor.data:  # the elements themselves say all that a draw would have to keep
        return TensorPlace(spec.dtype, layout, is_approximate=found is None), dims
    is_parameter = spec.requires_grad and spec.dtype in DIFFERENTIABLE
    # A parameter with few distinct elements, such as the ones at its start, soon has others.
    members = () if is_parameter else elements.members
    is_constant = elements.low == elements.high and not spec.dtype.startswith("int")
    if not members and is_constant and not is_parameter and spec.dtype not in INTEGERS | COMPLEX and 0 not in dims:
        members = (repr(float(elements.low)),)
    named = elements.property if layout == PLAIN else ""
    return TensorPlace(spec.dtype, layout, members, named, is_approximate=found is None), dims


def _skeleton(step: Step, numbers: list[float]) -> Step:
    """Return a step with its numbers taken out; gradients that are off are seen in what its tensors require."""

    def taken(part: Argument) -> Any:
        if isinstance(part, int | float) and not isinstance(part, bool):
            numbers.append(part)
            return NumberPlace(len(numbers) - 1)
        return part

    modes = tuple(mode for mode in step.modes if mode not in NO_GRAD)
    return mapped_step(step, taken)._replace(modes=modes)


def _filled(numbers: Sequence[float], floats: Sequence[Sequence[str]]) -> Iterator[tuple[float, ...]]:
    """Yield the numbers of a call for each of its rows of floats."""
    for row in floats or [[]]:
        rest = [*map(float, row)]
        yield tuple(rest.pop(0) if type(number) is float and rest else number for number in numbers)


def _reduce(group: CallGroup) -> None:
    """Merge equal rows, and keep ``ROWS``: first one of each set of sizes, then the others, by calls."""
    merged: dict[Any, CallRow] = {}
    for row in group.rows:
        key = (tuple(map(repr, row.numbers)), row.dims)
        old = merged.get(key)
        if old is None:
            merged[key] = row
        else:
            elements = tuple(one.merged(other) for one, other in zip(old.elements, row.elements, strict=True))
            merged[key] = replace(old, elements=elements, count=old.count + row.count)
    rows = sorted(merged.values(), key=lambda row: -row.count)
    group.kinds = len(rows)
    sizes: dict[tuple[tuple[int, ...], ...], CallRow] = {}
    for row in rows:
        sizes.setdefault(row.dims, row)
    first = list(sizes.values())
    chosen = {id(row) for row in [*first, *(row for row in rows if sizes[row.dims] is not row)][:ROWS]}
    group.rows = [row for row in rows if id(row) in chosen]
    _release_written(group)


def _release_written(group: CallGroup) -> None:
    """Let no tensor require grad that ``out=`` writes to, or that an initialization fills."""
    outputs = [ref.index for ref in outputs_of(group.step)]
    if group.step.target.startswith("torch.nn.init.") and group.slots:
        outputs.append(0)
    for index in outputs:
        group.grads[index] = False


def written_tensor(group: CallGroup) -> int | None:
    """Return the tensor that a call writes to in place; ``None`` if it writes to none."""
    receiver = written_receiver(group.step, ())
    return None if receiver is None else receiver.index
