"""The source of functions of this package and of everything they use, for scripts that run without the package."""

from __future__ import annotations

import ast
import re
import symtable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

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


class FunctionLibrary:
    """The functions of some modules, of which the parts of a script take those that they use, each once.

    A name that a module only declares, or imports of another package, is bound by the script.

    Attributes:
        imports: The statements that import what the taken functions use.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        """Make the library of a script.

        Args:
            modules: Dotted paths; of two that define a name, the first counts.
        """
        self._modules = modules
        self._collected = _Collected()

    @property
    def taken(self) -> list[str]:
        """The names of the functions that were taken."""
        return list(self._collected.texts)

    @property
    def imports(self) -> set[str]:
        """The statements that import what the taken functions use."""
        return self._collected.imports

    def used_by(self, text: str, bound: Collection[str] = ()) -> list[str]:
        """Return the texts of the definitions that a part of a script uses and that no part before it has taken.

        Args:
            text: The part.
            bound: Names that it means otherwise.
        """
        tree = ast.parse(text)
        own = {*bound, *(name for node in tree.body for name in _bound(node))}
        before = set(self._collected.texts)
        for name in dict.fromkeys(name for node in tree.body for name in _referred(node)):
            if name not in own:
                self._take(name)
        return [own_text for name, own_text in self._collected.texts.items() if name not in before]

    def _take(self, name: str) -> None:
        if name in self._collected.texts:
            return
        places = ((_statements(module).get(name), module) for module in self._modules)
        defined = ((node, module) for node, module in places if node is not None and not _is_declaration(node))
        node, module = next(defined, (None, ""))
        source = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if source.startswith(_OWN):
            node, module = _statements(source)[name], source
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._collected.import_(node, name)
        elif node is not None:
            self._collected.texts[name] = _segment(module, node)
            # A definition may stand above what it uses: no function is called before all of them are defined.
            for other in _referred(node):
                self._take(other)


class _Collected:
    """Definitions, each after those that it uses."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.texts: dict[str, str] = {}
        self._origins: dict[str, str] = {}

    def take(self, module: str, name: str) -> None:
        """Add the definition of a name in a module, after the definitions that it uses; builtins need none."""
        node = _statements(module).get(name)
        if node is None:
            return
        if isinstance(node, ast.Import):
            self.import_(node, name)
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

    def import_(self, node: ast.Import | ast.ImportFrom, name: str) -> None:
        """Add the import of one name, because the statement may import others that the script does not use."""
        if isinstance(node, ast.Import):
            self.imports.add(ast.unparse(node))
            return
        alias = next(each for each in node.names if (each.asname or each.name) == name)
        self.imports.add(ast.unparse(ast.ImportFrom(node.module, [alias], node.level)))

    def _imported(self, node: ast.ImportFrom, name: str) -> None:
        source = node.module or ""
        alias = next(each for each in node.names if (each.asname or each.name) == name)
        if not source.startswith(_OWN):
            self.import_(node, name)
        elif alias.asname in {None, alias.name}:
            self.take(source, alias.name)
        else:
            message = f"{source}.{alias.name} is imported under another name: one script cannot hold it."
            raise ProgramError(message)


def _text(module: str) -> str:
    path = _PACKAGE.parent.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"the text of {module} cannot be read: {error.strerror}."
        raise ProgramError(message) from error


@cache
def _statements(module: str) -> dict[str, ast.stmt]:
    """Return the statements of a module by the names that they bind."""
    return {name: bound for node in ast.parse(_text(module)).body for name, bound in _bindings(node)}


def _bindings(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that a statement binds with what binds them: ``import *`` is an import of each name."""
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        for name in _statements(node.module or ""):
            yield name, ast.ImportFrom(node.module, [ast.alias(name)], node.level)
    else:
        for name in _bound(node):
            yield name, node


def _is_declaration(node: ast.stmt) -> bool:
    """Whether a statement says the type of a name and no more: the script binds it."""
    return isinstance(node, ast.AnnAssign) and node.value is None


def _segment(module: str, node: ast.stmt) -> str:
    """Return the text of a definition as it is written, without annotations and comments for linters."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    lines = _text(module).splitlines()
    for line, start, end in sorted(_annotated(node, lines), reverse=True):
        lines[line] = lines[line][:start] + lines[line][end:]
    return "\n".join(re.sub(r"  # (type: ignore|noqa|fmt:).*", "", line) for line in lines[first - 1 : node.end_lineno])


def _annotated(node: ast.stmt, lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the line and the columns of each annotation of a definition, with its sign; each is on one line."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg) and each.annotation is not None:
            yield each.lineno - 1, each.col_offset + len(each.arg), each.annotation.end_col_offset or 0
        elif isinstance(each, ast.FunctionDef) and each.returns is not None:
            line = each.returns.lineno - 1
            yield line, lines[line].rindex(" ->", 0, each.returns.col_offset), each.returns.end_col_offset or 0
        elif isinstance(each, ast.AnnAssign):
            yield each.lineno - 1, each.target.end_col_offset or 0, each.annotation.end_col_offset or 0


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
    """Return the global names that a definition uses when it runs, so none of its annotations."""
    # The scripts begin with `from __future__ import annotations`, so no annotation is evaluated.
    annotations = {id(each) for part in ast.walk(node) for noted in _annotations(part) for each in ast.walk(noted)}
    used = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in annotations]
    top = symtable.symtable(ast.unparse(node), "<definition>", "exec")
    shared = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    waiting = list(top.get_children())
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        shared |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return [name for name in dict.fromkeys(used) if name in shared]


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    for name in ("annotation", "returns"):
        found = getattr(node, name, None)
        if isinstance(found, ast.expr):
            yield found
