"""How a file of another harness is rewritten: only what cannot be answered by a name, and no line moves."""

from __future__ import annotations

import ast
import traceback
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from ci_autotest.compat.foreign_file import _Rewriter, run_file

if TYPE_CHECKING:
    from pathlib import Path

REWRITTEN = {
    "a side of a value": ("x.oneflow.shape", "x.shape"),
    "a side of a number": ("random(0, x.ndim.pytorch)", "random(0, x.ndim)"),
    "a side that is written": ("x.oneflow = x.oneflow.detach()", "x.oneflow = x.detach()"),
    "both sides of items": ("x.pytorch[i.pytorch] = 1", "x[i] = 1"),
    "an array": ("x.oneflow.numpy()", "x.detach().numpy()"),
    "memory that is pinned": ("x.sin().pin_memory().cos()", "x.sin().cos()"),
    "memory that is asked for": ("zeros(2, pin_memory=True)", "zeros(2, pin_memory=False)"),
    "an array with an argument": ("x.numpy(force=True)", "x.numpy(force=True)"),
    "a GPU": ("x.cuda()", "x.to(__device_under_test__)"),
    "a GPU by name": ("x.to('cuda:0', torch.half)", "x.to(__device_under_test__, torch.half)"),
    "a GPU by keyword": ("torch.ones(2, device='cuda')", "torch.ones(2, device=__device_under_test__)"),
    "a GPU by variable": ("x.to(device, torch.half)", "x.to(__device__(device), torch.half)"),
    "what there is": ("hasattr(flow, 'sin')", "__has__(flow, 'sin')"),
    "a default": ("getattr(flow, 'sin', None)", "__get__(flow, 'sin', None)"),
    "an attribute": ("getattr(flow, 'sin')", "getattr(flow, 'sin')"),
    "an identity": ("id(x.grad.oneflow)", "__id__(x.grad)"),
    "a value at import": ("size = random(1, 4).value()", "size = __value__(random(1, 4))"),
    "a value in a function": ("lambda: random(1, 4).value()", "lambda: __value__(random(1, 4))"),
    "the CPU": ("x.to('cpu')", "x.to('cpu')"),
    "another text": ("print('cuda')", "print('cuda')"),
    "what a machine has": ("torch.cuda.is_available()", "torch.cuda.is_available()"),
    "a module": ("oneflow.unittest.skip_unless_1n1d()", "oneflow.unittest.skip_unless_1n1d()"),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_rewriter__source__means_what_it_means_there(name: str):
    source, expected = REWRITTEN[name]
    assert ast.unparse(_Rewriter().visit(ast.parse(source))) == expected


def test_run_file__annotations__are_the_values_of_the_file(tmp_path: Path):
    file = tmp_path / "test_types.py"
    file.write_text("def body(n: int) -> None:\n    pass\n")
    module = ModuleType("types")
    run_file(file, module, lambda _: None)
    assert module.body.__annotations__ == {"n": int, "return": None}


def test_run_file__error__has_the_line_of_the_file(tmp_path: Path):
    file = tmp_path / "test_lines.py"
    file.write_text("x = 1\n\ny = x.oneflow\n1 / 0\n")
    module = ModuleType("lines")
    with pytest.raises(ZeroDivisionError) as caught:
        run_file(file, module, lambda _: None)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno, module.y) == (str(file), 4, 1)
