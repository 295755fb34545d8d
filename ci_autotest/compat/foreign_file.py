"""A test file of another harness: it is compiled, and run with its imports answered.

``x.oneflow`` and ``x.pytorch`` are the two sides of a value, of which a recording has one. They are read of numbers
too, as in ``x.ndim.pytorch``, and no number can have them. So a file is compiled without them: where it reads a side of
something, it gets that thing. ``x.numpy()`` also takes tensors that require grad there, so it becomes
``x.detach().numpy()``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from ci_autotest.compat.import_hook import answering

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import CodeType, ModuleType

_SIDES: Final = frozenset({"oneflow", "pytorch"})


class _OneSided(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return node.value if node.attr in _SIDES and isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not (node.args or node.keywords):
            detach = ast.Attribute(node.func.value, "detach", ast.Load())
            node.func.value = ast.Call(detach, [], [])
            ast.fix_missing_locations(ast.copy_location(node.func.value, node))
        return node


def compiled(source: bytes, file: str) -> CodeType:
    """Return the code of a file in which each side of a value is the value, with the lines of the file.

    Args:
        source: The file's text.
        file: Its path, for tracebacks.
    """
    return compile(_OneSided().visit(ast.parse(source, file)), file, "exec")


def run_file(path: Path, module: ModuleType, answer: Callable[[str], ModuleType | None]) -> None:
    """Run a file as a module.

    Args:
        path: The file.
        module: Gets what the file defines.
        answer: As of ``answering``.
    """
    code = compiled(path.read_bytes(), str(path))
    with answering(answer):
        exec(code, vars(module))  # noqa: S102 - it is the user's own test file, as the importer runs it
