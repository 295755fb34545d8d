"""A candidate's own graph mode: its bodies run as one compiled graph, to be held against its own eager results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_compile import CompileBackend
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.program.codegen import GRAPH_OPTIONS

if TYPE_CHECKING:
    from ci_autotest.backends.protocol import Backend


def graph_of(backend: Backend) -> Backend | None:
    """Return the backend that runs bodies as one graph of this candidate; ``None`` where it is a graph itself."""
    if isinstance(backend, RemoteBackend):
        has_one = backend.hello.has_graph and not backend.is_graph
        return backend.in_mode(is_graph=True) if has_one else None
    if isinstance(backend, TorchBackend):
        found = CompileBackend(dict(GRAPH_OPTIONS), str(backend.device))
    elif isinstance(backend, SubstituteBackend):
        found = CompileBackend(dict(GRAPH_OPTIONS), str(backend.device))
        found.functions = backend.functions
    else:
        return None
    found.on_step = backend.on_step
    return found


def eager_of(backend: Backend) -> RemoteBackend | None:
    """Return a graph mode's own eager mode, which its graphs must agree with; ``None`` for every other candidate."""
    if isinstance(backend, RemoteBackend) and backend.is_graph:
        return backend.in_mode(is_graph=False)
    return None
