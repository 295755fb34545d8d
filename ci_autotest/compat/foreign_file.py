"""A test file of another harness: it is compiled, and run with its imports answered.

``x.oneflow`` and ``x.pytorch`` are the two sides of a value, of which a recording has one. They are read of numbers
too, as in ``x.ndim.pytorch``, and no number can have them. So a file is compiled without them: where it reads a side of
something, it gets that thing. ``x.numpy()`` also takes tensors that require grad there, so it becomes
``x.detach().numpy()``. A GPU that is named becomes the device under test, as ``gpu_device()`` is.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from ci_autotest.compat.import_hook import answering
from ci_autotest.program.ir import OWN_DEVICE, Device

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import CodeType, ModuleType

_SIDES: Final = frozenset({"oneflow", "pytorch"})
#: Name of the device under test in a file.
_GPU: Final = "__device_under_test__"


class _Rewriter(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return node.value if node.attr in _SIDES and isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        has_arguments = bool(node.args or node.keywords)
        if method == "numpy" and not has_arguments:
            _before(node, "detach")
        if method == "cuda" and not has_arguments and isinstance(node.func, ast.Attribute):
            node.func.attr = method = "to"
            node.args = [ast.copy_location(ast.Constant("cuda"), node)]
        if method == "to":
            node.args = [_device(each) for each in node.args]
        for keyword in node.keywords:
            keyword.value = _device(keyword.value) if keyword.arg == "device" else keyword.value
        return node


def _before(node: ast.Call, method: str) -> None:
    """Call another method of the receiver first."""
    if isinstance(node.func, ast.Attribute):
        receiver = ast.Attribute(node.func.value, method, ast.Load())
        node.func.value = ast.copy_location(ast.Call(receiver, [], []), node)


def _device(node: ast.expr) -> ast.expr:
    """Return the device under test in place of a GPU's name."""
    is_gpu = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] == "cuda"
    return ast.copy_location(ast.Name(_GPU, ast.Load()), node) if is_gpu else node


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
    vars(module)[_GPU] = Device(OWN_DEVICE)
    with answering(answer):
        exec(code, vars(module))  # noqa: S102 - it is the user's own test file, as the importer runs it
