"""Generators of the user, each defined by a function that takes draws and returns a value."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import TensorSpec
from ci_autotest.record.context import recorder_for
from ci_autotest.record.draw.dtypes import dtype_name
from ci_autotest.record.draw.generators import Generator, settle
from ci_autotest.record.draw.tensor_data import elements
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ci_autotest.record.draw.draws import Drawer

    T = TypeVar("T")
    P = ParamSpec("P")


class Draws:
    """Source of a user generator's draws; every draw except those of ``array`` is logged and can be edited.

    Args:
        drawer: The drawer of the attempt.
        site: The generator's site; its draws are numbered below it.
        wanted: The type that the callee expects; ``None`` if unknown.
    """

    __slots__ = ("_count", "_drawer", "_site", "wanted")

    def __init__(self, drawer: Drawer, site: str, wanted: object) -> None:
        self._drawer = drawer
        self._site = site
        self._count = 0
        self.wanted = wanted

    def integer(self, low: int, high: int) -> int:
        """Draw an integer in ``[low, high)``."""
        _refuse_empty(low, high)
        return self._drawer.integer(self._next(), low, high)

    def floating(self, low: float, high: float) -> float:
        """Draw a float in ``[low, high)``."""
        _refuse_empty(low, high)
        return self._drawer.floating(self._next(), low, high)

    def boolean(self, possibility: float = 0.5) -> bool:
        """Draw a boolean that is true with probability ``possibility``."""
        return self._drawer.boolean(self._next(), possibility)

    def choice(self, alternatives: Sequence[T]) -> T:
        """Draw one of several values."""
        _refuse_empty(0, len(alternatives))
        return alternatives[self._drawer.choice(self._next(), len(alternatives))]

    def value(self, generator: Any, wanted: object = None) -> Any:
        """Return this attempt's value of another generator."""
        return settle(self._drawer, generator, wanted)

    def array(self, shape: tuple[int, ...], dtype: Any = float, low: float = -1.0, high: float = 1.0) -> NDArray[Any]:
        """Return an array with drawn elements in ``[low, high)``; half precisions are returned as float32."""
        return elements(self._drawer.streams, self._next(), dtype_name(dtype), shape, (low, high))

    def _next(self) -> str:
        self._count += 1
        return f"{self._site}.{self._count - 1}"


class Custom(Generator):
    """A user's generator with its arguments."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def __repr__(self) -> str:
        return f"{getattr(self.function, '__name__', 'custom')}(...)"

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Call the function; a tensor that it returns becomes one input, however often the generator is used."""
        args = [settle(drawer, item, None) for item in self.args]
        kwargs = {name: settle(drawer, item, None) for name, item in self.kwargs.items()}
        value = self.function(Draws(drawer, site, wanted), *args, **kwargs)
        if isinstance(value, Generator):
            return value.value(drawer, wanted)
        if isinstance(value, RecordedTensor) or not isinstance(value, torch.Tensor):
            return value
        return _recorded(value, repr(self))


class _Decorator:
    """``generator``: it decorates functions, and its use as a base class is refused with a hint."""

    def __call__(self, function: Callable[Concatenate[Draws, P], T]) -> Callable[P, T]:
        return _generator(function)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        message = (
            "a generator is no class to derive from. Decorate a function: `@generator def odd(draws): return 2 * "
            "draws.integer(0, 5) + 1`, and write `odd()` where OneFlow's test has an object of the class."
        )
        raise AuthorError(message)


def _generator(function: Callable[Concatenate[Draws, P], T]) -> Callable[P, T]:
    """Make a generator from a function.

    Raises:
        AuthorError: The argument cannot be called.
    """
    if not callable(cast("object", function)):
        message = f"generator() got {function!r}. Decorate a function whose first argument is the draws."
        raise AuthorError(message)

    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> T:
        return cast(
            "T", Custom(function, args, kwargs)
        )  # typed as its value, so that type checkers accept it as an argument

    return make


generator = _Decorator()
"""Make a generator from a function whose first argument is a ``Draws``.

For example: ``@generator def odd(draws, below): return 2 * draws.integer(0, below // 2) + 1``, used as ``odd(9)``.
"""


def _recorded(tensor: torch.Tensor, name: str) -> object:
    # The input is described as contiguous below, and the user's tensor may be a view with other strides.
    source = tensor.detach().clone(memory_format=torch.contiguous_format)
    spec = TensorSpec.plain(dtype_name(source.dtype), tuple(source.shape), requires_grad=tensor.requires_grad)
    return recorder_for(name).tensor(source, spec)


def _refuse_empty(low: float, high: float) -> None:
    if high <= low:
        message = f"a draw of [{low}, {high}) has an empty range. Give low below high."
        raise AuthorError(message)
