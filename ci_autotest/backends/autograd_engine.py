"""Call autograd's engine. Nothing else uses PyTorch's private entry to it.

``torch.autograd.grad`` spends ten microseconds of Python on checks that hold here by construction;
the engine's own entry gives the same gradients. Where a release no longer has it, the public
function is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_run_backward: Any = getattr(getattr(torch.autograd.Variable, "_execution_engine", None), "run_backward", None)


def gradients(
    outputs: Sequence[Any], cotangents: Sequence[Any], inputs: Sequence[Any], *, keeps_graph: bool = False
) -> Sequence[Any]:
    """Return the gradient of ``outputs``, weighted by ``cotangents``, for each of ``inputs``, or ``None``.

    Args:
        outputs: Tensors that require grad.
        cotangents: One for each output, of its shape and dtype.
        inputs: Tensors or gradient edges.
        keeps_graph: Whether another backward pass goes through the same graph.
    """
    if _run_backward is not None:
        create_graph = accumulate = False
        unreachable = True
        found: Sequence[Any] = _run_backward(
            tuple(outputs), tuple(cotangents), keeps_graph, create_graph, tuple(inputs), unreachable, accumulate
        )
        return found
    return torch.autograd.grad(
        tuple(outputs), tuple(inputs), tuple(cotangents), retain_graph=keeps_graph, allow_unused=True
    )


def gradient_edge(tensor: torch.Tensor) -> Any:
    """Return the edge that stays the gradient of this version of a tensor when it is overwritten (rule 7)."""
    return torch.autograd.graph.get_gradient_edge(tensor)
