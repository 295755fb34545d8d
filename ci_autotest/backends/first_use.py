"""What torch does at the first use of some functions, done before: a server of workers does it once for all of them."""

from __future__ import annotations

import sys
from functools import cache
from itertools import chain
from types import FunctionType

import torch
from torch._decomp import decomposition_table
from torch.overrides import resolve_name


def prepare() -> None:
    """Build torch's table of the names of its functions, and hide its operators in Python from Dynamo."""
    resolve_name(torch.add)
    hide_references()


@cache
def hide_references() -> None:
    """Mark torch's operators in Python as already hidden from Dynamo, which is imported to hide one at its first call.

    That takes two seconds in each process, for example for a second derivative of ``lp_pool2d``. There is nothing to
    hide where nothing is compiled. If torch renames the mark, Dynamo is imported.
    """
    if "torch._dynamo" in sys.modules:
        return
    references = (torch._refs, torch._refs.nn.functional, torch._refs.special, torch._refs.linalg, torch._refs.fft)
    waiting: list[object] = [*decomposition_table.values(), *chain(*(vars(module).values() for module in references))]
    seen = set()
    while waiting:
        function = waiting.pop()
        if isinstance(function, FunctionType) and function not in seen:
            seen.add(function)
            held = [cell.cell_contents for cell in function.__closure__ or ()]
            waiting += held
            if function.__code__.co_filename == torch._compile.__file__:
                hidden = held[function.__code__.co_freevars.index("fn")]
                hidden.__dynamo_disable = hidden
