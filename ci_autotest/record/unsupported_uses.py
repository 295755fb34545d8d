"""What a body may use that is not recorded, and what to write instead: one sentence each."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from ci_autotest.errors import AuthorError

#: By dotted name, a trailing ``*`` for all that begins so.
_INSTEAD: Final = {
    "torch.inference_mode": "use torch.no_grad()",
    "torch.compile": "it is a candidate: `--candidate torch.compile`, or @autotest(check_graph=True)",
    "torch.jit.*": "it is no operator: compile with `--candidate torch.compile`, or check_graph=True",
    "torch.optim.*": (
        "construct module and optimizer with plain torch (import torch as plain), whose steps are recorded, or write "
        "the step with `torch.no_grad():` and in-place operators"
    ),
    "torch.func.*": "write the loop, or use operators that take a batch",
    "torch.vmap": "write the loop, or use operators that take a batch",
    "torch.nn.utils.clip_grad_norm_": (
        "construct the module with plain torch (import torch as plain), or write it with norm(), clamp() and mul_()"
    ),
    "torch.nn.utils.clip_grad_value_": (
        "construct the module with plain torch (import torch as plain), or write it with clamp_()"
    ),
    "torch.utils.*": "call the operators that it calls",
    "torch.autograd.functional.*": "use torch.autograd.grad with create_graph=True",
    "torch.load": "a test reads no files: draw its tensors, or capture a tensor that was loaded outside",
    "torch.save": "a test writes no files",
    "torch.manual_seed": "every random step has a seed of its own",
    "torch.set_default_dtype": "give each call its dtype",
}
_OTHERWISE: Final = (
    "use the functions of torch, torch.nn.functional, torch.linalg, torch.fft, torch.special or torch.nn.init"
)

#: What errors of Python and torch mean for a body, and what to write.
_MEANINGS: Final = (
    ("Inference tensors", "torch.inference_mode is not recorded: use torch.no_grad()."),
    ("optimizer can only optimize Tensors", f"torch.optim is not recorded: {_INSTEAD['torch.optim.*']}."),
    ("cannot vmap over non-Tensor", f"torch.vmap is not recorded: {_INSTEAD['torch.vmap']}."),
    (
        "read-only",
        (
            "The array of `.numpy()` is read-only in a test: a write through it would be no step. "
            "Write x[...] = value, or change a copy: x.numpy().copy()."
        ),
    ),
    (
        "For backward hooks to be called",
        "Construct the module with ci_autotest's torch, or register the hook on a tensor.",
    ),
    ("does not support ufuncs", "Write numpy.sin(x.numpy()), or torch's own operator."),
    (
        r"RandomNumber|RandomBool|Typed|_Arithmetic|Either|Generator",
        "A generator has a value only as an argument of a recorded call. Read a size back with x.shape, or use oneof.",
    ),
)  # fmt: skip


def instead(target: str) -> str | None:
    """Return what to write instead of a function that is refused by name, ``None`` where it is not."""
    found = _INSTEAD.get(target)
    if found is not None:
        return found
    return next((text for name, text in _INSTEAD.items() if name.endswith(".*") and target.startswith(name[:-1])), None)


def refuse(target: str) -> NoReturn:
    """Refuse a function that is no operator.

    Raises:
        AuthorError: Always.
    """
    message = f"{target} is not recorded: {instead(target) or _OTHERWISE}."
    raise AuthorError(message)


def meaning(error: str) -> str:
    """Return `` <what to write>`` for an error that a body raised because of what it was given, or nothing."""
    found = next((text for pattern, text in _MEANINGS if re.search(pattern, error)), "")
    return f". {found}" if found else ""


def stale() -> NoReturn:
    """Refuse a value of another attempt.

    Raises:
        AuthorError: Always.
    """
    message = "a recorded tensor was used after its test had ended. Use it inside the test's body only."
    raise AuthorError(message)
