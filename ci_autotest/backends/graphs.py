"""A candidate's own graph mode: its bodies run as one compiled graph, to be held against its own eager results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_compile import CompileBackend
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.program.codegen import GRAPH_OPTIONS

if TYPE_CHECKING:
    from ci_autotest.backends.protocol import Backend


def graph_of(backend: Backend) -> CompileBackend | None:
    """Return the backend that runs bodies as one graph of this candidate; ``None`` where it is a compiler itself."""
    if isinstance(backend, TorchBackend):
        found = CompileBackend(dict(GRAPH_OPTIONS), str(backend.device))
    elif isinstance(backend, SubstituteBackend):
        found = CompileBackend(dict(GRAPH_OPTIONS), str(backend.device))
        found.functions = backend.functions
    else:
        return None
    found.on_step = backend.on_step
    return found
