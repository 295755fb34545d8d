"""The source of functions of this package and of everything they use, for scripts that run without the package."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_OWN: Final = f"{_PACKAGE.name}."


def definitions(module: str, names: Sequence[str]) -> str:
    """Return the text of functions, preceded by the definitions and imports that they use.

    Args:
        module: Dotted path of a module of this package.
        names: Functions that the module defines or imports.

    Raises:
        ProgramError: A module cannot be read, or two definitions share a name.
    """
    collected = _Collected()
    for name in names:
        collected.take(module, name)
    return "\n\n\n".join(["\n".join(sorted(collected.imports)), *collected.texts.values()]).strip("\n")


class _Collected:
    """Definitions, each after those that it uses."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.texts: dict[str, str] = {}
        self._origins: dict[str, str] = {}
        self._modules: dict[str, dict[str, ast.stmt]] = {}

    def take(self, module: str, name: str) -> None:
        """Add the definition of a name in a module, after the definitions that it uses; builtins need none."""
        node = self._module(module).get(name)
        if node is None:
            return
        if isinstance(node, ast.Import):
            self.imports.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            self._imported(node, name)
        elif self._origins.setdefault(name, module) != module:
            message = f"{name} is defined in {self._origins[name]} and in {module}: one script cannot hold both."
            raise ProgramError(message)
        elif name not in self.texts:
            for other in _referred(node):
                # A recursive function refers to itself.
                if other != name:
                    self.take(module, other)
            # Only now, so that the definitions that it uses are printed before it.
            self.texts.setdefault(name, ast.unparse(_undocumented(node)))

    def _imported(self, node: ast.ImportFrom, name: str) -> None:
        source = node.module or ""
        alias = next(each for each in node.names if (each.asname or each.name) == name)
        if not source.startswith(_OWN):
            # One name only, because the statement may import others that the script does not use.
            self.imports.add(ast.unparse(ast.ImportFrom(source, [alias], node.level)))
        elif alias.asname in {None, alias.name}:
            self.take(source, alias.name)
        else:
            message = f"{source}.{alias.name} is imported under another name: one script cannot hold it."
            raise ProgramError(message)

    def _module(self, module: str) -> dict[str, ast.stmt]:
        """Return the statements of a module by the names that they bind."""
        if module not in self._modules:
            path = _PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except OSError as error:
                message = f"the text of {module} cannot be read: {error.strerror}."
                raise ProgramError(message) from error
            self._modules[module] = {name: bound for node in tree.body for name, bound in self._bindings(node)}
        return self._modules[module]

    def _bindings(self, node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
        """Yield the names that a statement binds with what binds them: ``import *`` is an import of each name."""
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            for name in self._module(node.module or ""):
                yield name, ast.ImportFrom(node.module, [ast.alias(name)], node.level)
        else:
            for name in _bound(node):
                yield name, node


def _undocumented(node: ast.stmt) -> ast.stmt:
    """Return a definition without docstrings, to keep scripts short."""
    for each in ast.walk(node):
        is_scope = isinstance(each, ast.FunctionDef | ast.ClassDef)
        if is_scope and ast.get_docstring(each, clean=False) is not None:  # type: ignore[arg-type]
            each.body = each.body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return node


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield (alias.asname or alias.name).partition(".")[0]
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _referred(node: ast.stmt) -> list[str]:
    """Return the names that a definition uses when it runs, so none of its annotations."""
    # The scripts begin with `from __future__ import annotations`, so no annotation is evaluated.
    annotations = {id(each) for part in ast.walk(node) for noted in _annotations(part) for each in ast.walk(noted)}
    found = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in annotations]
    return list(dict.fromkeys(found))


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    for name in ("annotation", "returns"):
        found = getattr(node, name, None)
        if isinstance(found, ast.expr):
            yield found
