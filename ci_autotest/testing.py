"""The names for test authors, with types. Users import them from ``ci_autotest``."""

from __future__ import annotations

import functools
import inspect
import sys
import unittest
from typing import TYPE_CHECKING, Any, TypeVar

from ci_autotest.alignment.direct import SAID_ONCE, run_here, setting_of
from ci_autotest.case import test_key
from ci_autotest.errors import AuthorError
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.current import CURRENT
from ci_autotest.record.custom import Draws, generator
from ci_autotest.record.declare import ATTRIBUTE, Declaration
from ci_autotest.record.dtypes import random_dtype
from ci_autotest.record.functions import Namespace
from ci_autotest.record.matrices import invertible_tensor, positive_definite_tensor, symmetric_tensor
from ci_autotest.record.profiles import PROFILES
from ci_autotest.record.special import choice_tensor, index_tensor, permutation_tensor
from ci_autotest.record.tensors import draw_tensor
from ci_autotest.record.variables import (
    constant,
    cpu_device,
    gpu_device,
    nothing,
    oneof,
    random,
    random_bool,
    random_device,
    random_or_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from ci_autotest.record.generators import Generator

    F = TypeVar("F", bound=Callable[..., Any])
else:
    import torch as _torch

    torch = Namespace("torch", _torch)

__all__ = [
    "Draws",
    "autotest",
    "choice_tensor",
    "constant",
    "cpu_device",
    "generator",
    "gpu_device",
    "index_tensor",
    "invertible_tensor",
    "nothing",
    "oneof",
    "permutation_tensor",
    "positive_definite_tensor",
    "random",
    "random_bool",
    "random_device",
    "random_dtype",
    "random_or_nothing",
    "random_pytorch_dtype",
    "random_pytorch_tensor",
    "random_tensor",
    "symmetric_tensor",
    "torch",
]


def random_tensor(
    ndim: int | Generator | None = None,
    dim0: int | Generator | None = None,
    dim1: int | Generator | None = None,
    dim2: int | Generator | None = None,
    dim3: int | Generator | None = None,
    dim4: int | Generator | None = None,
    low: float | Generator | None = None,
    high: float | Generator | None = None,
    dtype: Any = float,  # noqa: ANN401 - a type, a torch dtype or a generator of one
    requires_grad: bool | Generator = True,
    dims: Sequence[int | Generator | None] | None = None,
) -> torch.Tensor:
    """Return a recorded tensor with drawn shape and data.

    Args:
        ndim: Number of dimensions; drawn from 1 to 5 unless given.
        dim0: Size in elements, or a generator; free (1 to 7) unless given. Likewise ``dim1`` to
            ``dim4``.
        dim1: See ``dim0``.
        dim2: See ``dim0``.
        dim3: See ``dim0``.
        dim4: See ``dim0``.
        low: Least value, in the unit of the elements (default: -1 for floats, -10 for integers).
        high: Upper bound, exclusive (default: 1 for floats, 11 for integers).
        dtype: ``float``, ``int``, ``bool``, ``complex``, a torch dtype, or a generator of one.
        requires_grad: Whether the leaf asks for its gradient; integers and booleans never do.
        dims: Every size in order, for any number of dimensions, instead of ``ndim`` and ``dim0`` to ``dim4``;
            ``None`` in it is free.

    Raises:
        AuthorError: Called outside a test, or with arguments that contradict one another.
    """
    named = (dim0, dim1, dim2, dim3, dim4)
    value: Any
    if dims is None:
        value = draw_tensor(ndim, named, low, high, dtype, requires_grad)
    else:
        if ndim is not None or any(dim is not None for dim in named):
            message = "random_tensor() is given dims and ndim or dim0 to dim4. Give either dims or those."
            raise AuthorError(message)
        value = draw_tensor(len(dims), dims, low, high, dtype, requires_grad)
    return value  # type: ignore[no-any-return]


#: The names of OneFlow's AutoTest for the same two.
random_pytorch_tensor = random_tensor
random_pytorch_dtype = random_dtype


def autotest(
    n: int | None = None,
    auto_backward: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    check_dtype: bool = True,
    profiles: tuple[str, ...] | None = None,
    id: str | None = None,  # noqa: A002 - the name is given from outside
) -> Callable[[F], F]:
    """Declare a function, or a method of a ``unittest.TestCase``, as a test of operators.

    Called by pytest or unittest, the function runs in their process, on ``torch`` and the
    candidates of the nearest ``autotest.yml``, without isolation; ``ci-autotest run`` gives each
    case a watched worker.

    Args:
        n: Cases; the configuration's ``cases`` unless given.
        auto_backward: Whether every output that requires grad is differentiated and gradients are
            compared.
        rtol: Allowed ratio to the reference, with ``atol``; defaults per dtype unless given.
        atol: Allowed difference in the unit of the elements.
        check_dtype: Whether another dtype is a misalignment.
        profiles: Names of profiles to walk through besides ordinary cases; all unless given.
        id: Name of the test that stays when it moves to another file.

    Raises:
        AuthorError: Written without parentheses, only one of ``rtol`` and ``atol`` is given, or a
            profile is unknown.
    """
    given: object = n
    if callable(given):
        message = "@autotest was given the function itself. Write @autotest() with parentheses."
        raise AuthorError(message)
    if (rtol is None) != (atol is None):
        message = "autotest() is given only one of rtol and atol. Write both, or neither for the defaults per dtype."
        raise AuthorError(message)
    unknown = [name for name in profiles or () if name not in PROFILES]
    if unknown:
        message = f"autotest(profiles=...) has no profile {unknown[0]!r}. Use {', '.join(PROFILES)}."
        raise AuthorError(message)

    def decorate(body: F) -> F:
        chosen = tuple(profiles) if profiles is not None else None
        declaration = Declaration(body, n, auto_backward, rtol, atol, check_dtype, chosen, id)

        @functools.wraps(body)
        def test(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the body
            if CURRENT.get() is not None:
                return body(*args, **kwargs)  # one test calls another: the outer one records
            given = args if args or kwargs or not _takes_test_case(body) else (unittest.TestCase("__init__"),)
            __tracebackhide__ = True
            return _run_here(declaration, functools.partial(body, *given, **kwargs))

        del test.__wrapped__  # pytest would take the body's arguments for fixtures
        setattr(test, ATTRIBUTE, declaration)
        return test  # type: ignore[return-value]

    return decorate


def _takes_test_case(body: Callable[..., Any]) -> bool:
    """Whether a function wants one argument more than nothing: OneFlow's ``def test_x(test_case)``."""
    parameters = inspect.signature(body).parameters.values()
    return sum(p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD} for p in parameters) == 1


def _run_here(declaration: Declaration, call: Callable[[], object]) -> None:
    """Run a test in the process that called it, with the inputs that ``ci-autotest run`` gives it, and say so once."""
    __tracebackhide__ = True
    body = declaration.body
    setting = setting_of(body.__code__.co_filename, body.__qualname__, declaration.id)
    seed = setting.config.seed if isinstance(setting.config.seed, int) else 0
    attempts, test = _attempts(), setting.test
    key = test_key(seed, test)
    run_here(declaration, setting, lambda case, number: attempts.attempt(declaration, call, (key, test, case, number)))


@functools.lru_cache(maxsize=1)
def _attempts() -> Attempts:
    sys.stderr.write(SAID_ONCE)
    return Attempts()
