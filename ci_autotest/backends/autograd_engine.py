"""Call autograd's engine. No other module uses PyTorch's private entry to it.

``torch.autograd.grad`` spends ten microseconds of Python on checks that hold here by construction, and the engine's own
entry gives the same gradients. If a release lacks the private entry, the public function is used.
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
    """Return the gradient of ``outputs``, weighted by ``cotangents``, for each input; ``None`` if an input has none.

    Args:
        outputs: Tensors that require grad.
        cotangents: One for each output, with its shape and dtype.
        inputs: Tensors or gradient edges.
        keeps_graph: Whether another backward pass may use the same graph.
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
    """Return the edge that keeps the gradient of this version of a tensor when the tensor is overwritten (rule 7).

    ``None`` if there is none: a view that was made without gradients says that it requires grad, and has no graph.
    """
    if not tensor.is_leaf or not tensor._is_view():
        return torch.autograd.graph.get_gradient_edge(tensor)
    with torch.enable_grad():
        node = tensor.view_as(tensor).grad_fn
    has_graph = node is not None and node.next_functions[0][0] is not None
    return torch.autograd.graph.get_gradient_edge(tensor) if has_graph else None
