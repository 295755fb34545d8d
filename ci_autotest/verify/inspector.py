"""Says what a file has, in a process of its own: of the reference its inputs, of the candidate what can be called.

It is run as a script, of the candidate in its sandbox, and needs torch alone. Its last line is JSON; what a candidate
writes there of itself can only make it rejected.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Functions that describe a problem and solve none.
HELPERS = ("get_inputs", "get_init_inputs")
#: Elements from which on an input is looked at in smaller sizes, and such a size.
LARGE = 1 << 18
SMALL = 48
#: Operators that move, shape or make tensors, and the elementary ones.
PLAIN = (
    "alias", "arange", "as_strided", "cat", "clone", "contiguous", "copy", "detach", "empty", "expand", "fill", "full",
    "lift", "lift_fresh", "local_scalar_dense",
    "new_empty", "new_zeros", "ones", "permute", "reshape", "resize", "select", "slice", "split", "squeeze", "stack",
    "t", "to_copy", "transpose", "unbind", "unsafe_view", "unsqueeze", "view", "zero", "zeros",
    # What a kernel may do on the way; who did the work does not show in it.
    "abs", "add", "addcmul", "div", "eq", "ge", "gt", "le", "lt", "maximum", "minimum", "mul", "ne", "neg",
    "reciprocal", "rsub", "sub", "where",
)  # fmt: skip


class UnusableFileError(Exception):
    """A file that cannot be verified as it is."""


def _dispatched(self: Census, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG001 - torch's
    name = func._schema.name.partition("::")[2].strip("_")  # noqa: SLF001 - an overload has no public name
    is_plain = name in PLAIN or name.removesuffix("_like").removesuffix("_strided") in PLAIN
    if func.namespace in ("aten", "prims") and not is_plain:
        self.calls.add(name)
    return func(*args, **(kwargs or {}))


class Census(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators of torch that run, but for plain ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: set[str] = set()
        if "torch._dynamo" not in sys.modules:
            # As if it was hidden from Dynamo already, which would be imported for that, in a second.
            setattr(_dispatched, "__dynamo_disable", _dispatched)

    __torch_dispatch__ = _dispatched


def loaded(path: str) -> Any:
    """Import a file."""
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location("subject", path)
    if spec is None or spec.loader is None:
        message = f"{Path(path).name} is no Python file"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules["subject"] = module
    spec.loader.exec_module(module)
    return module


def callables(module: Any, path: str) -> dict[str, str]:
    """Return the functions and modules that a file defines, with the word for which it is; no imported ones."""
    nodes = ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name in HELPERS or name in imported:
            continue
        if inspect.isclass(value) and issubclass(value, torch.nn.Module):
            found[name] = "module"
        elif callable(value) and not inspect.isclass(value):
            found[name] = "function"
    return found


def described(value: Any) -> dict[str, Any]:
    """Return what an input is."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and not value.isfinite().all():
            message = "get_inputs() returns numbers that are not finite; make such a mask inside of the reference"
            raise UnusableFileError(message)
        numbers = value.detach().double() if value.is_floating_point() else value
        ends = [numbers.min().item(), numbers.max().item()] if value.numel() and not value.is_complex() else [0, 1]
        return {"shape": list(value.shape), "dtype": str(value.dtype).partition(".")[2], "ends": ends}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, (list, tuple)) and all(isinstance(item, (bool, int, float, str)) for item in value):
        return {"value": list(value)}
    kind = type(value).__name__
    message = f"get_inputs() returns a {kind}; tensors, numbers, booleans, texts and lists of these can be given"
    raise UnusableFileError(message)


def made(description: dict[str, Any]) -> Any:
    """Return an input as it is described, with other numbers."""
    if "value" in description:
        return description["value"]
    low, high = description["ends"]
    dtype = getattr(torch, description["dtype"])
    numbers = torch.rand(description["shape"], dtype=torch.float64) * (high - low) + low
    return numbers.to(dtype)


def parameters_of(module: Any) -> dict[str, dict[str, Any]]:
    """Return parameters and buffers with floating-point numbers, by name."""
    buffers = dict(module.named_buffers())
    tensors = {**dict(module.named_parameters()), **buffers}
    finite = {name: value for name, value in tensors.items() if value.is_floating_point() and value.isfinite().all()}
    return {name: {**described(value), "is_buffer": name in buffers} for name, value in finite.items()}


