"""Check of a printed program that names kernels which only a pull request has: it computes, and does nothing else.

The text is this package's own: it is printed from a checked program. What a stranger chooses of it are names and plain
values. The check is on the text all the same, because that is what a reader pastes: a value that is harmless for an
operator of torch's may be none for a function that the pull request names, such as ``pip.main(["install", "x"])``.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from ci_autotest.program.python_names import is_module, is_pythons

#: Modules of Python's that a program needs.
_PYTHONS: Final = frozenset({"io", "operator"})
_BUILTINS: Final = frozenset({
    "range", "len", "int", "float", "bool", "complex", "tuple", "list", "dict", "slice", "zip", "enumerate",
    "isinstance", "super", "map", "sum", "any", "all", "min", "max", "abs", "next", "iter", "type", "print",
})  # fmt: skip
_STATEMENTS: Final = (
    ast.Module, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AugAssign, ast.Expr,
    ast.Return, ast.With, ast.For, ast.If, ast.Try, ast.Raise, ast.Assert, ast.Pass,
)  # fmt: skip
_EXPRESSIONS: Final = (
    ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Subscript, ast.Slice,
    ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.Starred, ast.Lambda, ast.IfExp, ast.ListComp, ast.GeneratorExp,
)  # fmt: skip
_PARTS: Final = (
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword, ast.arguments, ast.arg, ast.alias,
    ast.withitem, ast.comprehension, ast.ExceptHandler,
)  # fmt: skip
_ALLOWED: Final = (*_STATEMENTS, *_EXPRESSIONS, *_PARTS)
#: Methods with underscores that a program defines or calls.
_SPECIAL: Final = frozenset({"__init__", "__torch_function__", "__name__", "__class__"})
#: Words and equations: ``mean``, ``ij,jk->ik``, ``cuda:0``.
_TEXT: Final = re.compile(r"[\w ,.:>-]{0,40}", re.ASCII)
#: The tensors of a finding, in a report's folder.
_FILE: Final = re.compile(r"[\w-]{1,60}/findings/[\w-]{1,120}/tensors\.safetensors", re.ASCII)
_TENSOR_FILE: Final = ("safetensors.torch", "load_file")


def is_plain_program(text: str) -> bool:
    """Whether a program only imports, computes and compares."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    modules = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    are_plain = all(isinstance(node, _ALLOWED) and _is_plain(node, own, modules) for node in nodes)
    return are_plain and not _has_stray_text(tree, modules)


def _is_plain(node: ast.AST, own: set[str], modules: set[str]) -> bool:
    match node:
        case ast.Import(names):
            return all(_is_module(alias) for alias in names)
        case ast.ImportFrom(module, [ast.alias(name, None)], 0):
            return (module, name) == _TENSOR_FILE
        case ast.ImportFrom():
            return False
        case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return not name.startswith("_") or name in _SPECIAL
        case ast.Name(name):
            return name in own or name in modules or name in _BUILTINS or name in {"Exception", "BaseException"}
        case ast.Constant(str(value)):
            return _TEXT.fullmatch(value) is not None or _FILE.fullmatch(value) is not None
        case _:
            return True


def _is_module(alias: ast.alias) -> bool:
    root = alias.name.partition(".")[0]
    return alias.asname is None and is_module(alias.name) and (root in _PYTHONS or not is_pythons(root))


def _has_stray_text(node: ast.AST, modules: set[str], *, may_have: bool = False) -> bool:
    """Whether a text stands where a function of the pull request might get it: those get tensors, numbers and words.

    Args:
        node: A part of the program.
        modules: Roots of the modules that the program imports.
        may_have: Whether the part is an argument of a function or method of torch's.
    """
    match node:
        case ast.Constant(str(value)):
            return not may_have and "->" not in value and _FILE.fullmatch(value) is None
        case ast.Subscript(value, ast.Constant()):
            return _has_stray_text(value, modules)
        case ast.Call(func, args, keywords):
            is_of_torch = _root(func) in {"torch", "float", "complex", "load_file"}
            is_method = isinstance(func, ast.Attribute) and _root(func) not in modules
            words = [arg for arg in args if isinstance(arg, ast.Constant)] if is_method else []
            states = [arg for arg in args if isinstance(arg, ast.Dict)] if is_method else []
            others = [arg for arg in args if arg not in words and arg not in states]
            values = [word.value for word in keywords if not isinstance(word.value, ast.Constant)]
            values += [value for state in states for value in state.values]
            parts = (func, *others, *values)
            return any(_has_stray_text(part, modules, may_have=is_of_torch) for part in parts)
        case _:
            return any(_has_stray_text(part, modules, may_have=may_have) for part in ast.iter_child_nodes(node))


def _root(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
