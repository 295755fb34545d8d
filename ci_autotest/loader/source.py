"""Functions of modules that return a data loader, as a source of tests: ``ci-autotest loader MODULE:FACTORY``."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from ci_autotest.errors import AuthorError, UsageError
from ci_autotest.loader.declaration import loader_declared
from ci_autotest.values.result import LOADER_CANDIDATE

#: Prefix of a file name that stands for a function of a module: ``loader:MODULE:FACTORY?workers=4&epochs=2``.
FACTORY: Final = "loader:"
_FACTORY: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


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


class FactorySource:
    """The source of these functions; methods and attributes are those of ``ci_autotest.extensions.Source``."""

    name = FACTORY
    families = ()
    candidate = LOADER_CANDIDATE
    worker = "ci_autotest.loader.factory:Factories"

    def owns(self, file: str) -> bool:
        """Whether a file name stands for a function."""
        return bool(factory_of(file))

    def files(self, location: str) -> list[str]:
        """Return the function, which only its import can refuse."""
        return [location]

    def shown(self, file: str) -> str:
        """Return ``MODULE:FACTORY``."""
        return factory_of(file)


SOURCES: Final = (FactorySource(),)
