"""What the repro of a framework without torch observes of the candidate, and its comparison with the reference."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.repro_functions.arrays import compared, is_array

if TYPE_CHECKING:
    from collections.abc import Callable

SEEN_WITH: str
#: What goes into the backward pass.
COTANGENTS: dict[int, Any]
#: Name of the framework's module.
FRAMEWORK: str
inputs: Callable[[], dict[str, Any]]
run: Callable[[], dict[str, Any]]
#: The framework's own: makes a tensor of an array, reads one, and reads its flags.
tensor: Callable[..., Any]
elements: Callable[[Any], Any]
flags_of: Callable[[str, Any], dict[str, Any]]


def main(expected: dict[str, Any]) -> int:
    """Run the candidate and compare it with what the reference gave; return 1 while it differs."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    print(f"found with {SEEN_WITH}; running {FRAMEWORK} {getattr(sys.modules[FRAMEWORK], '__version__', '')}")
    return compared(run(), expected)


def states_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a side is given by name, and the states of its modules."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        state = value.state_dict() if hasattr(value, "state_dict") else None
        found.update({name: value} if state is None else {f"{name}.{key}": each for key, each in state.items()})
    return found


def after_run(given: dict[str, Any], weights: dict[int, Any]) -> dict[str, Any]:
    """Return by name what inputs, states and gradients that were put in are, with the flags of inputs."""
    found = {f"{name} after the run": elements(value) for name, value in states_of(given).items()}
    found.update({f"gradient put into output {i} after the run": elements(each) for i, each in weights.items()})
    for name, value in given.items():
        found.update(flags_of(f"{name} after the run", value))
    return found


def untouched() -> dict[str, Any]:
    """Return by name what inputs, states and gradients are that no run has touched."""
    return after_run(inputs(), {i: tensor(*pair) for i, pair in COTANGENTS.items()})


def repeated() -> int:
    """Run the candidate fifty times on the same inputs; return 1 if a run differs from the first."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    first = run()
    for number in range(2, 51):
        written_to(list(first.values()), number)
        again = run()
        for name, before in first.items():
            found = again[name]
            if is_array(found) and is_array(before) and found[0].tobytes() != before[0].tobytes():
                print(f"misaligned: run {number} of the candidate differs from its first on the same inputs")
                return 1
    print("aligned: fifty runs of the candidate are the same")
    return 0


def written_to(results: list[Any], number: int) -> None:
    """Write a number to memory of the results' sizes and free it: a kernel that leaves memory unwritten shows it."""
    floats = [found for found in results if is_array(found) and found[0].dtype.kind == "f" and found[0].size]
    room = (1 << 25) // max(len(floats), 1)  # bytes
    held = []
    for array, dtype in floats:
        one = tensor(np.full(array.shape, number, array.dtype), dtype)
        held += [one + one for _ in range(max(1, min(8, room // array.nbytes)))]
    for one in held:
        elements(one)  # waits until it is written
