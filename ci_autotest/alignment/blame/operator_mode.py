"""What the modes of the oracle share: torch calls them for each operator, and Dynamo stays out of them."""

from __future__ import annotations

import sys
from functools import cache
from itertools import chain
from types import FunctionType
from typing import ClassVar

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that Dynamo does not trace, and that does not import Dynamo for it.

    By default torch wraps ``__torch_dispatch__`` so that its first call imports Dynamo, which takes a second in each
    process that judges a difference. Only where something was compiled before, there is something to keep out.
    """

    is_wrapped: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        mode = type(self)
        if "torch._dynamo" not in sys.modules:
            _mark_references()
        elif not mode.is_wrapped:
            mode.__torch_dispatch__ = torch.compiler.disable(mode.__torch_dispatch__)  # type: ignore[method-assign, no-untyped-call]
            mode.is_wrapped = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch itself wraps the method when the class is made."""
        return False


@cache
def _mark_references() -> None:
    """Mark torch's operators in Python as already hidden from Dynamo, which is imported to hide one at its first call.

    There is nothing to hide them from where nothing is compiled. If torch renames the mark, Dynamo is imported.
    """
    references = (torch._refs, torch._refs.nn.functional, torch._refs.special, torch._refs.linalg, torch._refs.fft)  # noqa: SLF001 - they have no other name
    waiting: list[object] = [*decomposition_table.values(), *chain(*(vars(module).values() for module in references))]
    seen = set()
    while waiting:
        function = waiting.pop()
        if isinstance(function, FunctionType) and function not in seen:
            seen.add(function)
            held = [cell.cell_contents for cell in function.__closure__ or ()]
            waiting += held
            if function.__code__.co_filename == torch._compile.__file__:  # noqa: SLF001 - where the wrapper is
                hidden = held[function.__code__.co_freevars.index("fn")]
                hidden.__dynamo_disable = hidden  # noqa: SLF001 - what torch sets itself
