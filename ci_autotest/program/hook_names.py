"""Names for the values of hooks in printed programs.

A hook is printed as a function, so its values are local. If a step outside the hook uses one, the hook appends it to a
list, for example ``mul_kept``, from which the step reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import UNHOOKED, Ref, step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Argument, Step


def hooks_of(steps: Sequence[Step]) -> dict[int, int]:
    """Return, for each step inside a hook, the index of the step that registers the hook."""
    found: dict[int, int] = {}
    for index, step in enumerate(steps):
        first = step.args[1] if step.target == "register_hook" and len(step.args) > 1 else None
        if isinstance(first, Ref):
            found |= dict.fromkeys(range(first.index, index), index)
    return found


def kept_names(steps: Sequence[Step], named: Sequence[str]) -> dict[int, str]:
    """Return the name of the list for each value of a hook that a step outside the hook uses."""
    owners = hooks_of(steps)
    taken, found = set(named), {}
    for index, step in enumerate(steps):
        for ref in step_refs(step):
            owner = owners.get(ref.index)
            # Steps of the same hook see its local values, and its registration only reads what it returns.
            if owner is None or owner in {index, owners.get(index)} or ref.index in found:
                continue
            name = f"{named[ref.index]}_kept"
            while name in taken:
                name += "_"
            taken.add(name)
            found[ref.index] = name
    return found


def idle_hooks(steps: Sequence[Step]) -> frozenset[int]:
    """Return the steps of hooks, their registration and their removal if no hook has an effect; else nothing.

    A hook has an effect if it returns a gradient, or if a step outside uses one of its values.
    """
    owners = hooks_of(steps)
    registered = set(owners.values())
    if any(steps[index].args[2] is not None for index in registered) or kept_names(steps, [s.name for s in steps]):
        return frozenset()
    # Without the registration there is no handle that a removal could use.
    removed = {i for i, step in enumerate(steps) if step.target == UNHOOKED and step_refs(step)[0].index in registered}
    return frozenset({*owners, *registered, *removed})


def handle_name(steps: Sequence[Step], hook: Argument, named: Sequence[str]) -> str:
    """Return the name of a hook's handle, which is that of the first step that removes it; empty if none does."""
    return next((named[i] for i, step in enumerate(steps) if step.target == UNHOOKED and step.args[0] == hook), "")
