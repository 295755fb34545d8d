"""What was observed of a program's operator calls: values that the captured process writes and the parent reads.

What the mode keeps of equal calls is here, too: they are counted, and looked at in few of them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ci_autotest.program.ir import Step, TensorSpec
from ci_autotest.program.json_values import argument_of, spec_of
from ci_autotest.values.verdict import Struct

#: What elements have in common beside their range; a draw keeps it.
Property = Literal["", "arange", "permutation", "distinct", "sorted", "symmetric", "positive_definite"]


class Elements(Struct, frozen=True):
    """What was seen of the elements of a tensor.

    Attributes:
        low: Smallest finite element; for complex numbers, of their parts.
        high: Largest finite element.
        members: The distinct elements if they are few, as Python writes them, with infinities.
        shares: The share of each member.
        property: What the elements have in common.
        is_finite: Whether neither NaN nor an infinity was seen.
    """

    low: float = 0.0
    high: float = 0.0
    members: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    property: Property = ""
    is_finite: bool = True

    def merged(self, other: Elements) -> Elements:
        """Return what both have in common."""
        is_same = self.members == other.members
        return Elements(
            min(self.low, other.low),
            max(self.high, other.high),
            self.members if is_same else (),
            self.shares if is_same else (),
            self.property if self.property == other.property else "",
            self.is_finite and other.is_finite,
        )


class ObservedTensor(Struct, frozen=True):
    """A tensor argument of a call.

    Attributes:
        spec: Its spec as JSON values (``json_values.plain_spec``).
        elements: What was seen of its elements.
        data: Where the elements of the first call are stored (``TensorSpool``); one place, or one for each tensor of a
            list of tensors that are alike; empty if they are not.
        is_left_out: Whether they are not stored because there are too many.
    """

    spec: dict[str, Any]
    elements: Elements
    data: tuple[int, ...] = ()
    is_left_out: bool = False

    def tensor_spec(self) -> TensorSpec:
        """Return the spec."""
        return spec_of(self.spec)


class ObservedCall(Struct, frozen=True, kw_only=True):
    """Calls of one operator that differ in nothing but their numbers.

    Attributes:
        number: Names the call in the file that the captured process writes.
        op: Opcode, as in ``program.ir``.
        target: The public name.
        args: Arguments as JSON values; a reference counts ``tensors``.
        kwargs: Names and arguments.
        modes: Modes in force.
        tensors: The tensors in the arguments.
        place: File and line of the program's first such call.
        count: Number of calls.
        floats: The floats among the arguments, in order, as text, because JSON has no infinities; each different row
            that was kept.
    """

    number: int
    op: Literal["call_function", "call_method", "get_attr"]
    target: str
    args: list[Any]
    kwargs: list[tuple[str, Any]]
    modes: list[str]
    tensors: list[ObservedTensor]
    place: str
    count: int = 1
    floats: tuple[list[str], ...] = ()

    def step(self) -> Step:
        """Return the call as a step of a program whose first values are the tensors."""
        args = tuple(map(argument_of, self.args))
        kwargs = tuple((name, argument_of(value)) for name, value in self.kwargs)
        return Step(self.op, self.target, args, kwargs, modes=tuple(self.modes))


class Omission(Struct, frozen=True):
    """Calls that became no test: what was called, why it was left out, and how often it was called."""

    name: str
    reason: str
    count: int


class Capture(Struct, frozen=True):
    """What was captured of a program.

    Attributes:
        calls: The calls of operators.
        omissions: What became no test.
        torch: Version of torch.
        is_complete: Whether the program came to its end; if not, counts and ranges are those of each first call.
    """

    calls: tuple[ObservedCall, ...] = ()
    omissions: tuple[Omission, ...] = ()
    torch: str = ""
    is_complete: bool = True

    @property
    def count(self) -> int:
        """Number of captured calls."""
        return sum(call.count for call in self.calls)


decode_capture = msgspec.json.Decoder(Capture).decode
decode_call = msgspec.json.Decoder(ObservedCall).decode
encode = msgspec.json.Encoder().encode


class Observed:
    """The calls with one key.

    Attributes:
        count: Number of calls.
        unobserved: Number of calls that were not seen, in repeated steps of an optimizer.
        floats: Their different rows of floats.
        call: The first call as it is written down; ``None`` if it becomes no test.
        elements: What was seen of the elements of each tensor so far.
        omission: Name and reason if it becomes no test.
        next_look: Number of the call in which elements are looked at again.
    """

    __slots__ = ("call", "count", "elements", "floats", "next_look", "omission", "unobserved")

    def __init__(self, call: ObservedCall | None, elements: list[Elements], omission: tuple[str, str]) -> None:
        self.count = 1
        self.unobserved = 0
        self.next_look = 2
        self.floats: list[list[float]] = []
        self.call = call
        self.elements = elements
        self.omission = omission
