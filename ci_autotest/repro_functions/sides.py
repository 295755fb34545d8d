"""What a repro observes of a side besides its outputs, and the comparison of its two sides."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.repro_functions.tensors import apart

if TYPE_CHECKING:
    from collections.abc import Callable

SEEN_WITH: str
#: What the reference gave when this was found, by name.
EXPECTED: dict[str, Any]
run: Callable[[Callable[..., Any]], dict[str, Any]]
reference: Callable[..., Any]
candidate: Callable[..., Any]


def main() -> int:
    """Run both sides and compare them; return 1 while they differ."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    print(f"found with {SEEN_WITH}; running torch {torch.__version__}")
    expected = run(reference)
    has_changed = any(apart(expected.get(name), EXPECTED[name]) for name in EXPECTED)
    print(f"the reference recomputed {'DIFFERS from' if has_changed else 'agrees with'} the values carried here")
    try:
        found = run(candidate)
    except BaseException as error:
        print(f"misaligned: the candidate raises {type(error).__name__}: {error}")
        return 1
    bad = 0
    for name, value in {**expected, **EXPECTED}.items():
        how = apart(found.get(name), value)
        print(f"misaligned: {name}: {how}" if how else f"aligned: {name}")
        bad |= bool(how)
    return bad


def moved(given: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return what a side is given with its modules on a device: they are constructed on the CPU."""
    return {name: value.to(device) if isinstance(value, torch.nn.Module) else value for name, value in given.items()}


def leaves_of(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors that a side is given, and the parameters of its modules."""
    leaves = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    for name, module in given.items():
        if isinstance(module, torch.nn.Module):
            leaves.update({f"{name}.{path}": parameter for path, parameter in module.named_parameters()})
    return leaves


def states_of(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors that a side is given, and the states of its modules."""
    states = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    for name, module in given.items():
        if isinstance(module, torch.nn.Module):
            states.update({f"{name}.{path}": state for path, state in module.state_dict().items()})
    return states


def roots_of(outputs: list[Any], cotangents: dict[int, torch.Tensor]) -> list[tuple[Any, Any]]:
    """Return the outputs from which the backward pass starts, each with the gradient that is put in."""
    pairs = [(outputs[i], weight) for i, weight in cotangents.items() if isinstance(outputs[i], torch.Tensor)]
    # A deep copy keeps strides that a clone does not.
    return [(o, copy.deepcopy(w.to(o.device, o.dtype))) for o, w in pairs if o.requires_grad and o.shape == w.shape]


def gradients_of(roots: list[tuple[Any, Any]], leaves: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Run the backward pass; return gradients by name, or that it raises."""
    wanted = {f"gradient of {name}": leaf for name, leaf in leaves.items() if leaf.requires_grad}
    gradients: Any = [torch.zeros_like(leaf) for leaf in wanted.values()]
    if roots and wanted:
        outputs, weights = [output for output, _ in roots], [weight for _, weight in roots]
        try:  # no gradient, and one of zeros, are the same
            gradients = torch.autograd.grad(outputs, list(wanted.values()), weights, materialize_grads=True)
        except RuntimeError as error:
            print(f"the backward pass raises {type(error).__name__}: {error}")
            return {"backward pass": "raises"}
    return dict(zip(wanted, gradients))


def flags_of(name: str, value: Any) -> dict[str, Any]:
    """Return by name what is compared of a tensor besides its elements."""
    if not isinstance(value, torch.Tensor):
        return {}
    found = {"requires_grad": value.requires_grad, "is_leaf": value.is_leaf, "layout": str(value.layout)}
    return {f"{flag} of {name}": held for flag, held in found.items()}


def shared_with(output: Any, given: dict[str, Any]) -> list[str]:
    """Return the names of the inputs whose memory an output shares."""
    tensors = {name: value for name, value in {"": output, **given}.items() if isinstance(value, torch.Tensor)}
    places = {name: value.untyped_storage().data_ptr() for name, value in tensors.items() if value.numel()}
    return [name for name, place in places.items() if name and place == places.get("")]
