"""A test file of another harness: it is compiled, and run with its imports answered.

``x.oneflow`` and ``x.pytorch`` are the two sides of a value, of which a recording has one. They are read of numbers
too, as in ``x.ndim.pytorch``, and no number can have them. So a file is compiled without them: where it reads a side of
something, it gets that thing. ``x.numpy()`` also takes tensors that require grad there, so it becomes
``x.detach().numpy()``. ``x.to_global(...)`` becomes a function, because a tensor of torch has no such method. A GPU
that is named becomes the device under test, as ``gpu_device()`` is. Pinned memory changes no element, and only machines
with a GPU have it, so none is asked for.

Nothing that a file does while it is imported costs the file, where it can be had for less: a package that is not
installed costs the tests that use it, and a generator whose value is read outside of functions has one in each run.

An answer never outlives the import of the file: a candidate may be the real framework, in this process, and must not
get ours.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import sys
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.compat.global_tensors import to_global
from ci_autotest.compat.missing_names import MissingName
from ci_autotest.compat.oneflow_modules import answer as oneflow_module
from ci_autotest.compat.oneflow_names import GeneratorValues
from ci_autotest.program.ir import OWN_DEVICE, Device
from ci_autotest.record.values import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import CodeType, ModuleType

_SIDES: Final = frozenset({"oneflow", "pytorch"})
#: Names by which a rewritten file finds the device under test, and functions of ours.
_GPU, _ON, _ID = "__device_under_test__", "__device__", "__id__"
_HAS, _GET, _VALUE, _INSTEAD, _ABSENCE = "__has__", "__get__", "__value__", "__instead_of__", "__absence__"
_TO_GLOBAL: Final = "__to_global__"
_ARGUMENTS_WITH_DEFAULT: Final = 3
_PINNED: Final = "pin_memory"
#: Packages of which torch ships a copy; a file compares versions with them while it is imported.
_COPIES: Final = {"packaging": "torch._vendor.packaging", "pkg_resources.packaging": "torch._vendor.packaging"}
_NOTHING: Final = object()


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self._attempts = 0

    def visit_Try(self, node: ast.Try) -> ast.Try:
        self._attempts += 1
        node.body = [self.visit(each) for each in node.body]
        self._attempts -= 1
        for part in (node.handlers, node.orelse, node.finalbody):
            part[:] = [self.visit(each) for each in part]
        return node

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        roots = [each.name.partition(".")[0] for each in node.names]
        bound = [
            (each.asname or root, each.name if each.asname else root)
            for each, root in zip(node.names, roots, strict=True)
        ]
        return self._guarded(node, bound)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if node.level or node.module in {None, "__future__"}:
            return node
        return self._guarded(node, [(each.asname or each.name, f"{node.module}.{each.name}") for each in node.names])

    def _guarded(self, node: ast.Import | ast.ImportFrom, bound: list[tuple[str, str]]) -> ast.stmt:
        """Return an import that binds its names without the package too; in a ``try`` the file has its own way."""
        if self._attempts or bound[0][0] == "*":
            return node
        lines = "".join(f"    {own} = {_INSTEAD}({path!r}, {_ABSENCE})\n" for own, path in bound)
        guarded = ast.parse(f"try: pass\nexcept ModuleNotFoundError as {_ABSENCE}:\n{lines}").body[0]
        for part in ast.walk(guarded):
            if isinstance(part, ast.stmt | ast.expr | ast.excepthandler):
                ast.copy_location(part, node)
        assert isinstance(guarded, ast.Try)  # noqa: S101 - it was written above
        guarded.body = [node]
        return guarded

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return node.value if node.attr in _SIDES and isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        has_arguments = bool(node.args or node.keywords)
        if method == _PINNED and not has_arguments and isinstance(node.func, ast.Attribute):
            return node.func.value
        if isinstance(node.func, ast.Name):
            has_default = node.func.id == "getattr" and len(node.args) == _ARGUMENTS_WITH_DEFAULT
            node.func.id = _GET if has_default else {"hasattr": _HAS, "id": _ID}.get(node.func.id, node.func.id)
        if method == "value" and isinstance(node.func, ast.Attribute) and not has_arguments:
            node.args, node.func = [node.func.value], ast.copy_location(ast.Name(_VALUE, ast.Load()), node)
        if method in {"to_global", "to_consistent"} and isinstance(node.func, ast.Attribute):
            node.args, node.func = (
                [node.func.value, *node.args],
                ast.copy_location(ast.Name(_TO_GLOBAL, ast.Load()), node),
            )
        if method == "numpy" and not has_arguments:
            _before(node, "detach")
        if method == "cuda" and not has_arguments and isinstance(node.func, ast.Attribute):
            node.func.attr = method = "to"
            node.args = [ast.copy_location(ast.Constant("cuda"), node)]
        if method == "to":
            node.args = [_device(each) for each in node.args]
        for keyword in node.keywords:
            keyword.value = _device(keyword.value) if keyword.arg == "device" else keyword.value
            if keyword.arg == _PINNED:
                keyword.value = ast.copy_location(ast.Constant(value=False), keyword.value)
        return node


def _before(node: ast.Call, method: str) -> None:
    """Call another method of the receiver first."""
    if isinstance(node.func, ast.Attribute):
        receiver = ast.Attribute(node.func.value, method, ast.Load())
        node.func.value = ast.copy_location(ast.Call(receiver, [], []), node)


def _device(node: ast.expr) -> ast.expr:
    """Return the device under test in place of a GPU's name, which a variable may hold."""
    if isinstance(node, ast.Constant) and _is_gpu(node.value):
        return ast.copy_location(ast.Name(_GPU, ast.Load()), node)
    if isinstance(node, ast.Name | ast.Call | ast.Subscript):
        return ast.copy_location(ast.Call(ast.Name(_ON, ast.Load()), [node], []), node)
    return node


