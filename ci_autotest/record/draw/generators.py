"""Generators: values that vary between cases, drawn on first use, and their combinations.

A generator has one value in an attempt, however often it is used. So two tensors with the same ``k = random(1, 6)``
have the same size.

Generators of numbers, booleans, alternatives and devices have the names and meaning of OneFlow's AutoTest. ``random``
has no type of its own. It takes the type of ``.to(T)``, of its callee's annotation, or of a built-in function's schema.
If none of these gives a type, the error message asks for one.

For type checkers, a generator has the type of its value: ``oneof(0, 1)`` is an ``int``, and ``random()`` is ``Any``. In
fact it is a ``Generator``, which the recorder replaces by its value in the attempt; hence the casts below.
"""

from __future__ import annotations

import operator
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, Union, cast, get_args, get_origin, runtime_checkable

from ci_autotest.errors import AuthorError, UntypedError
from ci_autotest.program.ir import HOST_DEVICE, OWN_DEVICE, Device
from ci_autotest.record.author_names import variable_of
from ci_autotest.record.context import recorder_for
from ci_autotest.record.draw.size_plan import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ci_autotest.record.draw.draws import Drawer

T = TypeVar("T")

#: Range of ``random()`` without arguments, as in OneFlow's AutoTest; the upper bound is exclusive.
DEFAULT_LOW: Final = 1
DEFAULT_HIGH: Final = 6
#: Up to this many integers are planned like alternatives; in a wider range, chance covers enough of them.
_PLANNED: Final = 4


class Nothing:
    """The value of ``nothing()``: its argument is left out of the call."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing()"


NOTHING: Final = Nothing()


class Generator:
    """A value that varies. Generators combine with ``|`` (either) and ``+ - * / // % **`` (arithmetic)."""

    __slots__ = ()

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Return a new value of type ``wanted``, which is ``None`` if the type is unknown."""
        raise NotImplementedError

    def value(self, drawer: Drawer | None = None, wanted: object = None) -> Any:
        """Return the value in this attempt; it is drawn on first use.

        Args:
            drawer: The drawer of the attempt; by default, the one of the case being recorded.
            wanted: The type; unknown by default, so that ``random`` needs ``.to(int)`` or ``.to(float)`` first.

        Raises:
            AuthorError: Called outside a test.
        """
        drawer = drawer or recorder_for("value").drawer
        cached = drawer.cache.get(id(self))
        if cached is None:
            # The generator is stored too, so that it stays alive and no other generator gets its id.
            site = drawer.site()
            if drawer.names is not None and not isinstance(self, Typed):
                drawer.name(site, variable_of(self._is_held_by))
            cached = (self, self.draw(drawer, wanted, site), site)
            drawer.cache[id(self)] = cached
        return cached[1]

    def _is_held_by(self, value: object) -> bool:
        """Return true if a variable's value is this generator, with or without a type."""
        while isinstance(value, Typed):
            value = value.source
        return value is self

    def eval(self) -> Any:
        """Draw this generator and the generators it is made of anew, and return the new value."""
        drawer = recorder_for("eval").drawer
        forget(drawer, self)
        return self.value(drawer)

    def parts(self) -> tuple[object, ...]:
        """Return the parts of the value: other generators, and values that do not vary."""
        return ()

    def to(self, kind: type) -> Generator:
        """Return this generator with values of type ``kind``."""
        return Typed(self, kind)

    def __or__(self, other: object) -> Generator:
        return Either(_alternatives(self) + _alternatives(other))

    def __ror__(self, other: object) -> Generator:
        return Either(_alternatives(other) + _alternatives(self))

    def __add__(self, other: object) -> Generator:
        return _combined("+", operator.add, self, other)

    def __radd__(self, other: object) -> Generator:
        return _combined("+", operator.add, other, self)

    def __sub__(self, other: object) -> Generator:
        return _combined("-", operator.sub, self, other)

    def __rsub__(self, other: object) -> Generator:
        return _combined("-", operator.sub, other, self)

    def __mul__(self, other: object) -> Generator:
        return _combined("*", operator.mul, self, other)

    def __rmul__(self, other: object) -> Generator:
        return _combined("*", operator.mul, other, self)

    def __floordiv__(self, other: object) -> Generator:
        return _combined("//", operator.floordiv, self, other)

    def __truediv__(self, other: object) -> Generator:
        return _combined("/", operator.truediv, self, other)

    def __rtruediv__(self, other: object) -> Generator:
        return _combined("/", operator.truediv, other, self)

    def __mod__(self, other: object) -> Generator:
        return _combined("%", operator.mod, self, other)

    def __pow__(self, other: object) -> Generator:
        return _combined("**", operator.pow, self, other)

    def __rfloordiv__(self, other: object) -> Generator:
        return _combined("//", operator.floordiv, other, self)

    def __rmod__(self, other: object) -> Generator:
        return _combined("%", operator.mod, other, self)

    def __rpow__(self, other: object) -> Generator:
        return _combined("**", operator.pow, other, self)

    def __neg__(self) -> Generator:
        return _combined("-", operator.sub, 0, self)

    def __bool__(self) -> bool:
        message = (
            f"{self!r} has no value until it is used in a call. Write .value() to draw it here, random_bool() as an "
            "argument, or oneof(...)."
        )
        raise AuthorError(message)

    def weight(self) -> int:
        """Return the number of values that a plan distinguishes."""
        return 1


