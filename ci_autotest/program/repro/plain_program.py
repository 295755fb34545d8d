"""Check of a printed program that names kernels which only a pull request has: it computes, and does nothing else.

The text is this package's own: it is printed from a checked program. What a stranger chooses of it are names and plain
values. The check is on the text all the same, because that is what a reader pastes: a value that is harmless for an
operator of torch's may be none for a function that the pull request names, such as ``pip.main(["install", "x"])`` or
``pexpect.run(command="reboot")``. So these get tensors, numbers and the words that operators of torch's know.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from ci_autotest.program.ir import READS_OF_MODULES
from ci_autotest.program.python_names import is_module, is_pythons

#: Modules of Python's that a program needs.
_PYTHONS: Final = frozenset({"io", "operator"})
_BUILTINS: Final = frozenset({
    "range", "len", "int", "float", "bool", "complex", "tuple", "list", "dict", "slice", "zip", "enumerate",
    "isinstance", "super", "map", "sum", "any", "all", "min", "max", "abs", "next", "iter", "type", "print",
})  # fmt: skip
_STATEMENTS: Final = (
    ast.Module, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AugAssign, ast.Expr,
    ast.Return, ast.Delete, ast.With, ast.For, ast.If, ast.Try, ast.Raise, ast.Assert, ast.Pass,
)  # fmt: skip
_EXPRESSIONS: Final = (
    ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Subscript, ast.Slice,
    ast.JoinedStr, ast.FormattedValue, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.Starred, ast.Lambda,
    ast.IfExp, ast.ListComp, ast.GeneratorExp,
)  # fmt: skip
_PARTS: Final = (
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword, ast.arguments, ast.arg, ast.alias,
    ast.withitem, ast.comprehension, ast.ExceptHandler,
)  # fmt: skip
_ALLOWED: Final = (*_STATEMENTS, *_EXPRESSIONS, *_PARTS)
#: Methods with underscores that a program defines or calls.
_SPECIAL: Final = frozenset({"__init__", "__torch_function__", "__name__", "__class__"})
#: Words for functions of torch's: ``mean``, ``cuda:0``.
_TEXT: Final = re.compile(r"[\w ,.:>-]{0,40}", re.ASCII)
_EQUATION: Final = re.compile(r"[A-Za-z.]{0,12}(?:,[A-Za-z.]{0,12}){0,4}->[A-Za-z.]{0,12}")
#: Words of operators: reductions, modes, kinds of padding, of rounding, of an approximation, of an order.
_WORDS: Final = frozenset({
    "none", "mean", "sum", "batchmean", "add", "amax", "amin", "prod", "multiply", "max", "min", "nearest",
    "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area", "constant", "reflect", "replicate",
    "circular", "zeros", "border", "reflection", "same", "valid", "trunc", "floor", "tanh", "relu", "gelu", "ij", "xy",
    "left", "right", "fro", "nuc",
    "reduced", "complete", "r", "L", "U", "ortho", "forward", "backward", "lower", "higher", "midpoint", "cpu", "cuda",
})  # fmt: skip
#: Of a message that a program raises or prints.
_MESSAGE_CHARS: Final = 400
#: The tensors of a finding, in a report's folder.
_FILE: Final = re.compile(r"[\w-]{1,60}/findings/[\w-]{1,120}/tensors\.safetensors", re.ASCII)
_ERRORS: Final = frozenset({"Exception", "BaseException", "AssertionError", "RuntimeError", "ValueError", "TypeError"})
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
    if own & {"torch", "float", "complex", _TENSOR_FILE[1], "print"}:
        return False
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
        case ast.FunctionDef(name=name, decorator_list=lines) | ast.ClassDef(name=name, decorator_list=lines):
            return not lines and (not name.startswith("_") or name in _SPECIAL)
        case ast.Attribute(attr=name):
            return not name.startswith("_") or name in _SPECIAL
        case ast.Name(name):
            return name in own or name in modules or name in _BUILTINS or name in _ERRORS
        case ast.Constant(value):
            return value is None or isinstance(value, bool | int | float | complex | str) or value is ...
        case ast.Delete(targets):
            return all(isinstance(target, ast.Name) for target in targets)
        case _:
            return True


def _is_module(alias: ast.alias) -> bool:
    root = alias.name.partition(".")[0]
    return alias.asname is None and is_module(alias.name) and (root in _PYTHONS or not is_pythons(root))


def _has_stray_text(node: ast.AST, modules: set[str], allowed: str = "") -> bool:
    """Whether a text stands where a function of the pull request might get it, or is none that a program needs.

    Args:
        node: A part of the program.
        modules: Roots of the modules that the program imports.
        allowed: ``text`` in an argument of torch's functions, ``message`` where an error is raised or printed.
    """
    match node:
        case ast.Constant(str(value)):
            return not _is_expected(value, allowed)
        case ast.Subscript(value, ast.Constant(str(key))):
            return _TEXT.fullmatch(key) is None or _has_stray_text(value, modules)
        case ast.Raise() | ast.Assert():
            return any(_has_stray_text(part, modules, "message") for part in ast.iter_child_nodes(node))
        case ast.Call(func, args, keywords):
            is_message = allowed == "message" or _root(func) == "print"
            is_of_torch = _root(func) in {"torch", "float", "complex", _TENSOR_FILE[1]}
            is_error = isinstance(func, ast.Name) and func.id in {*_ERRORS, "print"}
            inner = "text" if is_of_torch else "message" if is_message and is_error else ""
            is_method = isinstance(func, ast.Attribute) and _root(func) not in modules
            parts = [func, *args, *(keyword.value for keyword in keywords)]
            if is_method:
                parts = [part for arg in parts for part in _of_method(str(getattr(func, "attr", "")), arg)]
            return any(_has_stray_text(part, modules, inner) for part in parts)
        case _:
            return any(_has_stray_text(part, modules, allowed) for part in ast.iter_child_nodes(node))


def _is_expected(value: str, allowed: str) -> bool:
    if value in _WORDS or _EQUATION.fullmatch(value) or _FILE.fullmatch(value):
        return True
    if allowed == "message":
        return len(value) <= _MESSAGE_CHARS
    return allowed == "text" and _TEXT.fullmatch(value) is not None


def _of_method(name: str, argument: ast.expr) -> list[ast.expr]:
    """Return what of a method's argument is looked at: a module's state has names, and a device is a word."""
    if name == "load_state_dict" and isinstance(argument, ast.Dict):
        return argument.values
    text = str(argument.value) if isinstance(argument, ast.Constant) else ""
    is_device = name == "to" and re.fullmatch(r"cuda:\d", text)
    is_part = name in READS_OF_MODULES and re.fullmatch(r"[\w.]{1,60}", text, re.ASCII)
    return [] if is_device or is_part else [argument]


def _root(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
