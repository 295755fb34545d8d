"""Generators of numbers, booleans, alternatives and devices, with the names and meaning of OneFlow's AutoTest.

``random`` has no type of its own. It takes the type of ``.to(T)``, of its callee's annotation, or of a built-in
function's schema; if none of these gives a type, an error says what to write.

For type checkers, a generator has the type of its value: ``oneof(0, 1)`` is an ``int``, and ``random()`` is ``Any``. In
fact it is a ``Generator``, which the recorder replaces by its value in the attempt; hence the casts below.
"""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, Union, cast, get_args, get_origin, runtime_checkable

from ci_autotest.errors import AuthorError, UntypedError
from ci_autotest.program.ir import HOST_DEVICE, OWN_DEVICE, Device
from ci_autotest.record.draw.generators import NOTHING, ConstantGenerator, Either, Generator, Typed, settle
from ci_autotest.record.draw.size_plan import LEAST

if TYPE_CHECKING:
    import torch

    from ci_autotest.record.draw.draws import Drawer

T = TypeVar("T")

#: Range of ``random()`` without arguments, as in OneFlow's AutoTest; the upper bound is exclusive.
DEFAULT_LOW: Final = 1
DEFAULT_HIGH: Final = 6
#: Up to this many integers are planned like alternatives; of more, chance gives enough.
_PLANNED: Final = 4


@runtime_checkable
class Lookup(Protocol):
    """A type that is looked up on demand, in the schemas of a built-in function."""

    def resolve(self) -> object:
        """Return the type; ``None`` if it is unknown."""


class RandomNumber(Generator):
    """A number in ``[low, high)``: an integer, float or boolean, by the wanted type."""

    __slots__ = ("high", "low")

    def __init__(self, low: float | Generator, high: float | Generator) -> None:
        """Refuse an empty range, if both bounds are known."""
        self.low, self.high = low, high
        if not isinstance(low, Generator) and not isinstance(high, Generator):
            _refuse_empty(low, high)

    def __repr__(self) -> str:
        return f"random({self.low!r}, {self.high!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Draw by type: one member of a union, every member of a tuple."""
        low, high = settle(drawer, self.low, int), settle(drawer, self.high, int)
        _refuse_empty(low, high)
        return _number(self, drawer, wanted, site, (low, high))

    def parts(self) -> tuple[object, ...]:
        """Return the bounds."""
        return self.low, self.high


def _refuse_empty(low: float, high: float) -> None:
    if high <= low:
        shown = f"random({low})" if high == DEFAULT_HIGH else f"random({low}, {high})"
        hint = f"random(0, {low}) or random({low}, {low + 1})" if low > 0 else f"random({low}, {low + 6})"
        message = f"{shown} has an empty range: low is {low}, high is {high}. Write {hint}."
        raise AuthorError(message)


def _number(source: RandomNumber, drawer: Drawer, wanted: object, site: str, bounds: tuple[float, float]) -> object:
    if wanted is int:
        low, high = int(bounds[0]), int(bounds[1])
        return drawer.integer(site, low, high, is_planned=high - low <= _PLANNED, may_be_size=low <= LEAST < high)
    if wanted is float:
        return drawer.floating(site, float(bounds[0]), float(bounds[1]))
    if wanted is bool:
        return drawer.boolean(site)
    members = get_args(wanted)
    origin = get_origin(wanted)
    if origin in {tuple, list} and members:
        kinds = [kind for kind in members if kind is not Ellipsis]
        return tuple(_number(source, drawer, kind, f"{site}.{i}", bounds) for i, kind in enumerate(kinds))
    if origin in {UnionType, Union}:
        # Members that are no numbers, for example None or a tensor, are never drawn.
        usable = [kind for kind in members if kind in {int, float, bool} or get_origin(kind) in {tuple, list}]
        if usable:
            picked = drawer.choice(f"{site}.kind", len(usable)) if len(usable) > 1 else 0
            return _number(source, drawer, usable[picked], site, bounds)
    if isinstance(wanted, Lookup):
        return _number(source, drawer, wanted.resolve(), site, bounds)
    message = f"the type of {source!r} is unknown. Write {source!r}.to(int), .to(float) or .to(bool)."
    raise UntypedError(message)


def drawn_size(drawer: Drawer, value: object) -> int:
    """Return a size that the test gives or draws; a number from a range is a free dimension."""
    size = int(settle(drawer, value, int))
    if (number := _number_of(value)) is not None:
        low, high = int(settle(drawer, number.low, int)), int(settle(drawer, number.high, int))
        drawer.plan.saw(drawer.cache[id(number)][2], size, low, high)
    return size


def _number_of(value: object) -> RandomNumber | None:
    """Return the number that a generator is, with or without its type; ``None`` if it is something else."""
    source = value.source if isinstance(value, Typed) else value
    return source if isinstance(source, RandomNumber) else None


class RandomBool(Generator):
    """A boolean; both values are equally likely."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "random_bool()"

    def weight(self) -> int:
        """Return 2."""
        return 2

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - the type is always bool
        """Draw a boolean."""
        return drawer.boolean(site)


def random(low: float | Generator = DEFAULT_LOW, high: float | Generator = DEFAULT_HIGH) -> Any:
    """Draw a number in ``[low, high)``; its type comes from ``.to(int | float | bool)`` or from the callee.

    Raises:
        AuthorError: The range is empty, as in ``random(120)``.
    """
    return RandomNumber(low, high)


def random_bool() -> bool:
    """Draw a boolean."""
    return cast("bool", RandomBool())


def oneof(*alternatives: T, possibility: float | None = None) -> T:
    """Draw one of several alternatives, so that within 20 cases each occurs, and beside each of any other choice.

    With ``possibility`` the first of two has that probability instead.
    """
    if possibility is not None and len(alternatives) != 2:  # noqa: PLR2004 - one probability needs two alternatives
        message = f"oneof(possibility={possibility}) has {len(alternatives)} alternatives. Give exactly two."
        raise AuthorError(message)
    return cast("T", Either(alternatives, possibility))


def constant(value: T) -> T:
    """Return a fixed value as a generator, so that it can be combined with ``|`` and arithmetic."""
    return cast("T", ConstantGenerator(value))


def nothing() -> Any:
    """Return an alternative without a value: if it is drawn, the argument is left out of the call."""
    return ConstantGenerator(NOTHING)


def random_or_nothing(low: float, high: float) -> Any:
    """Draw a number in ``[low, high)``, or leave the argument out in one of three cases."""
    return Either((nothing(), random(low, high)), 1 / 3)


def random_device() -> torch.device:
    """Draw either the host or the device of the candidate."""
    return cast("torch.device", Either((Device(HOST_DEVICE), Device(OWN_DEVICE))))


def cpu_device() -> torch.device:
    """Return the host as a device."""
    return cast("torch.device", ConstantGenerator(Device(HOST_DEVICE)))


def gpu_device() -> torch.device:
    """Return the device of the candidate."""
    return cast("torch.device", ConstantGenerator(Device(OWN_DEVICE)))
