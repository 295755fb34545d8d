"""How a test's body is called: with a test case where it wants one, with the arguments of ``parametrize`` where given.

OneFlow's tests are functions of one ``test_case``; pytest hands over what a function's signature asks for by name. So
the first parameter is a test case where it has one of the names that people give it, and pytest is not shown it.
"""

from __future__ import annotations

import inspect
import unittest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CASE_NAMES: Final = frozenset({"test_case", "testcase", "case", "tc", "_", "self"})
#: Characters of an argument's text in a test's name.
_SHOWN_AT_MOST: Final = 40


def required(body: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters that a caller must give."""
    parameters = inspect.signature(body).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]


def takes_test_case(body: Callable[..., object]) -> bool:
    """Whether a function's first parameter stands for a test case."""
    wanted = required(body)
    return bool(wanted) and wanted[0].name in _CASE_NAMES


def with_case(
    body: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, with a test case first where the body wants one and was given none."""
    is_missing = takes_test_case(body) and not args and required(body)[0].name not in kwargs
    return ((unittest.TestCase("__init__"),) if is_missing else args), dict(kwargs)


def callers_signature(body: Callable[..., object]) -> inspect.Signature:
    """Return the signature that pytest is shown: a function's without its test case, a method's as it is."""
    signature = inspect.signature(body)
    is_function = body.__qualname__.rpartition(".")[0] in {"", _outer(body)}
    if not (is_function and takes_test_case(body)):
        return signature
    hidden = required(body)[0].name
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name != hidden])


def _outer(body: Callable[..., object]) -> str:
    """Return the path of the function that a local function stands in."""
    outer = body.__qualname__.rpartition(".")[0]
    return outer if outer.endswith("<locals>") else ""


def case_name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return ``[3-same]`` for a call with arguments 3 and ``same``, nothing for one without: its inputs are its own."""
    values = [*args, *kwargs.values()]
    shown = [_shown(value) for value in values if not isinstance(value, unittest.TestCase)]
    return f"[{'-'.join(shown)}]" if shown else ""


def _shown(value: object) -> str:
    plain = isinstance(value, bool | int | float | str | tuple | list | None)
    named = str(getattr(value, "__name__", "") or (value if plain else str(value).removeprefix("torch.")))
    return "".join(c if c.isprintable() and c not in "[]" else "_" for c in named)[:_SHOWN_AT_MOST]


def parametrized(function: Callable[..., object], body: Callable[..., object]) -> list[dict[str, Any]]:
    """Return the arguments of each call that ``pytest.mark.parametrize`` asks for, in its order; one empty without it.

    Args:
        function: As decorated: it carries the marks.
        body: As written: it has the order of the arguments.
    """
    rows: list[dict[str, Any]] = [{}]
    for mark in getattr(function, "pytestmark", ()):
        if getattr(mark, "name", "") == "parametrize":
            rows = [{**row, **given} for given in _rows(*mark.args[:2], **mark.kwargs) for row in rows]
    order = list(inspect.signature(body).parameters)
    return [{name: row[name] for name in order if name in row} for row in rows]


def _rows(argnames: Any, argvalues: Any, **_options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - pytest's
    names = [name.strip() for name in argnames.split(",")] if isinstance(argnames, str) else list(argnames)
    found = []
    for item in argvalues:
        values = item.values if type(item).__name__ == "ParameterSet" else [item] if len(names) == 1 else item
        found.append(dict(zip(names, values, strict=True)))
    return found
