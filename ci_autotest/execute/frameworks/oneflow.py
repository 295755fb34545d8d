"""OneFlow: torch's names, gradients of its own engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.execute.frameworks.torch_like import TorchLike

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How OneFlow 0.9 says that it has no kernel, no gradient or no argument; colours are taken out first.
_LACKING: Final = re.compile(
    r"Cannot find the kernel matching|gradient function for op \S+ is not found|received an invalid combination of "
    r"arguments|got an unexpected keyword argument|not supported|unsupported|is not implemented",
    re.IGNORECASE,
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_DTYPE: Final = re.compile(r"DataType_Name of \w+: k(\w+)")
_SHOWN_CHARS: Final = 160


class OneFlow(TorchLike):
    """Execute with OneFlow.

    Args:
        module: ``oneflow``.
        device: ``cpu`` or ``cuda``.
    """

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients that a backward pass leaves: ``autograd.grad`` refuses an input that is not reached."""
        for tensor in inputs:
            if not tensor.is_leaf:
                tensor.retain_grad()
        self._module.autograd.backward(list(outputs), list(weights))
        return [tensor.grad for tensor in inputs]

    def lacking(self, error: BaseException) -> str:
        """Return what OneFlow says that it has not."""
        text = _COLOUR.sub("", str(error))
        if not _LACKING.search(text):
            return ""
        first = text.strip().splitlines()[0].strip()[:_SHOWN_CHARS].rstrip(" .")
        dtypes = ", ".join(dict.fromkeys(name.lower() for name in _DTYPE.findall(text)))
        return f"{first} ({dtypes})" if dtypes else first
