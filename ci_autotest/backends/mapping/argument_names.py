"""The names that torch's documentation gives the arguments of an operator, whatever spelling the call has.

A schema's ``self``, and the receiver of a method, is ``input``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ci_autotest.backends.operators.identity import spellings
from ci_autotest.backends.operators.signatures import forms, resolved
from ci_autotest.program.ir import CALL_METHOD

#: The name of a method's receiver and of a schema's ``self``.
INPUT: Final = "input"
#: Arguments that a spelling names differently from its operator's documentation, by the function's or method's name.
_RESPELLED: Final[dict[str, dict[str, str]]] = {
    "split": {"tensor": "input", "split_size": "split_size_or_sections"},
    "tensor": {"t": "data"},
    "swapaxes": {"axis0": "dim0", "axis1": "dim1"},
    "det": {"input": "A"},
    "slogdet": {"input": "A"},
    "inverse": {"input": "A"},
    "orgqr": {"input2": "tau"},
}
#: Arguments that choose how torch computes a result, not which.
WITHOUT_MEANING: Final = frozenset({
    "_stacklevel", "cudnn_enabled", "cudnn_enable", "non_blocking", "pin_memory", "layout", "generator", "sparse_grad",
})  # fmt: skip
#: Arguments that torch's Python bindings accept and no schema lists.
OF_PYTHON: Final = ("requires_grad", "out")


def respelled(target: str, name: str) -> str:
    """Return the name that the documentation of a target's operator gives an argument."""
    documented = INPUT if name == "self" else name
    return _RESPELLED.get(target.rpartition(".")[2], {}).get(documented, documented)


@lru_cache(maxsize=2048)
def arguments(operator: str) -> frozenset[str]:
    """Return the names of the arguments that an operator has in any of its spellings."""
    bare = operator.rpartition(".")[2]
    targets = {(path, "") for name in (operator, f"torch.{bare}", f"torch.{bare}_") for path in spellings(name)}
    found = {
        respelled(target, parameter.name)
        for target, op in targets
        if resolved(target) is not None
        for form in forms(target.removeprefix("torch.Tensor."), CALL_METHOD if "torch.Tensor." in target else op)
        for parameter in form
    }
    if operator.startswith("torch.Tensor."):
        found.add(INPUT)
    return frozenset({*found, *OF_PYTHON}) if found else frozenset()
