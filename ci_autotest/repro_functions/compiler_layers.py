"""For a compiler: find the first of its layers that differs, as its maintainers ask for in reports.

Source: pytorch/pytorch .github/ISSUE_TEMPLATE/pt2-bug-report.yml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.repro_functions.tensors import apart

if TYPE_CHECKING:
    from collections.abc import Callable

#: Arguments of ``torch.compile``.
OPTIONS: dict[str, Any]
run: Callable[[Callable[..., Any]], dict[str, Any]]
reference: Callable[..., Any]


def ablation(device: str) -> None:
    """Compile with one layer more each time, and name the first that differs from eager."""
    expected = run(reference)
    print("ablation:")
    for compiler, layer in (("eager", "dynamo"), ("aot_eager", "aot_autograd"), ("inductor", "inductor")):
        torch._dynamo.reset()
        options = {**(OPTIONS if compiler == "inductor" else {}), "backend": compiler}
        try:
            found = run(torch.compile(reference, **options))
            wrong = any(apart(found.get(name), expected[name]) for name in expected)
            verdict = "misaligned" if wrong else "aligned"
        except Exception as error:
            verdict = f"raises {type(error).__name__}"
        print(f"  backend={compiler!r}: {verdict}")
        if verdict != "aligned":
            is_kernel = compiler == "eager" and device != "cpu"
            print(f"the layer at fault is {layer}{f', or a kernel of {device}' if is_kernel else ''}")
            return
