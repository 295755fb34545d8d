"""Completion in the shell: files, names of their tests, families of the suite, and candidates.

A file is parsed and not imported, so that a key press runs no test code.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

from click.shell_completion import CompletionItem

from ci_autotest.extensions import sources
from ci_autotest.values.entry_points import SOURCE, SOURCES, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

_SUITE: Final = "builtin:suite"
_DECORATORS: Final = frozenset({"autotest", "loadertest"})


def tests_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's interface
    """Return what may follow in ``[PATH[::TEST] | builtin:suite[::FAMILY]]``."""
    file, separator, _ = incomplete.partition("::")
    if not separator:
        begun = incomplete.partition("/")[0]
        own = [source for source in sources() if not source.candidate]
        families = (f"{begun}/{family}" for source in own if source.name == begun for family in source.families)
        places = (
            _SUITE, *(source.name for source in own), *(families if "/" in incomplete else ()),
            *(SOURCE + name for name in names_in(SOURCES)),
        )  # fmt: skip
        return [
            *(CompletionItem(place) for place in places if place.startswith(incomplete)),
            CompletionItem(incomplete, type="file"),
        ]
    names = _families() if file == _SUITE else _test_names(Path(file))
    found = (f"{file}::{name}" for name in names)
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


def candidates_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - likewise
    """Return the candidates of the configuration, and the built-in ones."""
    # Not at the top: `--help` answers without msgspec.
    from ci_autotest import config as configuration  # noqa: PLC0415
    from ci_autotest.errors import ConfigError  # noqa: PLC0415

    given = ctx.params.get("config")
    file = Path(given) if given is not None else configuration.find(Path.cwd())
    try:
        own = [candidate.name for candidate in configuration.read(file).candidates] if file is not None else []
    except ConfigError:
        own = []
    return [
        CompletionItem(name) for name in dict.fromkeys([*own, *configuration.BUILT_IN]) if name.startswith(incomplete)
    ]


def _families() -> tuple[str, ...]:
    from ci_autotest.discovery import families  # noqa: PLC0415 - likewise

    return families()


def _test_names(file: Path) -> list[str]:
    try:
        module = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return list(_decorated(module.body, ""))


def _decorated(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _decorated(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and any(map(_is_autotest, node.decorator_list)):
            yield prefix + node.name


def _is_autotest(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in _DECORATORS
