"""The tree of the user's modules behind a program's steps, as a pass over graphs gets it.

A recorded program has the steps inside of a module. A step that is the whole forward of a class of torch's can be a
call of that module again, and a parameter is an attribute of its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, PLACEHOLDER, Ref, renumbered_step, step_refs, used_by
from ci_autotest.program.python_names import is_name
from ci_autotest.program.refusal import refused_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import ModuleCall, Program, Step

#: Methods with which a layer of torch's checks its input.
READS: Final = frozenset({"dim", "size"})
#: Name of the outermost module where a graph has more than one.
_ROOT: Final = "model"


class Tree(NamedTuple):
    """The modules of a program.

    Attributes:
        calls: Path of the module that a step calls, by the step's index.
        states: Path of the parameter or buffer that a placeholder is, by its index.
        absorbed: Steps that only such a call needs, for example a check of its input.
    """

    calls: Mapping[int, str]
    states: Mapping[int, str]
    absorbed: frozenset[int]


def is_module_path(path: str) -> bool:
    """Whether a text is the path of a module, parameter or buffer (``ModuleCall.path``) that is printed as code."""
    number, *names = path.split(".")
    return number.isdecimal() and all(
        name.isdecimal() or (is_name(name) and not name.startswith("__")) for name in names
    )


def constants_of(step: Step) -> str:
    """Return the text of a step's arguments without its references."""
    bare = renumbered_step(step, dict.fromkeys((ref.index for ref in step_refs(step)), 0))
    return repr((bare.target, bare.args, bare.kwargs))


def input_of(step: Step) -> Ref | None:
    """Return the value that a step gets besides parameters and buffers; ``None`` if it is not exactly one."""
    states = step.module.states if step.module is not None else ()
    found = {ref for ref, path in zip(step_refs(step), states, strict=False) if not path}
    return found.pop() if len(found) == 1 else None


def module_tree(program: Program) -> Tree:
    """Return the modules of a program that its steps still call as they were recorded."""
    steps = program.steps
    within = {i: step.module for i, step in enumerate(steps) if step.module is not None and not _is_edited(step)}
    known: dict[int, str] = {}
    for index, module in within.items():
        known |= {
            ref.index: path for ref, path in zip(step_refs(steps[index]), module.states, strict=True)
            if path and steps[ref.index].op == PLACEHOLDER
        }  # fmt: skip
    # Two placeholders for one parameter are its values before and after a write, which no module has at once.
    known = {index: path for index, path in known.items() if list(known.values()).count(path) == 1}
    roots = dict.fromkeys(
        path.partition(".")[0] for path in (*known.values(), *(each.path for each in within.values()))
    )
    is_leaf = any(module.target and "." not in module.path for module in within.values())
    is_named = len(roots) > 1 or is_leaf or bool(program.setup)
    prefixes = {root: f"{_ROOT}_{i}" if i else _ROOT for i, root in enumerate(roots)} if is_named else {}
    calls = {i: _path(module.path, prefixes) for i, module in within.items() if _is_whole(steps[i], module, known)}
    used = used_by(steps)
    called = {within[i].path for i in calls}
    absorbed = {
        i for i, module in within.items()
        if i not in used and module.path in called and steps[i].target in READS
    }  # fmt: skip
    return Tree(calls, {index: _path(path, prefixes) for index, path in known.items()}, frozenset(absorbed))


def _is_edited(step: Step) -> bool:
    module = step.module
    return module is None or len(module.states) != len(step_refs(step)) or module.constants != constants_of(step)


def _is_whole(step: Step, module: ModuleCall, known: Mapping[int, str]) -> bool:
    """Whether a step is the forward of a module that has all that the step gets but its input."""
    is_call = step.op in {CALL_FUNCTION, CALL_METHOD} and refused_as(step) is None
    if not module.target or not is_call or input_of(step) is None:
        return False
    pairs = zip(step_refs(step), module.states, strict=True)
    return all(known.get(ref.index) == path and path.rpartition(".")[0] == module.path for ref, path in pairs if path)


def _path(path: str, prefixes: Mapping[str, str]) -> str:
    root, _, inner = path.partition(".")
    return ".".join(filter(None, (prefixes.get(root, ""), inner))) or _ROOT
