"""What other packages add to this one: their entry points, which are read when something names them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import ConfigError, error_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Kinds of candidates: subclasses of ``ci_autotest.kinds.Candidate``.
KINDS: Final = "ci_autotest.kinds"
#: Sources of tests: packages whose modules define tests.
SOURCES: Final = "ci_autotest.sources"
#: Begins the path of a source, and of the files that its modules are.
SOURCE: Final = "source:"


def _points(group: str) -> list[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, and most runs name none

    return list(entry_points(group=group))


def names_in(group: str) -> list[str]:
    """Return the names of a group."""
    return sorted({point.name for point in _points(group)})


def entry_of(group: str, name: str, what: str) -> EntryPoint:
    """Return the entry point of a name.

    Args:
        group: The group.
        name: The name.
        what: What it is, for messages: ``backend 'toy'``.

    Raises:
        ConfigError: No package has one, or two have.
    """
    found = {point.value: point for point in _points(group) if point.name == name}
    if len(found) > 1:
        packages = " and ".join(sorted(str(point.dist.name) for point in found.values() if point.dist is not None))
        message = f"{what} is provided by two packages, {packages}. Uninstall one of them."
        raise ConfigError(message)
    if not found:
        known = names_in(group)
        nearest = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Installed: {', '.join(known) or 'none'}."
        message = f"{what} is provided by no installed package. {hint}"
        raise ConfigError(message)
    return next(iter(found.values()))


def loaded(point: EntryPoint, what: str) -> Any:
    """Return what an entry point names.

    Raises:
        ConfigError: Its package cannot be imported.
    """
    try:
        return point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may end its process, too
        package = f" of package {point.dist.name}" if point.dist is not None else ""
        message = (
            f"{what}{package} cannot be imported: {type(error).__name__}: {' '.join(error_text(error).split())[:300]}."
        )
        raise ConfigError(message) from error


def module_in(file: str) -> str:
    """Return the module that ``source:NAME/MODULE`` stands for.

    Raises:
        ConfigError: No package has that source, or two have.
    """
    name, _, module = file.removeprefix(SOURCE).partition("/")
    package = entry_of(SOURCES, name, f"source '{name}'").value
    return f"{package}.{module}" if module else package
