"""Uses of torch that cannot be recorded, each with a replacement."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import torch

from ci_autotest.errors import AuthorError, UnsupportedReason
from ci_autotest.record.skips import unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

#: Replacements by dotted name; a trailing ``*`` matches all names with that prefix.
_INSTEAD: Final = {
    "torch.inference_mode": "use torch.no_grad()",
    "torch.compile": "it is a candidate: `--candidate torch.compile`, or @autotest(check_graph=True)",
    "torch.jit.*": "it is no operator: compile with `--candidate torch.compile`, or check_graph=True",
    "torch.func.functional_call": "construct the module in the body and call it, or call torch.nn.functional",
    "torch.nested.*": "pad the parts to one tensor, or test each part",
    "torch.sparse.*": "write it with operators of torch on x.to_sparse() or x.to_dense()",
    "torch.func.*": "write the loop, or use operators that take a batch",
    "torch.vmap": "write the loop, or use operators that take a batch",
    "torch._foreach_*": "pass foreach=False",
    "torch.utils.*": "call the operators that it uses",
    "torch.autograd.functional.*": "use torch.autograd.grad with create_graph=True",
    "torch.manual_seed": "every random step has a seed of its own",
    "torch.set_default_dtype": "give each call its dtype",
}
_IN_CPP: Final = "put the call into a function of a module, with @operator above it."
_OTHERWISE: Final = (
    "use the functions of torch, torch.nn.functional, torch.linalg, torch.fft, torch.special or torch.nn.init"
)

#: Explanations of errors that Python and torch raise for recorded values, by a regular expression. They only add a
#: hint to the message; no decision depends on them.
_MEANINGS: Final = (
    ("Inference tensors", "torch.inference_mode is not recorded: use torch.no_grad()."),
    (
        "its data is not allocated yet|Cannot access data pointer",
        f"Code in C++ read the memory of a recorded tensor: {_IN_CPP}",
    ),
    (
        "variable.set_data",
        "`p.data = x` of a plain tensor is not recorded: write `with torch.no_grad(): p.copy_(x)`.",
    ),
    (
        "read-only",
        (
            "The array of `.numpy()` is read-only in a test, because a write through it would not be recorded. "
            "Write x[...] = value, or change a copy: x.numpy().copy()."
        ),
    ),
    ("does not support ufuncs", "Write numpy.sin(x.numpy()), or torch's own operator."),
    (
        r"RandomNumber|RandomBool|Typed|_Arithmetic|Either|Generator",
        "A generator gets its value as an argument of a recorded call. Read a size with x.shape, or use oneof.",
    ),
)  # fmt: skip


def instead(target: str) -> str | None:
    """Return the replacement for a function; ``None`` if the function is not refused by name."""
    found = _INSTEAD.get(target)
    if found is not None:
        return found
    return next((text for name, text in _INSTEAD.items() if name.endswith("*") and target.startswith(name[:-1])), None)


def refuse(target: str) -> NoReturn:
    """Refuse a function that cannot be recorded.

    Raises:
        AuthorError: Always.
    """
    message = f"{target} is not recorded: {instead(target) or _OTHERWISE}."
    raise AuthorError(message)


def meaning(error: str) -> str:
    """Return a hint on an error of Python or torch for recorded values, after a separator; empty if there is none."""
    found = next((text for pattern, text in _MEANINGS if re.search(pattern, error)), "")
    return f". {found}" if found else ""


#: OneFlow's attributes of tensors and modules that lie on several ranks.
_ON_RANKS: Final = frozenset({
    "to_global", "to_consistent", "local_to_global", "global_to_global", "to_local", "placement", "sbp", "is_global",
    "is_consistent",
})  # fmt: skip


def refuse_ranks(name: str) -> None:
    """End the case if an attribute that torch lacks belongs to tensors on several ranks.

    Raises:
        UnsupportedTest: It does.
    """
    if name in _ON_RANKS:
        detail = f"`.{name}` is what one rank has: a case is recorded with whole tensors"
        unsupported(UnsupportedReason.RANKS, detail)


_TORCH: Final = str(Path(torch.__file__).parent) + os.sep
#: Files of torch that refuse recorded values, with the names that a body called to get there. The whole path is
#: compared, because a user's folder may have the same name.
_FILES: Final = {
    f"{_TORCH}_functorch/": "torch.func.*",
    f"{_TORCH}nested/": "torch.nested.*",
    f"{_TORCH}_dynamo/symbolic_convert.py": "torch.compile",
}


def refuse_transform(error: BaseException) -> None:
    """Replace an error that a function transform or a nested tensor of plain torch raised for recorded values.

    The error is recognised by the file that raised it, because torch's message does not mention recording.

    Raises:
        AuthorError: It is such an error.
    """
    refusal = _refusal(frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if refusal is not None:
        raise refusal.with_traceback(error.__traceback__) from None


def refuse_in_cpp(operator: str) -> NoReturn:
    """Refuse an operator that code in C++ calls with a recorded tensor.

    Args:
        operator: The operator's name.

    Raises:
        AuthorError: Always.
    """
    message = (
        f"code in C++ calls {operator} on a recorded tensor, and only calls from Python are recorded: call a function "
        f"of ci_autotest's torch, or {_IN_CPP}"
    )
    raise _refusal(frame for frame, _ in traceback.walk_stack(None)) or AuthorError(message)


def _refusal(frames: Iterable[FrameType]) -> AuthorError | None:
    """Return the refusal of the first function of torch that is among the frames; ``None`` if none is."""
    files = {frame.f_code.co_filename for frame in frames}
    for path, name in _FILES.items():
        if any(file.startswith(path) for file in files):
            return AuthorError(f"{name.removesuffix('.*')} is not recorded: {_INSTEAD[name]}.")
    return None


def refuse_nested() -> NoReturn:
    """Refuse a nested tensor.

    Raises:
        AuthorError: Always.
    """
    message = f"a nested tensor is not recorded: {_INSTEAD['torch.nested.*']}."
    raise AuthorError(message)


def stale() -> NoReturn:
    """Refuse a value that belongs to an earlier attempt.

    Raises:
        AuthorError: Always.
    """
    message = "a recorded tensor was used after its test had ended. Use it inside the test's body only."
    raise AuthorError(message)