class ConstantGenerator(Generator):
    """A value that does not vary."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __repr__(self) -> str:
        return repr(self.held) if isinstance(self.held, Nothing) else f"constant({self.held!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - nothing is drawn
        """Return the value."""
        return self.held


class Either(Generator):
    """One of several alternatives, equally likely, or the first with probability ``possibility``."""

    __slots__ = ("alternatives", "possibility")

    def __init__(self, alternatives: tuple[object, ...], possibility: float | None = None) -> None:
        self.alternatives = alternatives
        self.possibility = possibility
        if not alternatives:
            message = "oneof() has no alternative. Write oneof(a, b)."
            raise AuthorError(message)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.alternatives))

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Choose an alternative, then draw it."""
        pick = f"{site}.pick"
        if self.possibility is None:
            weights = tuple(map(_weight, self.alternatives))
            with drawer.alternative(pick, weights, self._simplest(), self._fitting(drawer.profile)) as index:
                return settle(drawer, self.alternatives[index], wanted)
        index = 0 if drawer.boolean(pick, self.possibility) else 1
        return settle(drawer, self.alternatives[index], wanted)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Draw an alternative, and call it: ``oneof(torch.sin, torch.cos)(x)``."""
        return self.value()(*args, **kwargs)

    def parts(self) -> tuple[object, ...]:
        """Return the alternatives."""
        return self.alternatives

    def weight(self) -> int:
        """Return the sum of the alternatives' weights, or 1 if there is a ``possibility``."""
        return sum(map(_weight, self.alternatives)) if self.possibility is None else 1

    def _fitting(self, profile: str) -> tuple[int, ...]:
        """Return the indices of the dtypes that have special values, if the profile draws these; otherwise none."""
        if profile != "special" or not all(map(_is_dtype, self.alternatives)):
            return ()
        return tuple(i for i, item in enumerate(self.alternatives) if _is_inexact(item))

    def _simplest(self) -> int:
        """Return the index to shrink toward: that of ``nothing()`` if it is an alternative, else the first."""
        absent = (
            i
            for i, item in enumerate(self.alternatives)
            if isinstance(item, ConstantGenerator) and item.held is NOTHING
        )
        return next(absent, 0)


class Typed(Generator):
    """A generator with an explicit type: ``random(1, 6).to(int)``."""

    __slots__ = ("kind", "source")

    def __init__(self, source: Generator, kind: type) -> None:
        self.source, self.kind = source, kind

    def __repr__(self) -> str:
        return f"{self.source!r}.to({getattr(self.kind, '__name__', self.kind)})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - the type is explicit
        """Return the value of the generator."""
        # Not drawn anew, so that a generator has the same value with and without `.to()`.
        return self.source.value(drawer, self.kind)

    def parts(self) -> tuple[object, ...]:
        """Return the generator without its type."""
        return (self.source,)


