"""The declaration of a test of a data loader: an attribute of the decorated function, like that of ``@autotest``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from ci_autotest.errors import AuthorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Attribute of a decorated function that holds its ``LoaderDeclaration``.
ATTRIBUTE: Final = "__ci_autotest_loader__"
#: Prefix of a file name that stands for a function of a module: ``loader:MODULE:FACTORY?workers=4&epochs=2``.
FACTORY: Final = "loader:"
_FACTORY: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
#: Option: least and greatest value, and what it counts.
_COUNTS: Final = {
    "workers": (2, 64, "worker processes"),
    "epochs": (1, 16, "epochs"),
    "ranks": (1, 16, "ranks"),
}


@dataclass(frozen=True, slots=True)
class LoaderDeclaration:
    """The checked options of ``@loadertest`` for one test.

    Args:
        body: The function as written.
        workers: Number of worker processes of the loader.
        epochs: Epochs that are compared with each other.
        ranks: Processes that run the function, as ``torchrun`` would start them.
        id: A name that the test keeps when it moves.
        n: Number of cases: a loader is one.
    """

    body: Callable[..., Any]
    workers: int = 4
    epochs: int = 2
    ranks: int = 1
    id: str | None = None
    n: int = 1


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


def loader_declaration_of(value: object) -> LoaderDeclaration | None:
    """Return the declaration that a decorated function carries."""
    found = getattr(value, ATTRIBUTE, None)
    return found if isinstance(found, LoaderDeclaration) else None


def factory_file(factory: str, **options: int) -> str:
    """Return the file name that stands for ``MODULE:FACTORY`` with options of ``loadertest()``.

    Raises:
        UsageError: The text has another form, or an option a value that it does not take.
    """
    if not _FACTORY.fullmatch(factory):
        message = f"'{factory}' names no function. Write MODULE:FACTORY, such as mypackage.data:make_loader."
        raise UsageError(message)
    file = f"{FACTORY}{factory}?{urlencode(options)}"
    try:
        loader_declared(lambda: None, factory_options(file))
    except AuthorError as error:
        message = str(error).replace("loadertest(", "loader(", 1)
        raise UsageError(message) from None
    return file


def factory_of(file: str) -> str:
    """Return ``MODULE:FACTORY`` if a file name stands for a function of a module, else an empty text."""
    return file.removeprefix(FACTORY).partition("?")[0] if file.startswith(FACTORY) else ""


def factory_options(file: str) -> dict[str, Any]:
    """Return the options of ``loadertest()`` that a factory's file name gives."""
    given = {name: int(value) for name, value in parse_qsl(file.partition("?")[2])}
    return {"workers": 4, "epochs": 2, "ranks": 1, "id": factory_of(file), **given}