def _is_gpu(value: object) -> bool:
    return isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"


def _on(value: object) -> object:
    """Return an argument of a call; a GPU is the device under test."""
    return Device(OWN_DEVICE) if _is_gpu(value) else value


def compiled(source: bytes, file: str) -> CodeType:
    """Return the code of a file, rewritten as this module says, with the lines of the file.

    Args:
        source: The file's text.
        file: Its path, for tracebacks.
    """
    tree = ast.fix_missing_locations(_Rewriter().visit(ast.parse(source, file)))
    return compile(tree, file, "exec", dont_inherit=True)  # else this module's `annotations` would hold for the file


def run_file(path: Path, module: ModuleType, answer: Callable[[str], ModuleType | None]) -> None:
    """Run a file as a module.

    Args:
        path: The file.
        module: Gets what the file defines.
        answer: As of ``answering``.
    """
    code = compiled(path.read_bytes(), str(path))
    vars(module).update({
        _GPU: Device(OWN_DEVICE), _ON: _on, _ID: identity, _HAS: has_attribute, _GET: attribute,
        _VALUE: GeneratorValues().value, _INSTEAD: instead_of,
        _TO_GLOBAL: to_global,
    })  # fmt: skip
    with answering(answer):
        exec(code, vars(module))  # noqa: S102 - it is the user's own test file, as the importer runs it


def run_oneflow_file(path: Path, module: ModuleType) -> None:
    """Run a file of OneFlow's own tests as a module; arguments are those of ``run_file``."""
    run_file(path, module, oneflow_module)


def instead_of(path: str, absence: ModuleNotFoundError) -> Any:
    """Return what an import binds in place of a name of a package that is not installed.

    Args:
        path: The dotted name, as the file imports it.
        absence: What the import raised.

    Raises:
        ModuleNotFoundError: Another package is absent, which the imported one needs.
    """
    package = path.partition(".")[0]
    if (absence.name or "").partition(".")[0] != package:
        raise absence
    for own, copy in _COPIES.items():
        if path == own or path.startswith(f"{own}."):
            return pkgutil.resolve_name(copy + path.removeprefix(own))
    if find_spec(package) is not None:
        raise absence  # The package is there, and what is missing is a part of it.
    return MissingName(path, lack=f"and {package} is not installed")


def has_attribute(owner: object, name: str) -> bool:
    """Return what ``hasattr`` does; a name that torch does not have is no attribute."""
    return attribute(owner, name, _NOTHING) is not _NOTHING


def attribute(owner: object, name: str, default: object) -> Any:
    """Return what ``getattr`` does with a default; a name that torch does not have is no attribute."""
    found = getattr(owner, name, default)
    return default if isinstance(found, MissingName) else found


class _Answers(MetaPathFinder, Loader):
    """Finds and makes the answered modules.

    Args:
        answer: Returns the module of a dotted name; ``None`` if the name is not answered.
    """

    def __init__(self, answer: Callable[[str], ModuleType | None]) -> None:
        self._answer = answer

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an answered module."""
        del path, target
        if self._answer(fullname) is None:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the answer."""
        return self._answer(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: an answer is complete."""


@contextmanager
def answering(answer: Callable[[str], ModuleType | None]) -> Iterator[None]:
    """Answer imports, and forget the answers and restore the real modules afterwards.

    Args:
        answer: Returns the module of a dotted name, the same one each time; ``None`` if the name is not answered.
    """
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if answer(name) is not None}
    finder = _Answers(answer)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if answer(name) is not None]:
            del sys.modules[name]
        sys.modules.update(hidden)
