"""Frameworks whose module has torch's names; their graphs are those of ``nn.Graph``, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.repro_functions.arrays import compared, plain

if TYPE_CHECKING:
    from collections.abc import Callable

#: The framework's module, and the device of the candidate.
framework: Any
device: Any
inputs: Callable[[], dict[str, Any]]
candidate: Callable[..., Any]
#: Names of what the candidate takes, and of its outputs.
TAKES: list[str]
NAMES: list[str]


def tensor(array: Any, dtype: str, requires_grad: bool = False) -> Any:
    """Return a leaf with the elements of an array; bfloat16 comes as the float32 of the same values."""
    made = framework.from_numpy(np.array(array)) if array.size else framework.zeros(array.shape)
    made = made.to(getattr(framework, dtype)).to(device)
    return made.requires_grad_() if requires_grad else made


def elements(value: Any) -> Any:
    """Return a tensor's elements and the name of its dtype; any other value as it is."""
    if not isinstance(value, framework.Tensor):
        return value
    dtype = str(value.dtype).rpartition(".")[2]
    value = value.detach().cpu()
    return np.array((value.to(framework.float32) if dtype == "bfloat16" else value).numpy()), dtype


def flags_of(name: str, value: Any) -> dict[str, Any]:
    """Return by name what is compared of a tensor besides its elements."""
    is_tensor = isinstance(value, framework.Tensor)
    return {f"requires_grad of {name}": value.requires_grad, f"is_leaf of {name}": value.is_leaf} if is_tensor else {}


def differentiated(function: Callable[..., Any], given: dict[str, Any], weights: dict[int, Any]) -> Any:
    """Return a function's outputs and gradients."""
    outputs = function(**{name: given[name] for name in TAKES})
    wanted = {n: value for n, value in given.items() if isinstance(value, framework.Tensor) and value.requires_grad}
    for name, module in given.items():
        if hasattr(module, "named_parameters"):
            wanted.update({f"{name}.{n}": p for n, p in module.named_parameters() if p.requires_grad})
    roots = [(o, weights[i]) for i, o in enumerate(outputs) if i in weights and o.requires_grad]
    if roots and wanted:
        framework.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    return outputs, {name: value.grad for name, value in wanted.items()}


def as_graph(**given: Any) -> Any:
    """Run the candidate as one graph."""

    class GraphOfBody(framework.nn.Graph):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name in TAKES:
                if not isinstance(given[name], framework.Tensor):
                    setattr(self, f"part_{name}", given[name])

        def build(self, *tensors: Any) -> list[Any]:
            left = iter(tensors)
            return list(candidate(**{n: getattr(self, f"part_{n}", None) or next(left) for n in TAKES}))

    return GraphOfBody()(*[given[name] for name in TAKES if isinstance(given[name], framework.Tensor)])


def graphed() -> int:
    """Compare the body as one graph with the same body run eagerly."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    given, again = inputs(), inputs()
    eager = candidate(**{name: given[name] for name in TAKES})
    pairs = list(zip(NAMES, as_graph(**{name: again[name] for name in TAKES}), eager))
    found = {f"value of {name}, as a graph": plain(elements(left)) for name, left, _ in pairs}
    expected = {f"value of {name}, as a graph": plain(elements(right)) for name, _, right in pairs}
    for name in TAKES:
        if hasattr(given[name], "state_dict"):
            state = again[name].state_dict()
            for key, value in given[name].state_dict().items():
                found[f"{name}.{key} after the run, as a graph"] = elements(state[key])
                expected[f"{name}.{key} after the run, as a graph"] = elements(value)
    return compared(found, expected)
