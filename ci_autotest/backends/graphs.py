"""A candidate's own graph mode: its bodies run as one compiled graph, to be held against its own eager results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_compile import CompileBackend
from ci_autotest.backends.torch_eager import TorchBackend

if TYPE_CHECKING:
    from ci_autotest.backends.protocol import Backend

#: How a body is compiled: one graph or an error, by the compiler that needs nothing but torch.
GRAPH_OPTIONS: Final[dict[str, Any]] = {"backend": "aot_eager", "fullgraph": True}


def graph_of(backend: Backend) -> CompileBackend | None:
    """Return the backend that runs bodies as one graph of this candidate; ``None`` where it is a compiler itself."""
    if isinstance(backend, TorchBackend):
        found = CompileBackend(GRAPH_OPTIONS, str(backend.device))
    elif isinstance(backend, SubstituteBackend):
        found = CompileBackend(GRAPH_OPTIONS, str(backend.device))
        found.functions = backend.functions
    else:
        return None
    found.on_step = backend.on_step
    return found
