"""The declaration of a test of a data loader: an attribute of the decorated function, like that of ``@autotest``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ci_autotest.errors import AuthorError
from ci_autotest.values.declared_test import DeclaredTest
from ci_autotest.values.result import LOADER_CANDIDATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Option: least and greatest value, and what it counts.
_COUNTS: Final = {
    "workers": (2, 64, "worker processes"),
    "epochs": (1, 16, "epochs"),
    "ranks": (1, 16, "ranks"),
}


@dataclass(frozen=True, slots=True)
class LoaderDeclaration(DeclaredTest):
    """The checked options of ``@loadertest`` for one test.

    Args:
        workers: Number of worker processes of the loader.
        epochs: Epochs that are compared with each other.
        ranks: Processes that run the function, as ``torchrun`` would start them.
        n: Number of cases: a loader is one.
    """

    candidate: ClassVar[str] = LOADER_CANDIDATE
    subject: ClassVar[str] = "a data loader"
    n: int | None = 1
    workers: int = 4
    epochs: int = 2
    ranks: int = 1


def loader_declared(body: Callable[..., Any], given: Mapping[str, Any]) -> LoaderDeclaration:
    """Return the declaration of a test of a data loader.

    Args:
        body: The function as written.
        given: The options of ``loadertest()`` by name, including unknown ones.

    Raises:
        AuthorError: An option is unknown, or has a value that it does not take.
    """
    known = (*_COUNTS, "id")
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"Did you mean {nearest[0]}? " if nearest else ""
            message = f"loadertest() has no option {name!r}. {hint}It has {', '.join(known)}."
            raise AuthorError(message)
    for name, (least, most, what) in _COUNTS.items():
        _check_count(name, given[name], (least, most), what)
    if given["id"] is not None and not (isinstance(given["id"], str) and given["id"].strip()):
        message = f"loadertest(id={given['id']!r}) names no test. Write a text that no other test has."
        raise AuthorError(message)
    return LoaderDeclaration(body, **given)


def _check_count(name: str, count: object, bounds: tuple[int, int], what: str) -> None:
    if callable(count):
        message = "@loadertest was given the function itself. Write @loadertest() with parentheses."
        raise AuthorError(message)
    if isinstance(count, bool) or not isinstance(count, int) or not bounds[0] <= count <= bounds[1]:
        message = f"loadertest({name}={count!r}) is not a number of {what}. Write {bounds[0]} to {bounds[1]}."
        raise AuthorError(message)
