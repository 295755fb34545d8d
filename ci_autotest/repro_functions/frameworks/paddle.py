"""Paddle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from ci_autotest.repro_functions.arrays import compared, plain

if TYPE_CHECKING:
    from collections.abc import Callable

inputs: Callable[[], dict[str, Any]]
candidate: Callable[..., Any]
COTANGENTS: dict[int, Any]
#: Names of what the candidate takes, and of its outputs.
TAKES: list[str]
NAMES: list[str]


def tensor(array: Any, dtype: str, requires_grad: bool = False) -> Any:
    """Return a leaf with the elements of an array; bfloat16 comes as the float32 of the same values."""
    return paddle.to_tensor(np.array(array), dtype=dtype, stop_gradient=not requires_grad)


def elements(value: Any) -> Any:
    """Return a tensor's elements and the name of its dtype; any other value as it is."""
    if not isinstance(value, paddle.Tensor):
        return value
    dtype = str(value.dtype).rpartition(".")[2]
    return np.array((value.astype("float32") if dtype == "bfloat16" else value).numpy()), dtype


def flags_of(name: str, value: Any) -> dict[str, Any]:
    """Return by name what is compared of a tensor besides its elements; integers are leaves, whatever Paddle says."""
    if not isinstance(value, paddle.Tensor):
        return {}
    has_gradient = value.is_floating_point() or value.is_complex()
    flags = (not value.stop_gradient, value.is_leaf) if has_gradient else (False, True)
    return {f"requires_grad of {name}": flags[0], f"is_leaf of {name}": flags[1]}


def differentiated(function: Callable[..., Any], given: dict[str, Any], weights: dict[int, Any]) -> Any:
    """Return a function's outputs and gradients."""
    outputs = function(**{name: given[name] for name in TAKES})
    wanted = {name: v for name, v in given.items() if isinstance(v, paddle.Tensor) and not v.stop_gradient}
    roots = [(o, weights[i]) for i, o in enumerate(outputs) if i in weights and not o.stop_gradient]
    if roots and wanted:
        paddle.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    return outputs, {name: value.grad for name, value in wanted.items()}


def as_graph(**given: Any) -> Any:
    """Run the candidate as one whole graph: the steps as they are written, nothing eagerly."""
    steps = paddle.jit.not_to_static(lambda tensors: list(candidate(**dict(zip(TAKES, tensors)))))

    def whole(tensors: Any) -> Any:
        return steps(tensors)

    return paddle.jit.to_static(whole, full_graph=True)([given[name] for name in TAKES])


def graphed() -> int:
    """Compare the body as one graph with the same body run eagerly."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    weights = {i: tensor(*pair) for i, pair in COTANGENTS.items()}
    expected = as_a_graph(*differentiated(candidate, inputs(), weights))
    try:
        found = as_a_graph(*differentiated(as_graph, inputs(), weights))
    except Exception as error:
        print(f"misaligned: as a graph the candidate raises {type(error).__name__}: {error}")
        return 1
    return compared(found, expected)


def as_a_graph(outputs: Any, gradients: dict[str, Any]) -> dict[str, Any]:
    """Return values of a graph by name."""
    found = {f"value of {name}, as a graph": plain(elements(output)) for name, output in zip(NAMES, outputs)}
    return {**found, **{f"gradient of {name}, as a graph": plain(elements(value)) for name, value in gradients.items()}}
