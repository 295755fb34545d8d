"""Names of what hooks leave, where programs are printed: a hook is a function, and its values are its own.

A value that a step outside its hook uses is put into a list beside the hook, ``mul_kept``, which is read afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import UNHOOKED, Ref, step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Argument, Step


def hooks_of(steps: Sequence[Step]) -> dict[int, int]:
    """Return, for each step that waits for a hook, the index of the step that registers the hook."""
    found: dict[int, int] = {}
    for index, step in enumerate(steps):
        first = step.args[1] if step.target == "register_hook" and len(step.args) > 1 else None
        if isinstance(first, Ref):
            found |= dict.fromkeys(range(first.index, index), index)
    return found


def kept_names(steps: Sequence[Step], named: Sequence[str]) -> dict[int, str]:
    """Return the name of the list that holds each value which a step outside its hook uses."""
    owners = hooks_of(steps)
    taken, found = set(named), {}
    for index, step in enumerate(steps):
        for ref in step_refs(step):
            owner = owners.get(ref.index)
            if owner is None or owner in {index, owners.get(index)} or ref.index in found:
                continue
            name = f"{named[ref.index]}_kept"
            while name in taken:
                name += "_"
            taken.add(name)
            found[ref.index] = name
    return found


def idle_hooks(steps: Sequence[Step]) -> frozenset[int]:
    """Return the steps of hooks, of their registration and removal, where no hook changes anything.

    One that returns a gradient of its own changes it, and one that leaves a value which a step outside uses is needed.
    """
    owners = hooks_of(steps)
    registered = set(owners.values())
    if any(steps[index].args[2] is not None for index in registered) or kept_names(steps, [s.name for s in steps]):
        return frozenset()
    removed = {i for i, step in enumerate(steps) if step.target == UNHOOKED and step_refs(step)[0].index in registered}
    return frozenset({*owners, *registered, *removed})


def handle_name(steps: Sequence[Step], hook: Argument, named: Sequence[str]) -> str:
    """Return the name of a hook's handle, that of the step which removes it first; nothing where none does."""
    return next((named[i] for i, step in enumerate(steps) if step.target == UNHOOKED and step.args[0] == hook), "")
