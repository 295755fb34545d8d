"""The operator suite that ships with the package (``builtin:suite``): one file per family.

It is written as a user would write tests, so it imports only the public names of ``ci_autotest``, and the decorator
below, which asks each test for more than a user's has by default. Profiles change no size that two tensors share. So
tests without any other size draw boundary sizes themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ci_autotest

F = TypeVar("F", bound=Callable[..., object])

#: Dtypes of tensors without one: two cases of five are in a half precision.
FLOATS = (float, float, "half")
#: The same for operators that also take integers and complex numbers, integers and booleans, or all of them.
NUMBERS = (*FLOATS, "int64", "complex64")
REALS = (*FLOATS, "int64", "bool")
ANY = (*FLOATS, "int64", "bool", "complex64")
#: Each in one or two of 20 cases.
FORMS = ("autocast", "out", "second_derivatives")


def autotest(**options: Any) -> Callable[[F], F]:
    """Declare a test of the suite, with its dtypes and forms unless the test has others."""
    return ci_autotest.autotest(**{"dtypes": FLOATS, "forms": FORMS, **options})


def some_of(parts: int, *calls: Callable[[], object]) -> tuple[object, ...]:
    """Return the results of every ``parts``-th call: of many calls, each is made in a few of 20 cases."""
    at: Any = ci_autotest.oneof(*range(parts))
    return tuple(call() for call in calls[at.value() :: parts])
