"""Generators: what may vary in a test, drawn when it is used.

Names and meaning are those of OneFlow's AutoTest. A generator has one value in one attempt, however
often it is used: two tensors that share ``k = random(1, 6)`` share the size. ``random`` has no type
of its own; it takes the one it was given by ``.to(T)`` or the one that its callee's annotation asks
for. What cannot be told is an error that says what to write.
"""

from __future__ import annotations

import operator
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import HOST_DEVICE, OWN_DEVICE, Device

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.record.draws import Drawer


class Nothing:
    """The value of ``nothing()``: the keyword that it stands for is not given."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing()"


NOTHING: Final = Nothing()


class Generator:
    """Something that may vary. Combine with ``|`` (either) and ``+ - * // % **`` (arithmetic)."""

    __slots__ = ()

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Return a new value of type ``wanted`` (``None``: not known)."""
        raise NotImplementedError  # every generator below has its own

    def value(self, drawer: Drawer, wanted: object = None) -> object:
        """Return this attempt's value, drawn on first use."""
        cached = drawer.cache.get(id(self))
        if cached is None:
            cached = (self, self.draw(drawer, wanted, drawer.site()))
            drawer.cache[id(self)] = cached
        return cached[1]

    def to(self, kind: type) -> Generator:
        """Return this generator with its values of type ``kind``."""
        return _Typed(self, kind)

    def __or__(self, other: object) -> Generator:
        return Either(_alternatives(self) + _alternatives(other))

    def __ror__(self, other: object) -> Generator:
        return Either(_alternatives(other) + _alternatives(self))

    def __add__(self, other: object) -> Generator:
        return _Arithmetic("+", operator.add, self, other)

    def __radd__(self, other: object) -> Generator:
        return _Arithmetic("+", operator.add, other, self)

    def __sub__(self, other: object) -> Generator:
        return _Arithmetic("-", operator.sub, self, other)

    def __rsub__(self, other: object) -> Generator:
        return _Arithmetic("-", operator.sub, other, self)

    def __mul__(self, other: object) -> Generator:
        return _Arithmetic("*", operator.mul, self, other)

    def __rmul__(self, other: object) -> Generator:
        return _Arithmetic("*", operator.mul, other, self)

    def __floordiv__(self, other: object) -> Generator:
        return _Arithmetic("//", operator.floordiv, self, other)

    def __mod__(self, other: object) -> Generator:
        return _Arithmetic("%", operator.mod, self, other)

    def __pow__(self, other: object) -> Generator:
        return _Arithmetic("**", operator.pow, self, other)

    def __neg__(self) -> Generator:
        return _Arithmetic("-", operator.sub, 0, self)

    def __bool__(self) -> bool:
        message = (
            f"{self!r} has no value until it is used in a call. Write random_bool() as an argument, or oneof(...)."
        )
        raise AuthorError(message)


class RandomNumber(Generator):
    """A number of ``[low, high)``: integer, float or boolean by the type asked for."""

    __slots__ = ("high", "low")

    def __init__(self, low: float | Generator, high: float | Generator) -> None:
        """Refuse an empty range where both bounds are known."""
        self.low, self.high = low, high
        if not isinstance(low, Generator) and not isinstance(high, Generator):
            _refuse_empty(low, high)

    def __repr__(self) -> str:
        return f"random({self.low!r}, {self.high!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Draw by type; a union picks a member, a tuple draws each of its members."""
        low, high = settle(drawer, self.low, int), settle(drawer, self.high, int)
        _refuse_empty(low, high)
        return _number(self, drawer, wanted, site, (low, high))


def _refuse_empty(low: float, high: float) -> None:
    if high <= low:
        shown = f"random({low})" if high == DEFAULT_HIGH else f"random({low}, {high})"
        hint = f"random(0, {low}) or random({low}, {low + 1})" if low > 0 else f"random({low}, {low + 6})"
        message = f"{shown} has an empty range: low is {low}, high is {high}. Write {hint}."
        raise AuthorError(message)


def _number(source: RandomNumber, drawer: Drawer, wanted: object, site: str, bounds: tuple[float, float]) -> object:
    if wanted is int:
        return drawer.integer(site, int(bounds[0]), int(bounds[1]))
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
        usable = [kind for kind in members if kind in {int, float, bool} or get_origin(kind) in {tuple, list}]
        if usable:
            picked = drawer.choice(f"{site}.kind", len(usable)) if len(usable) > 1 else 0
            return _number(source, drawer, usable[picked], site, bounds)
    message = f"the type of {source!r} cannot be told. Write {source!r}.to(int), .to(float) or .to(bool)."
    raise AuthorError(message)


