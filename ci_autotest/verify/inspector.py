"""Says what a file has, in a process of its own: of the reference its inputs, of the candidate what can be called.

It is run as a script, of the candidate in its sandbox, and needs torch alone. Its last line is JSON; what a candidate
writes there of itself can only make it rejected.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Functions that describe a problem and solve none.
HELPERS = ("get_inputs", "get_init_inputs")
#: Operators that move, shape or make tensors, and the elementary ones.
PLAIN = (
    "alias", "arange", "as_strided", "clone", "contiguous", "copy", "detach", "empty", "expand", "fill", "full", "lift",
    "new_empty", "new_zeros", "ones", "permute", "reshape", "resize", "select", "slice", "split", "squeeze", "stack",
    "t", "to_copy", "transpose", "unbind", "unsafe_view", "unsqueeze", "view", "zero", "zeros",
    # What a kernel may do on the way; who did the work does not show in it.
    "abs", "add", "addcmul", "div", "eq", "ge", "gt", "le", "lt", "maximum", "minimum", "mul", "ne", "neg",
    "reciprocal", "rsub", "sub", "where",
)  # fmt: skip


class Census(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators of torch that run, but for plain ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2].strip("_")  # noqa: SLF001 - an overload has no public name
        if func.namespace in ("aten", "prims") and name.removesuffix("_like").removesuffix("_strided") not in PLAIN:
            self.calls.add(name)
        return func(*args, **(kwargs or {}))


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


def callables(module: Any) -> dict[str, str]:
    """Return the functions and modules that a file defines, with the word for which it is."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name in HELPERS or getattr(value, "__module__", "") != "subject":
            continue
        if inspect.isclass(value) and issubclass(value, torch.nn.Module):
            found[name] = "module"
        elif callable(value) and not inspect.isclass(value):
            found[name] = "function"
    return found


def described(value: Any) -> dict[str, Any]:
    """Return what an input is."""
    if isinstance(value, torch.Tensor):
        is_float = value.is_floating_point()
        numbers = value.detach().double() if is_float else value
        ends = [numbers.min().item(), numbers.max().item()] if value.numel() and not value.is_complex() else [0, 1]
        return {"shape": list(value.shape), "dtype": str(value.dtype).partition(".")[2], "ends": ends}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, (list, tuple)) and all(isinstance(item, (bool, int, float, str)) for item in value):
        return {"value": list(value)}
    kind = type(value).__name__
    message = f"get_inputs() returns a {kind}; tensors, numbers, booleans, texts and lists of these can be given"
    raise TypeError(message)


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
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: described(value) for name, value in tensors.items() if value.is_floating_point()}


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


def report(path: str, name: str, init: list[Any], examples: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return what a file has.

    Args:
        path: The file.
        name: What it is asked for; empty for ``Model`` or ``ModelNew``.
        init: Arguments of the candidate's module.
        examples: Inputs of the candidate, as they are described; ``None`` for a reference, which has its own.
    """
    is_reference = examples is None
    module = loaded(path)
    found = callables(module)
    chosen = name or ("Model" if is_reference else "ModelNew")
    if name and name not in found:
        message = f"{Path(path).name} has no function or module {name!r}; it has {', '.join(found) or 'none'}"
        raise AttributeError(message)
    if chosen not in found:
        return {"callables": found}
    kind, value = found[chosen], getattr(module, chosen)
    answer: dict[str, Any] = {"callables": found, "chosen": chosen, "kind": kind}
    if is_reference and hasattr(module, "get_init_inputs"):
        init = list(module.get_init_inputs())
        answer["init"] = [described(item)["value"] for item in init]
    if kind == "module":
        torch.manual_seed(0)
        value = value(*init)
        answer["parameters"] = parameters_of(value)
    if examples is not None:
        with contextlib.suppress(Exception):  # What it raises is judged in a case.
            answer["calls"] = census(value, [made(each) for each in examples])
        return answer
    if not hasattr(module, "get_inputs"):
        message = f"{Path(path).name} has no get_inputs(), which returns a list of example inputs"
        raise AttributeError(message)
    torch.manual_seed(0)
    inputs = list(module.get_inputs())
    answer["inputs"] = [described(item) for item in inputs]
    answer["fixed"] = fixed_sizes(value, inputs)
    answer["calls"] = census(value, inputs)
    return answer


def census(function: Any, inputs: list[Any]) -> list[str]:
    """Return the operators of torch that a call runs."""
    with Census() as seen, torch.no_grad():
        function(*inputs)
    return sorted(seen.calls)


def main() -> None:
    """Print what a file has, of its path, a name or nothing, and as JSON arguments and a candidate's inputs."""
    path, name, init, examples = sys.argv[1:]
    # What a file prints is not its description.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = report(path, name, json.loads(init), json.loads(examples))
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
            answer = {"error": f"{type(error).__name__}: {error}"[:600]}
    print("\n" + json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main()