class _Arithmetic(Generator):
    __slots__ = ("function", "left", "right", "symbol")

    def __init__(self, symbol: str, function: Callable[[Any, Any], Any], left: object, right: object) -> None:
        self.symbol, self.function, self.left, self.right = symbol, function, left, right

    def __repr__(self) -> str:
        return f"({self.left!r} {self.symbol} {self.right!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - both operands have sites of their own
        return self.function(settle(drawer, self.left, wanted), settle(drawer, self.right, wanted))

    def parts(self) -> tuple[object, ...]:
        return self.left, self.right


def forget(drawer: Drawer, value: object) -> None:
    """Forget the values of a generator and of its parts, so that they are drawn anew in this attempt."""
    if isinstance(value, Generator):
        drawer.cache.pop(id(value), None)
        for part in value.parts():
            forget(drawer, part)


def _is_dtype(value: object) -> bool:
    """Return true for a dtype of a framework. A tensor's ``is_floating_point`` is a method, not a boolean."""
    return isinstance(getattr(value, "is_floating_point", None), bool)


def _is_inexact(value: object) -> bool:
    return bool(getattr(value, "is_floating_point", False) or getattr(value, "is_complex", False))


def _weight(value: object) -> int:
    return value.weight() if isinstance(value, Generator) else 1


def may_be_nothing(value: object) -> bool:
    """Return true if a generator is ``nothing()`` or has it as an alternative."""
    if isinstance(value, Either):
        return any(map(may_be_nothing, value.alternatives))
    return isinstance(value, ConstantGenerator) and value.held is NOTHING


def _combined(symbol: str, function: Callable[[Any, Any], Any], left: object, right: object) -> Generator:
    """Return the combination of two values; leave it to a recorded tensor if one is, as in ``random(1, 3) * x``."""
    if hasattr(left, "__torch_function__") or hasattr(right, "__torch_function__"):
        return NotImplemented  # type: ignore[no-any-return]
    return _Arithmetic(symbol, function, left, right)


def _alternatives(value: object) -> tuple[object, ...]:
    # A choice with a ``possibility`` stays one alternative, because flattened alternatives are all equally likely.
    return value.alternatives if isinstance(value, Either) and value.possibility is None else (value,)


def settle(drawer: Drawer, value: object, wanted: object = None) -> Any:
    """Return ``value``, or its value in this attempt if it is a generator."""
    return value.value(drawer, wanted) if isinstance(value, Generator) else value


@runtime_checkable
class _Lookup(Protocol):
    """A type that is looked up on demand, in the schemas of a built-in function."""

    def resolve(self) -> object:
        """Return the type; ``None`` if it is unknown."""


class RandomNumber(Generator):
    """A number in ``[low, high)``: an integer, float or boolean, depending on the wanted type."""

    __slots__ = ("high", "low")

    def __init__(self, low: float | Generator, high: float | Generator) -> None:
        """Refuse an empty range now if both bounds are known."""
        self.low, self.high = low, high
        if not isinstance(low, Generator) and not isinstance(high, Generator):
            _refuse_empty(low, high)

    def __repr__(self) -> str:
        return f"random({self.low!r}, {self.high!r})"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Draw a value of the wanted type: of one member of a union, of every member of a tuple."""
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
    if isinstance(wanted, _Lookup):
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
    """Return a ``RandomNumber`` without its explicit type; ``None`` for any other value."""
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
    """Draw one of several alternatives; within 20 cases, each occurs together with each alternative of other choices.

    With ``possibility``, the first of two alternatives has that probability instead.
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
    """Draw the host or the device of the candidate."""
    return cast("torch.device", Either((Device(HOST_DEVICE), Device(OWN_DEVICE))))


def cpu_device() -> torch.device:
    """Return the host as a device."""
    return cast("torch.device", ConstantGenerator(Device(HOST_DEVICE)))


def gpu_device() -> torch.device:
    """Return the device of the candidate."""
    return cast("torch.device", ConstantGenerator(Device(OWN_DEVICE)))
