"""Functions of modules that return a data loader, in a worker: each is a test."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_autotest.errors import AuthorError, import_failure
from ci_autotest.loader.declaration import LoaderDeclaration, loader_declared
from ci_autotest.loader.source import factory_of, factory_options
from ci_autotest.run.messages import TestInfo
from ci_autotest.values.finding import Location
from ci_autotest.values.result import LOADER_CANDIDATE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ci_autotest.run.worker.tests import SourceSetting


class Factories:
    """The tests of the source; its methods are those of ``SourceTests``."""

    def __init__(self, setting: SourceSetting) -> None:
        self._root = setting.root.resolve()

    def tests(
        self,
        file: str,
        wanted: Collection[str],  # noqa: ARG002 - it has one test
        at_most: int | None,  # noqa: ARG002 - which is one case
        enter: Callable[[], None],  # noqa: ARG002
    ) -> list[TestInfo]:
        """Return the one test of a function."""
        function, name = inspect.unwrap(_factory(file)), factory_of(file)
        source = Path(inspect.getsourcefile(function) or ".").resolve()
        shown = source.relative_to(self._root) if source.is_relative_to(self._root) else source
        _, line = inspect.getsourcelines(function)
        place = Location(file=shown.as_posix(), line=line)
        return [TestInfo(id=name, file=file, name=name, n=1, location=place, candidate=LOADER_CANDIDATE)]

    def find(self, file: str, name: str) -> tuple[LoaderDeclaration, Callable[..., Any]]:  # noqa: ARG002 - likewise
        """Return the declaration of a function and the function.

        Raises:
            AuthorError: It cannot be imported, or is no function.
        """
        body = _factory(file)
        return loader_declared(body, factory_options(file)), body


def _factory(file: str) -> Callable[..., Any]:
    module, _, name = factory_of(file).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        message = f"{module}:{name} cannot be loaded: {import_failure(error, module)}"
        raise AuthorError(message) from error
    if not callable(found):
        message = f"{module}:{name} is no function. Give one that returns a Dataset or a DataLoader."
        raise AuthorError(message)
    return found  # type: ignore[no-any-return]