def reduced(inputs: list[Any], kept: set[int], function: Any) -> list[Any]:
    """Return large inputs in smaller sizes, if the function takes that; sizes in `kept` stay."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if max((value.numel() for value in tensors), default=0) <= LARGE:
        return inputs
    small = list(inputs)
    for size in {size for value in tensors for size in value.shape if size > SMALL and size not in kept}:
        small = [cut(value, size) if isinstance(value, torch.Tensor) else value for value in small]
    try:
        with torch.no_grad():
            function(*small)
    except Exception:  # noqa: BLE001 - whatever it raises, it refuses
        return inputs
    return small


def cut(value: torch.Tensor, size: int) -> torch.Tensor:
    """Return a tensor of which each dimension of a size is smaller."""
    for dim, own in enumerate(value.shape):
        value = value.narrow(dim, 0, SMALL) if own == size else value
    return value.contiguous()


def fixed_sizes(function: Any, inputs: list[Any]) -> list[int]:
    """Return the sizes that cannot be another one: the function refuses inputs in which all of that size are larger."""
    sizes = {size for value in inputs if isinstance(value, torch.Tensor) for size in value.shape}
    fixed = []
    for size in sizes:
        larger = [resized(value, size, size + 1) if isinstance(value, torch.Tensor) else value for value in inputs]
        try:
            with torch.no_grad():
                function(*larger)
        except Exception:  # noqa: BLE001 - whatever it raises, it refuses
            fixed.append(size)
    return fixed


def resized(value: torch.Tensor, size: int, new: int) -> torch.Tensor:
    """Return a tensor in which each dimension of a size has another one, of the same values."""
    for dim, own in enumerate(value.shape):
        if own == size and own:
            value = value.index_select(dim, torch.arange(new) % own)
    return value


def report(question: dict[str, Any]) -> dict[str, Any]:
    """Return what a file has.

    Args:
        question: ``path``; ``name``, empty for ``Model`` or ``ModelNew``; of a candidate ``init``, the arguments of its
            module, and ``examples``, its inputs as they are described; ``is_forward_only``.
    """
    path, name, examples = question["path"], question["name"], question["examples"]
    module = loaded(path)
    found = callables(module, path)
    chosen = name or ("Model" if examples is None else "ModelNew")
    if name and name not in found:
        message = f"{Path(path).name} has no function or module {name!r}; it has {', '.join(found) or 'none'}"
        raise UnusableFileError(message)
    if chosen not in found:
        return {"callables": found}
    value, init = getattr(module, chosen), question["init"]
    answer: dict[str, Any] = {"callables": found, "chosen": chosen, "kind": found[chosen]}
    if examples is None and hasattr(module, "get_init_inputs"):
        init = list(module.get_init_inputs())
        answer["init"] = [described(item)["value"] for item in init]
    if found[chosen] == "module":
        torch.manual_seed(0)
        value = value(*init)
        answer["parameters"] = parameters_of(value)
    if examples is not None:
        print_answer(answer)  # What follows may take too long.
        with contextlib.suppress(Exception):  # What it raises is judged in a case.
            inputs = [made(each) for each in examples]
            answer["calls"] = census(value, inputs, is_forward_only=question["is_forward_only"])
        return answer
    if not hasattr(module, "get_inputs"):
        message = f"{Path(path).name} has no get_inputs(), which returns a list of example inputs"
        raise UnusableFileError(message)
    torch.manual_seed(0)
    inputs = list(module.get_inputs())
    answer["inputs"] = [described(item) for item in inputs]
    kept = {size for each in answer.get("parameters", {}).values() for size in each["shape"]}
    inputs = reduced(inputs, kept, value)
    answer["examples"] = [described(item) for item in inputs]
    answer["fixed"] = fixed_sizes(value, inputs)
    answer["calls"] = census(value, inputs, is_forward_only=question["is_forward_only"])
    return answer


def census(function: Any, inputs: list[Any], *, is_forward_only: bool) -> list[str]:
    """Return the operators of torch that a call runs, with gradients as the cases have them."""
    for value in inputs if not is_forward_only else ():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_()
    with Census() as seen, torch.set_grad_enabled(not is_forward_only):
        function(*inputs)
    return sorted(seen.calls)


def print_answer(answer: dict[str, Any]) -> None:
    """Print an answer as a line; what a file prints is none, because it goes to the other stream."""
    OUTPUT.write("\n" + json.dumps(answer) + "\n")
    OUTPUT.flush()


#: The variable with the question, for a process that gets no arguments.
QUESTION = "CI_AUTOTEST_QUESTION"
#: Where answers go.
OUTPUT = sys.stdout


def main() -> None:
    """Print what a file has, of what is asked as JSON."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = report(json.loads(sys.argv[1] if len(sys.argv) > 1 else os.environ[QUESTION]))
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
            # Of what we refuse the sentence is enough.
            kind = "" if isinstance(error, UnusableFileError) else f"{type(error).__name__}: "
            answer = {"error": f"{kind}{error}"[:600]}
    print_answer(answer)


if __name__ == "__main__":
    main()
