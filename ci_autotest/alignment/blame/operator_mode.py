"""What the modes of the oracle share: torch calls them for each operator, and Dynamo stays out of them."""

from __future__ import annotations

import sys
from typing import ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.backends.first_use import hide_references


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
            hide_references()
        elif not mode.is_wrapped:
            mode.__torch_dispatch__ = torch.compiler.disable(mode.__torch_dispatch__)  # type: ignore[method-assign, no-untyped-call]
            mode.is_wrapped = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch itself wraps the method when the class is made."""
        return False
