"""A third opinion on gradients: whether the reference's own formula is the derivative of its forward pass.

The float64 oracle computes gradients by the reference's formulas. Where one of them is wrong it is wrong in float64
too, and only differences of the forward pass can tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.program.ir import PLACEHOLDER, TensorSpec, output_refs

if TYPE_CHECKING:
    from ci_autotest.alignment.isolate import Live

#: Elements of all inputs together up to which the forward pass is differenced.
_ELEMENTS: Final = 4096


def third_opinion(live: Live) -> str:
    """Return what PyTorch's ``gradcheck`` says of a program in float64, ``""`` where it cannot be asked.

    Args:
        live: In float64, with inputs that require grad.

    Source:
        ``torch.autograd.gradcheck`` (PyTorch 2.13), ``fast_mode``: one random projection instead of a column for each
        element.
    """
    keys = [
        step.target
        for step in live.program.body
        if step.op == PLACEHOLDER and isinstance(step.args[0], TensorSpec) and step.args[0].requires_grad
    ]
    leaves = [live.sources[key].detach().clone().requires_grad_() for key in keys]
    is_small = sum(leaf.numel() for leaf in leaves) <= _ELEMENTS
    if not leaves or not is_small or not all(_is_smooth(leaf) for leaf in leaves):
        return ""
    try:
        agrees = torch.autograd.gradcheck(
            lambda *values: _outputs(live, dict(zip(keys, values, strict=True))), leaves, raise_exception=False,
            fast_mode=True, check_undefined_grad=False, atol=1e-4,
        )  # fmt: skip
    except Exception:  # noqa: BLE001 - an opinion, never a reason to lose the finding
        return ""
    if agrees:
        return "; gradcheck confirms the float64 gradient"
    return "; gradcheck does not confirm the float64 gradient: the input is at a kink, or the formula is no derivative"


def _is_smooth(leaf: torch.Tensor) -> bool:
    return leaf.dtype is torch.float64 and bool(torch.isfinite(leaf).all())


def _outputs(live: Live, leaves: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    trace = TorchBackend().run(live.program, {**live.sources, **leaves})
    found = [trace.values[ref.index] for ref in output_refs(live.program)]
    return tuple(value for value in found if isinstance(value, torch.Tensor) and value.requires_grad)