class RandomBool(Generator):
    """True or false."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "random_bool()"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - its type is its own
        """Draw a boolean."""
        return drawer.boolean(site)


class Constant(Generator):
    """A value that does not vary."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        """Hold a value."""
        self.held = held

    def __repr__(self) -> str:
        return repr(self.held) if isinstance(self.held, Nothing) else f"constant({self.held!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - nothing is drawn
        """Return the value."""
        return self.held


class Either(Generator):
    """One of several alternatives, each as likely, or the first with probability ``possibility``."""

    __slots__ = ("alternatives", "possibility")

    def __init__(self, alternatives: tuple[object, ...], possibility: float | None = None) -> None:
        """Hold the alternatives; combined ones are flattened by ``|``."""
        self.alternatives = alternatives
        self.possibility = possibility
        if not alternatives:
            message = "oneof() has no alternative. Write oneof(a, b)."
            raise AuthorError(message)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.alternatives))

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Pick an alternative, then draw it."""
        pick = f"{site}.pick"
        if self.possibility is None:
            index = drawer.choice(pick, len(self.alternatives), self._simplest())
        else:
            index = 0 if drawer.boolean(pick, self.possibility) else 1
        return settle(drawer, self.alternatives[index], wanted)

    def _simplest(self) -> int:
        """Return the alternative to shrink toward: ``nothing()`` where there is one, else the first."""
        absent = (i for i, item in enumerate(self.alternatives) if isinstance(item, Constant) and item.held is NOTHING)
        return next(absent, 0)


class _Typed(Generator):
    __slots__ = ("kind", "source")

    def __init__(self, source: Generator, kind: type) -> None:
        self.source, self.kind = source, kind

    def __repr__(self) -> str:
        return f"{self.source!r}.to({getattr(self.kind, '__name__', self.kind)})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - its type was given
        # Drawn through `value`: the same generator used bare and typed has one value.
        return self.source.value(drawer, self.kind)


class _Arithmetic(Generator):
    __slots__ = ("function", "left", "right", "symbol")

    def __init__(self, symbol: str, function: Callable[[Any, Any], Any], left: object, right: object) -> None:
        self.symbol, self.function, self.left, self.right = symbol, function, left, right

    def __repr__(self) -> str:
        return f"({self.left!r} {self.symbol} {self.right!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - its parts have theirs
        return self.function(settle(drawer, self.left, wanted), settle(drawer, self.right, wanted))


def _alternatives(value: object) -> tuple[object, ...]:
    return value.alternatives if isinstance(value, Either) and value.possibility is None else (value,)


def settle(drawer: Drawer, value: object, wanted: object = None) -> Any:  # noqa: ANN401 - whatever was drawn
    """Return ``value`` itself, or this attempt's value of the generator that it is."""
    return value.value(drawer, wanted) if isinstance(value, Generator) else value


DEFAULT_LOW: Final = 1
DEFAULT_HIGH: Final = 6


def random(low: float | Generator = DEFAULT_LOW, high: float | Generator = DEFAULT_HIGH) -> Generator:
    """Vary a number in ``[low, high)``; its type is given by ``.to(int | float | bool)`` or by the callee's annotation.

    Raises:
        AuthorError: The range is empty, as in ``random(120)``.
    """
    return RandomNumber(low, high)


def random_bool() -> Generator:
    """Vary a boolean."""
    return RandomBool()


def oneof(*alternatives: object, possibility: float | None = None) -> Generator:
    """Vary over alternatives; with ``possibility`` the first of two has that probability."""
    if possibility is not None and len(alternatives) != 2:  # noqa: PLR2004 - one probability tells two things apart
        message = f"oneof(possibility={possibility}) has {len(alternatives)} alternatives. Give exactly two."
        raise AuthorError(message)
    return Either(alternatives, possibility)


def constant(value: object) -> Generator:
    """Hold a value that takes part in ``|`` and arithmetic."""
    return Constant(value)


def nothing() -> Generator:
    """Stand for an argument that is left out, beside another alternative."""
    return Constant(NOTHING)


def random_or_nothing(low: float, high: float) -> Generator:
    """Vary a number in ``[low, high)``, and leave it out one time in three."""
    return Either((nothing(), random(low, high)), 1 / 3)


def random_device() -> Generator:
    """Vary between the host and the device that the candidate was asked to use."""
    return Either((Device(HOST_DEVICE), Device(OWN_DEVICE)))


def cpu_device() -> Generator:
    """Name the host."""
    return Constant(Device(HOST_DEVICE))


def gpu_device() -> Generator:
    """Name the device that the candidate was asked to use."""
    return Constant(Device(OWN_DEVICE))
