"""Arguments of a test's body: a test case if it takes one, and those of ``pytest.mark.parametrize``.

OneFlow's tests are functions of one ``test_case``, while pytest passes fixtures by the names in a function's signature.
So a first parameter with one of the usual names is a test case, and the signature for pytest leaves it out.
"""

from __future__ import annotations

import inspect
import os
import re
import unittest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_CASE_NAMES: Final = frozenset({"test_case", "testcase", "case", "tc", "_", "self"})
#: The address in the default ``repr`` of an object.
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")
#: Greatest number of characters of an argument in a test's name.
_SHOWN_AT_MOST: Final = 40


def required(body: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters that a caller must give."""
    parameters = inspect.signature(body).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]


def takes_test_case(body: Callable[..., object]) -> bool:
    """Return true if a function's first parameter is a test case, judged by its name."""
    wanted = required(body)
    return bool(wanted) and wanted[0].name in _CASE_NAMES


def fixtures_of(body: Callable[..., object], given: Collection[str], *, is_method: bool) -> list[str]:
    """Return the names of the arguments that only the user's own call, or a fixture of pytest, could give.

    Args:
        body: The function as written.
        given: Names of the arguments that ``parametrize`` gives.
        is_method: True if its first parameter is an object of its class.
    """
    is_given = is_method or takes_test_case(body)
    return [parameter.name for parameter in required(body)[is_given:] if parameter.name not in given]


def with_case(
    body: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, with a new test case first if the body takes one and got none."""
    is_missing = takes_test_case(body) and not args and required(body)[0].name not in kwargs
    return ((unittest.TestCase("__init__"),) if is_missing else args), dict(kwargs)


def callers_signature(body: Callable[..., object]) -> inspect.Signature:
    """Return the signature for pytest: that of a function without its test case, that of a method unchanged."""
    signature = inspect.signature(body)
    is_function = body.__qualname__.rpartition(".")[0] in {"", _outer(body)}
    if not (is_function and takes_test_case(body)):
        return signature
    hidden = required(body)[0].name
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name != hidden])


def _outer(body: Callable[..., object]) -> str:
    outer = body.__qualname__.rpartition(".")[0]
    return outer if outer.endswith("<locals>") else ""


def case_name(body: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return ``[3-same]`` for a call with the arguments 3 and ``same``, or nothing for a call without arguments.

    The name selects the inputs, so it must be the same in every process. Hence the object of a method is left out. A
    path, or an argument with an address in its text, is shown by its type.
    """
    own = args[1:] if args and _is_owner(args[0], body) else args
    shown = [_shown(value) for value in (*own, *kwargs.values()) if not isinstance(value, unittest.TestCase)]
    return f"[{'-'.join(shown)}]" if shown else ""


def _is_owner(value: object, body: Callable[..., object]) -> bool:
    """Return true if a body is a method of an object's class or of a base class."""
    return any(body.__qualname__ == f"{kind.__qualname__}.{body.__name__}" for kind in type(value).__mro__)


def _shown(value: object) -> str:
    named = str(getattr(value, "__name__", "")) or _text(value).removeprefix("torch.")
    return "".join(c if c.isprintable() and c not in "[]" else "_" for c in named)[:_SHOWN_AT_MOST]


def _text(value: object) -> str:
    is_path = isinstance(value, os.PathLike)
    return type(value).__name__ if is_path or _ADDRESS.search(str(value)) is not None else str(value)


class ParametrizedCall(NamedTuple):
    """A call that ``pytest.mark.parametrize`` defines: its arguments, and the marks of its ``pytest.param``."""

    given: dict[str, Any]
    marks: tuple[Any, ...]


def parametrized(function: Callable[..., object], body: Callable[..., object]) -> list[ParametrizedCall]:
    """Return each call that ``pytest.mark.parametrize`` defines, in pytest's order, or one without arguments.

    Args:
        function: The decorated function, which carries the marks.
        body: The function as written, which gives the order of the arguments.
    """
    rows = [ParametrizedCall({}, ())]
    for mark in getattr(function, "pytestmark", ()):
        if getattr(mark, "name", "") == "parametrize":
            rows = [
                ParametrizedCall({**row.given, **more.given}, (*row.marks, *more.marks))
                for more in _rows(*mark.args[:2], **mark.kwargs)
                for row in rows
            ]
    order = list(inspect.signature(body).parameters)
    return [row._replace(given={name: row.given[name] for name in order if name in row.given}) for row in rows]


def _rows(argnames: Any, argvalues: Any, **_options: Any) -> list[ParametrizedCall]:
    names = [name.strip() for name in argnames.split(",")] if isinstance(argnames, str) else list(argnames)
    found = []
    for item in argvalues:
        # It is recognized by its name, because pytest is not imported here.
        is_set = type(item).__name__ == "ParameterSet"
        values = item.values if is_set else [item] if len(names) == 1 else item
        found.append(ParametrizedCall(dict(zip(names, values, strict=True)), tuple(item.marks) if is_set else ()))
    return found
