"""The line of source code that makes a generator: an assignment to an attribute, a variable or a name of a module."""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types


@lru_cache(maxsize=256)
def self_line(cls: type, name: str) -> str:
    """Return ``file:line`` of the statement that sets ``self.name`` in a class or its bases; empty if there is none."""
    for owner in cls.__mro__:
        tree, file, first = _tree(owner)
        lines = _lines(tree, name, is_attribute=True)
        lines += [node.lineno for node in _class_body(tree) if _sets(node, name, is_attribute=False)]
        if lines:
            return f"{file}:{first + lines[-1] - 1}"
    return ""


@lru_cache(maxsize=256)
def module_line(module: types.ModuleType, name: str) -> str:
    """Return ``file:line`` of the statement that sets a name of a module; empty if there is none."""
    tree, file, _ = _tree(module)
    lines = [node.lineno for node in (tree.body if tree else ()) if _sets(node, name, is_attribute=False)]
    return f"{file}:{lines[-1]}" if lines else ""


@lru_cache(maxsize=256)
def local_line(code: types.CodeType, name: str) -> str:
    """Return ``file:line`` of the statement that sets a variable of a function, or the function's own line."""
    tree, file, first = _tree(code)
    lines = _lines(tree, name, is_attribute=False)
    return f"{file}:{first + lines[-1] - 1}" if lines else f"{code.co_filename}:{code.co_firstlineno}"


def _tree(source: Any) -> tuple[ast.Module | None, str, int]:
    """Return the syntax tree of a class, module or code, its file, and its first line."""
    try:
        lines, first = inspect.getsourcelines(source)
        # The parser refuses indented code; `cleandoc` measures all lines but the first, so that one is empty.
        text = inspect.cleandoc("\n" + "".join(lines))
        # `getsourcelines` says that a module begins at line 0.
        return ast.parse(text), inspect.getsourcefile(source) or "", max(first, 1)
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None, "", 1


def _lines(tree: ast.Module | None, name: str, *, is_attribute: bool) -> list[int]:
    """Return the lines of a tree that set a name."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt)) if tree is not None else ()
    return [node.lineno for node in statements if _sets(node, name, is_attribute=is_attribute)]


def _class_body(tree: ast.Module | None) -> list[ast.stmt]:
    return tree.body[0].body if tree is not None and tree.body and isinstance(tree.body[0], ast.ClassDef) else []


def _sets(node: ast.AST, name: str, *, is_attribute: bool) -> bool:
    """Whether a statement sets a name to something other than ``None``."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, "value", None)
    # `self.rng = None` only declares the attribute; another statement makes the generator.
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return False
    own = (target for each in targets for target in (each.elts if isinstance(each, ast.Tuple) else [each]))
    return any(
        (isinstance(target, ast.Attribute) and target.attr == name)
        if is_attribute
        else (isinstance(target, ast.Name) and target.id == name)
        for target in own
    )
